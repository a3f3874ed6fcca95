"""`python -m confide.blind`: what it refuses before it is ready."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

from confide.blind.__main__ import main
from confide.blind.tests import hosts


class Program(unittest.TestCase):
    def test_an_installation_without_the_cpu_form_refuses_the_device_before_it_is_ready(
        self,
    ) -> None:
        output, errors = io.StringIO(), io.StringIO()
        missing = ModuleNotFoundError("No module named 'confide.cuda.tests.emulator'")
        with (
            mock.patch("confide.cuda.runtime.importlib.import_module", side_effect=missing),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            status = main(["host", "adapter", "--listen", "127.0.0.1:0"])
        self.assertEqual((status, output.getvalue()), (1, ""))
        self.assertIn("error: device cpu", errors.getvalue())

    def test_a_name_that_no_device_has_is_refused_before_it_is_ready(self) -> None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            status = main(["host", "adapter", "--listen", "127.0.0.1:0", "--device", "gpu"])
        self.assertEqual(status, 1)
        self.assertIn("device gpu: wanted", errors.getvalue())

    def test_without_the_native_part_an_adapter_is_refused_with_a_word_on_how_to_get_it(
        self,
    ) -> None:
        script = """
            import os, sys

            os.environ.pop("CONFIDE_NATIVE", None)
            os.environ["CARGO_TARGET_DIR"] = os.devnull
            sys.modules["confide._native"] = None
            from confide import peft
            from confide.adapter_error import AdapterRefused

            try:
                peft.load_adapter("bank")
            except AdapterRefused as error:
                assert "make native" in str(error), error
            else:
                raise SystemExit("wanted an error")
        """
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env=os.environ | {"PYTHONPATH": str(hosts.PYTHON_FOLDER)},
            check=True,
            timeout=60,
        )


if __name__ == "__main__":
    unittest.main()

"""`python -m confide.blind`: what it refuses before it is ready."""

from __future__ import annotations

import contextlib
import io
import unittest
from unittest import mock

from confide.blind.__main__ import main


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


if __name__ == "__main__":
    unittest.main()

"""The first minutes on a card: each step's line is there before the next begins, however it ended."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from typing import Any

import run
import smoke
from journal import REHEARSAL

SMOKE = HERE.parent / "smoke.py"

try:
    import torch
except ImportError:
    torch = None


class Steps(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_made_up(self, **programs: str) -> tuple[int, list[dict[str, Any]]]:
        """Runs steps whose programs are made up."""
        steps = [smoke.Step(name, 1, "made up") for name in programs]
        begin = subprocess.Popen

        def start(command: list[str], **more: Any) -> Any:
            name = command[command.index("--step") + 1]
            return begin([sys.executable, "-c", programs[name]], **more)

        with (
            mock.patch("smoke.read_commit", lambda: "made-up"),
            mock.patch.object(run, "find_native_fault", lambda: "made-up"),
            mock.patch("smoke.subprocess.Popen", start),
            mock.patch.object(smoke, "CPU_FACTOR", 2),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            status = smoke.run_all_steps(steps, self.folder, cpu=True)
        lines = (self.folder / smoke.REHEARSAL_FILE).read_text().splitlines()
        return status, [json.loads(line) for line in lines]

    def test_that_hangs_crashes_or_prints_nonsense_does_not_keep_the_next_from_running(
        self,
    ) -> None:
        # Each program but the first sees the lines of those before it.
        seen = f"len(open({str(self.folder / smoke.REHEARSAL_FILE)!r}).readlines())"
        status, lines = self.run_made_up(
            hangs="import time; time.sleep(60)",
            crashes="import os, sys; print('why', file=sys.stderr, flush=True); os.abort()",
            prints="print('not JSON')",
            ends=f"import json; print(json.dumps({{'lines': {seen}}}))",
        )
        ended = [line["ended"] for line in lines]
        self.assertEqual(
            ended, ["killed at its limit of 2 s", "status -6", "gave no answer", "done"]
        )
        self.assertIn("why", lines[1]["log"])
        self.assertEqual(lines[3]["found"], {"lines": 3})
        self.assertEqual({line["rehearsal"] for line in lines}, {REHEARSAL})
        self.assertEqual([line["native"] for line in lines], [{"fault": "made-up"}] * 4)
        self.assertEqual(status, 1)

    def test_take_less_than_nine_minutes_together(self) -> None:
        self.assertLessEqual(sum(step.limit_s for step in smoke.STEPS), smoke.LIMIT_S)
        self.assertLessEqual(smoke.LIMIT_S, 540)

    def test_begin_with_what_is_wanted_most(self) -> None:
        names = [step.name for step in smoke.STEPS]
        wanted = ["environment", "base_by_torch", "transformers", "kernels", "decode_step", "base_by_kernels",
                  "device_tests", "adapters", "ipc", "tilings", "sanitizer"]  # fmt: skip
        self.assertEqual(names, wanted)

    @unittest.skipIf(torch is None, "skipped: no torch")
    def test_are_rehearsed_on_the_cpu(self) -> None:
        command = [sys.executable, str(SMOKE), "--cpu", "--out", str(self.folder)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        lines = (self.folder / smoke.REHEARSAL_FILE).read_text().splitlines()
        found = {line["step"]: line["found"] for line in map(json.loads, lines)}
        self.assertEqual(list(found), [step.name for step in smoke.STEPS])
        self.assertTrue(found["decode_step"]["eager_bit_equal"])
        self.assertTrue(found["decode_step"]["in_turn_bit_equal"])
        errors = [value for name, value in found["kernels"].items() if name.endswith("_error")]
        self.assertEqual(len(errors), 7)
        self.assertLess(max(errors), 1e-5)
        self.assertFalse(
            [name for name in found["adapters"] if name.endswith("_fault")], found["adapters"]
        )
        for row in told.stdout.splitlines()[:-1]:
            self.assertTrue(row.startswith(REHEARSAL), row)

    def test_without_a_gpu_are_not_tried(self) -> None:
        with (
            mock.patch.object(run, "find_gpu_fault", lambda: "made-up"),
            mock.patch.object(sys, "argv", ["smoke.py", "--out", str(self.folder / "out")]),
            contextlib.redirect_stderr(io.StringIO()) as told,
        ):
            self.assertEqual(smoke.main(), run.NO_GPU)
        self.assertIn("no GPU: made-up", told.getvalue())
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()

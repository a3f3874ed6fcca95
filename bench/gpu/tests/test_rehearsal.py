"""The whole script on the CPU: every stage runs to its end, and nothing of it passes for a measurement."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent / "run.py"
sys.path[:0] = [str(RUN.parent)]

import journal

try:
    import torch

    HAS_CARD = torch.cuda.is_available()
except ImportError:
    torch = None


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), *words], capture_output=True, text=True, timeout=600, check=False
    )


class TheScript(unittest.TestCase):
    def test_lists_stages_that_fit_into_eight_minutes(self) -> None:
        told = run("--list")
        self.assertEqual(told.returncode, 0, told.stderr)
        total = int(told.stdout.splitlines()[-1].split()[1])
        self.assertLess(total, 480)

    def test_tells_the_instrument_why_its_arms_cannot_be_started_alone(self) -> None:
        told = json.loads(run("--arm", "base").stdout)
        self.assertEqual((told["type"], told["protocol"]), ("hello", 1))
        self.assertIn("share one process", told["cannot"])

    @unittest.skipIf(torch is not None and HAS_CARD, "skipped: a GPU is here")
    def test_without_a_gpu_writes_nothing_and_ends_with_status_3(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            told = run("--out", f"{folder}/record")
            self.assertEqual(told.returncode, 3, told.stderr)
            self.assertIn("no GPU", told.stderr)
            self.assertFalse((Path(folder) / "record").exists())

    @unittest.skipIf(torch is None, "skipped: no torch")
    def test_is_rehearsed_on_the_cpu_and_labels_every_figure(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            told = run("--cpu", "--out", folder)
            self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
            rows = [line for line in told.stdout.splitlines() if "tokens/s" in line]
            self.assertTrue(rows)
            for row in rows:
                self.assertTrue(row.strip().startswith(journal.REHEARSAL), row)
            self.assertIn("0 integers wrong", told.stdout)
            kept = [path.name for path in Path(folder).iterdir() if path.is_file()]
            self.assertEqual(kept, ["rehearsal.jsonl"])
            lines = [
                json.loads(line)
                for line in Path(folder, "rehearsal.jsonl").read_text().splitlines()
            ]
            measured = {line["bench"] for line in lines if line["kind"] == "block"}
            # Of the stages that measure nothing themselves, `build` and `check` report a service, and the run itself
            # reports the native part.
            services = {line["name"] for line in lines if line["kind"] == "service"}
            self.assertEqual(services, {"build", "check", "native"})
            wanted = {bench["name"] for bench in journal.read_suite()["bench"]}
            # The host on the CPU and the compiled peer need what a rehearsal may lack.
            self.assertLessEqual(wanted - {"host-on-cpu", "generate-compiled"}, measured)


if __name__ == "__main__":
    unittest.main()

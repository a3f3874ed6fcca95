"""What the script writes is what the instrument reads (tests of bench/harness, `loaded`, read the same file)."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import journal
import table
from blocks import Arm, ArmFailed, Measurement, StageSession

KEPT = HERE / "journal.jsonl"
BLOCKS = 12


def write_made_up_journal(folder: Path, rehearsal: bool = False) -> Path:
    """A journal of made-up figures: the base, a twin, one arm at 96 % of it, another that is wrong once."""
    record = journal.make_head(
        ["bench/gpu/run.py", "made-up"], {"cpu_model": "made-up", "cpus_online": 1}, 7
    )
    record |= {"commit": "made-up", "version": "0.0.0", "started_unix_s": 1_800_000_000}
    record["sessions"][0] |= {"boot": "made-up", "started_unix_s": 1_800_000_000}
    written = journal.Journal(folder, record, rehearsal)
    calls = {"one-graph": 0}

    def measure(share: float, name: str) -> Callable[[int], Measurement]:
        def run(seed: int) -> Measurement:
            if name == "one-graph":
                calls[name] += 1
                if calls[name] == 5:
                    raise ArmFailed("made-up: wrong tokens")
            # The twin differs from block to block, in no direction.
            noise = (seed // 7) % 1000 - 499.5 if share == 1.0003 else seed % 1000
            rate = 1000.0 * min(share, 1.0) * (1.0 + noise * 1e-6)
            floor = {
                "name": "all weights read once, made-up",
                "metric": "tokens_per_s",
                "value": 1400.0,
            }
            return Measurement(
                [{"tokens_per_s": rate, "online_tokens_per_s": rate * 1.01}],
                floor=floor,
                marks=["made-up"],
            )

        return run

    def emit(line: dict[str, Any]) -> None:
        if line["kind"] not in ("say", "fact"):
            written.write_line(line)

    session = StageSession(emit, {}, 7, time.monotonic() + 60, time.monotonic(), cpu=False)
    arms = [
        Arm("base", measure(1.0, "base")),
        Arm("base", measure(1.0003, "base"), twin=True),
        Arm("final-hidden", measure(0.96, "final-hidden"), guarantee="none"),
        Arm("one-graph", measure(0.8, "one-graph")),
    ]
    params = {"model": "qwen2.5-1.5b", "batch": 1}
    session.run_case_blocks("decode", params, arms)
    session.run_case_blocks("sustained", params, arms)
    session.leave_out("decode", "ckks-slots", "made-up: no kernels")
    written.write_line({"kind": "not_run", "bench": "placement", "reason": "cut at its budget"})
    written.finish(None)
    return written.path


def without_times(path: Path) -> list[dict[str, Any]]:
    """The lines without the figures that differ from run to run."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        for name in ("started_s", "wall_s", "quiet", "rehearsal", "chain"):
            line.pop(name, None)
    return lines


class AJournal(unittest.TestCase):
    def test_is_what_the_instrument_has_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = write_made_up_journal(Path(folder))
            if os.environ.get("CONFIDE_WRITE"):
                KEPT.write_bytes(path.read_bytes())
            self.assertEqual(
                without_times(path),
                without_times(KEPT),
                "the format or the suite changed: CONFIDE_WRITE=1, then `cargo test -p confide-bench loaded`",
            )

    def test_is_never_written_over(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_made_up_journal(Path(folder))
            with self.assertRaises(FileExistsError):
                write_made_up_journal(Path(folder))

    def test_of_a_rehearsal_is_no_record(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = write_made_up_journal(Path(folder), rehearsal=True)
            self.assertFalse((Path(folder) / journal.JOURNAL_FILE).exists())
            renamed = Path(folder) / journal.JOURNAL_FILE
            path.rename(renamed)
            with self.assertRaises(ValueError):
                table.load_slices(renamed)


class ATable(unittest.TestCase):
    def test_without_a_record_says_not_measured_in_every_cell(self) -> None:
        rows = [
            line
            for line in table.render_table([]).splitlines()
            if line.startswith("| ") and "---" not in line
        ]
        self.assertGreater(len(rows), len(table.CASES))
        for row in rows:
            if not row.startswith(("| case", "| arm")):
                self.assertIn(table.NOT_MEASURED, row)

    def test_shows_shares_of_the_base_and_of_the_floor_and_leaves_voids_out(self) -> None:
        shown = table.render_table(table.load_slices(KEPT))
        base = next(line for line in shown.splitlines() if line.startswith("| base decode |"))
        self.assertRegex(base, r"1,00\d tokens/s, 71\.\d % of the floor; 12 blocks; made-up")
        final = next(line for line in shown.splitlines() if line.startswith("| `final-hidden`"))
        self.assertRegex(final, r"96\.0 % of base, 97\d without the offline work; 2 blocks")
        graph = next(
            line for line in shown.splitlines() if line.startswith("| true LoRA q,k,v,o x 28")
        )
        self.assertIn("80.0 % of base", graph)
        self.assertIn("2 blocks", graph)


if __name__ == "__main__":
    unittest.main()

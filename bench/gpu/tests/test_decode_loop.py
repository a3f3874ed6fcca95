"""The timed window of a run, with a scheduler whose marks are made up."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent.parent / "python")]

from typing import Any

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import decode_loop
    from blocks import ArmFailed


class MadeUpScheduler:
    """Begins one generation a turn, gives every begun one a token a turn, and a turn takes a second."""

    def __init__(self, loop: Any, tokens: int) -> None:
        self.loop, self.tokens, self.now = loop, tokens, 0.0
        self.running: dict[int, int] = {}
        self.waiting: list[int] = []

    def run_round(self) -> None:
        if self.waiting:
            self.running[self.waiting.pop(0)] = 0
        self.now += 1.0
        for number in self.running:
            self.running[number] += 1
        with mock.patch("decode_loop.time.perf_counter", lambda: self.now):
            self.loop.emit_tokens([(number, 0) for number in self.running])
        for number in [one for one, count in self.running.items() if count == self.tokens]:
            del self.running[number]
            request = SimpleNamespace(number=number)
            self.loop.emit_end(
                SimpleNamespace(request=request, ended="length", failure=None, report=lambda: None)
            )


@unittest.skipIf(torch is None, "skipped: no torch")
class TheWindow(unittest.TestCase):
    def run_made_up(self, slots: int, tokens: int) -> Any:
        loop: Any = object.__new__(decode_loop.DecodeLoop)
        numbers = list(range(1, slots + 1))
        loop._prompts = loop._told = {number: [] for number in numbers}
        loop._ended, loop._marks = {}, []
        loop.scheduler = MadeUpScheduler(loop, tokens)
        loop.scheduler.waiting = list(numbers)
        return loop._run(numbers)

    def test_holds_only_steps_in_which_every_generation_has_a_row(self) -> None:
        for slots, tokens in ((1, 5), (8, 96), (32, 96)):
            found = self.run_made_up(slots, tokens)
            # Generation 1 ends in turn `tokens`, the last begins in turn `slots`: full steps lie between.
            full = tokens - slots
            self.assertEqual(found.tokens, full * slots, f"{slots} slots")
            self.assertEqual(found.seconds, full, f"{slots} slots")

    def test_is_refused_where_one_ended_before_the_last_began(self) -> None:
        with self.assertRaisesRegex(ArmFailed, "before the last one had its first token"):
            self.run_made_up(8, 4)


if __name__ == "__main__":
    unittest.main()

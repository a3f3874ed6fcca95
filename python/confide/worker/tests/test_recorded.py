"""Recorded and replayed steps give what steps that run as they stand give (graphs stood in for, on the CPU)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.worker.tests.test_adapters import Bench

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import peft  # noqa: F401
    import torch

    from confide.worker.tests.test_adapters import greedy

    torch.set_num_threads(1)
except ImportError:
    torch = None

PROMPTS = [list(range(5, 30)), [9, 8, 7], list(range(60, 100)), [44, 3, 90, 12]]


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch or no peft")


class Recorded(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_twice(
        self, work: Callable[[Bench], dict[int, list[int]]]
    ) -> tuple[dict[int, list[int]], dict[int, list[int]], Bench]:
        """What `work` makes of a worker whose steps run as they stand, and of one whose steps are recorded."""
        from confide.worker.tests import recorded_on_cpu as stand_in
        from confide.worker.tests.test_adapters import Bench

        plain = Bench(self.folder / "plain")
        said = work(plain)
        with stand_in.recording():
            bench = Bench(self.folder / "recorded", no_warm=True)
            stand_in.watch(bench.scheduler)
            again = work(bench)
        self.assertTrue(bench.scheduler.stepper.graphs)
        self.assertGreater(stand_in.Graph.replays, 0)
        return said, again, bench

    def test_batches_that_change_and_every_kind_of_choice(self) -> None:
        def work(bench: Bench) -> dict[int, list[int]]:
            bench.submit(0, PROMPTS[0], 25)
            bench.submit(1, PROMPTS[1], 12, temperature=0.8, seed=4)
            bench.submit(2, PROMPTS[2], 18, temperature=0.7, top_p=0.7, seed=5, banned_ids=[3, 4])
            bench.submit(3, PROMPTS[3], 30)
            bench.submit(4, PROMPTS[1], 9)
            return dict(bench.run())

        said, again, bench = self.run_twice(work)
        self.assertEqual(said, again)
        shapes = bench.scheduler.stepper.recorded
        self.assertEqual({shape.kind for shape in shapes}, {"greedy", "sampled", "nucleus"})
        self.assertLess(bench.scheduler.stepper.counts.recorded, 12)

    def test_plain_adapters_that_come_and_go(self) -> None:
        def work(bench: Bench) -> dict[int, list[int]]:
            for seed, name in enumerate(("first", "second"), 3):
                bench.make(name, seed)
            bench.adapters.load("first", "plain", {"path": str(bench.folder / "first")})
            bench.submit(0, PROMPTS[0], 30, "first")
            bench.submit(1, PROMPTS[1], 30)
            with torch.inference_mode():
                for _ in range(8):
                    bench.scheduler.run_round()
                bench.adapters.load("second", "plain", {"path": str(bench.folder / "second")})
            bench.submit(2, PROMPTS[3], 20, "second")
            return dict(bench.run())

        said, again, _ = self.run_twice(work)
        self.assertEqual(said, again)
        self.assertNotEqual(said[0], said[1])

    def test_a_relayed_adapter_between_graphs_while_others_step(self) -> None:
        from confide.worker.adapters import sites_on_wire
        from confide.worker.tests.test_adapters import Answers

        def work(bench: Bench) -> dict[int, list[int]]:
            bench.make("one", target_modules=["q_proj", "o_proj", "gate_proj", "down_proj"])
            answers = Answers(bench, bench.folder / "one")
            sites = {
                site: (pair.a.shape[1], pair.b.shape[0]) for site, pair in answers.pairs.items()
            }
            bench.adapters.load("one", "relay", {"sites": sites_on_wire(sites)})
            for number, name in enumerate(("one", None, "one", None)):
                bench.submit(number, PROMPTS[number], 8 + 5 * number, name)
            said = dict(bench.run(60))
            answers.over = True
            return said

        said, again, bench = self.run_twice(work)
        self.assertEqual(said, again)
        chains = [one for one in bench.scheduler.stepper.recorded.values() if one.points]
        self.assertTrue(
            chains and all(len(one.graphs) == len(one.points) + 1 == 13 for one in chains)
        )

    def test_an_adapter_that_fails_while_a_step_is_recorded_leaves_no_step_without_its_part(
        self,
    ) -> None:
        from confide.worker.adapters import PlainBank
        from confide.worker.deltas import points_of
        from confide.worker.tests import recorded_on_cpu as stand_in
        from confide.worker.tests.test_adapters import Bench

        whole, adds, points = PlainBank.add, [], [0]

        def add(bank: PlainBank, layer: int, *more: Any) -> None:
            adds.append(layer)
            # In the middle of the second run over the layers: the first is the rehearsal.
            if len(adds) == points[0] + 5:
                raise torch.OutOfMemoryError("CUDA out of memory")
            whole(bank, layer, *more)

        with stand_in.recording(), mock.patch.object(PlainBank, "add", add):
            bench = Bench(self.folder, no_warm=True)
            stand_in.watch(bench.scheduler)
            model = bench.make("one", 3)
            adapter = bench.adapters.load("one", "plain", {"path": str(bench.folder / "one")})
            points[0] = len(points_of(adapter.sites))
            bench.submit(0, PROMPTS[0], 12, "one")
            bench.run()
            self.assertEqual(bench.failure_kind(0), "out_of_memory")
            self.assertEqual(len(bench.scheduler.stepper.recorded), 0)
            bench.submit(1, PROMPTS[0], 12, "one")
            self.assertEqual(bench.run()[1], greedy(model, PROMPTS[0], 12))

    def test_what_went_wrong_first_is_told_where_a_capture_cannot_end_either(self) -> None:
        from confide.worker.tests import recorded_on_cpu as stand_in
        from confide.worker.tests.test_adapters import Bench

        def broken_end(graph: Any) -> None:
            graph.mode.__exit__(None, None, None)
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )

        with stand_in.recording():
            bench = Bench(self.folder, no_warm=True)
            stand_in.watch(bench.scheduler)
            stepper = bench.scheduler.stepper
            used_up = mock.Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
            broken = mock.patch.object(stand_in.Graph, "capture_end", broken_end)
            with broken, mock.patch.object(stepper.rows, "advance", used_up):
                bench.submit(0, PROMPTS[1], 5)
                bench.run()
            self.assertEqual(bench.failure_kind(0), "out_of_memory")
            used_up.assert_called_once()

    def test_shapes_can_be_recorded_beforehand_and_are_forgotten(self) -> None:
        from confide.worker.tests import recorded_on_cpu as stand_in
        from confide.worker.tests.test_adapters import Bench

        with stand_in.recording():
            bench = Bench(self.folder, no_warm=True)
            stand_in.watch(bench.scheduler)
            stepper = bench.scheduler.stepper
            stepper.record_without_adapters()
            # Batches 1, 2 and 4, one context, two kinds.
            self.assertEqual(len(stepper.recorded), 6)
            stepper.forget_oldest()
            self.assertEqual(len(stepper.recorded), 5)
            bench.submit(0, PROMPTS[1], 5)
            self.assertEqual(len(bench.run()[0]), 5)
            while stepper.recorded:
                stepper.forget_oldest()
            bench.submit(1, PROMPTS[1], 5)
            self.assertEqual(len(bench.run()[1]), 5)


if __name__ == "__main__":
    unittest.main()

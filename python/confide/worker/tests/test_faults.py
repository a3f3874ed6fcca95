"""Memory that runs out, adapters that cannot be closed: one generation ends, the others and the worker go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.worker.deltas import Adapter, GenerationDeltas, Site, Width

import os
import tempfile
import traceback
import unittest
import weakref
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import peft  # noqa: F401
    import torch

    from confide.worker.tests.test_adapters import PROMPTS, Bench, greedy

    torch.set_num_threads(1)
except ImportError:
    torch = None


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch or no peft")


class Faults(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bench = Bench(Path(folder.name))

    def test_memory_that_libraries_and_the_driver_miss_counts_as_used_up_and_not_as_a_lost_device(
        self,
    ) -> None:
        from confide.worker.faults import is_fatal, is_out_of_memory

        lost = getattr(torch, "AcceleratorError", RuntimeError)
        for error in (
            torch.OutOfMemoryError("CUDA out of memory"),
            lost("CUDA error: out of memory"),
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
        ):
            self.assertTrue(is_out_of_memory(error) and not is_fatal(error), error)
        self.assertFalse(
            is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        )
        self.assertTrue(
            is_fatal(lost("CUDA error: an illegal memory access")) or lost is RuntimeError
        )

    def test_what_a_failed_prefill_held_is_let_go_before_memory_is_given_back(self) -> None:
        held: list[weakref.ref[Any]] = []

        def prefill(*_: object) -> Iterator[None]:
            big = torch.zeros(1000)
            held.append(weakref.ref(big))
            raise torch.OutOfMemoryError("CUDA out of memory")
            yield

        clear = traceback.clear_frames

        def clear_and_note(*given: Any) -> None:
            clear(*given)
            alive.append(held[0]() is not None)

        alive: list[bool] = []
        self.bench.submit(0, PROMPTS[1], 4)
        with (
            mock.patch.object(self.bench.scheduler.model, "prefill", prefill),
            mock.patch("confide.worker.faults.traceback.clear_frames", clear_and_note),
        ):
            self.bench.run()
        self.assertEqual(self.bench.failure_kind(0), "out_of_memory")
        self.assertEqual(alive[-1:], [False])

    def test_memory_that_runs_out_while_an_adapter_is_loaded_leaves_running_ones_as_they_are(
        self,
    ) -> None:
        from confide.worker.adapters import PlainBank

        models = {
            name: self.bench.make(name, seed) for seed, name in enumerate(("first", "second"), 3)
        }

        def load(name: str) -> Adapter:
            return self.bench.adapters.load(name, "plain", {"path": str(self.bench.folder / name)})

        load("first")
        self.bench.submit(1, PROMPTS[0], 30, "first")
        with torch.inference_mode():
            for _ in range(8):
                self.bench.scheduler.run_round()
        stack = PlainBank.stack
        calls: list[Any] = []

        def third_fails(bank: PlainBank, *given: Any) -> Any:
            calls.append(given)
            if len(calls) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return stack(bank, *given)

        with (
            mock.patch.object(PlainBank, "stack", third_fails),
            self.assertRaises(torch.OutOfMemoryError),
        ):
            load("second")
        self.assertEqual(self.bench.run()[1], greedy(models["first"], PROMPTS[0], 30))
        load("second")
        self.bench.submit(2, PROMPTS[1], 10, "second")
        self.assertEqual(self.bench.run()[2], greedy(models["second"], PROMPTS[1], 10))

    def test_an_adapter_that_cannot_be_closed_is_forgotten_all_the_same(self) -> None:
        class Stuck:
            name = "stuck"

            def __init__(self) -> None:
                self.sites: dict[Site, Width] = {}

            def open(self) -> GenerationDeltas:
                raise NotImplementedError

            def close(self) -> None:
                raise RuntimeError("cuMemFree: invalid argument (1)")

        with mock.patch.object(self.bench.adapters, "check_site"):
            self.bench.adapters.attach("stuck", Stuck())
            self.bench.adapters.unload("stuck")
        self.assertEqual(self.bench.adapters.loaded, {})

    def test_a_cancelled_text_that_was_no_number_does_not_spoil_the_next_in_its_slot(self) -> None:
        bench = self.bench
        bench.submit(0, PROMPTS[0], 60)
        with torch.inference_mode():
            for _ in range(4):
                bench.scheduler.run_round()
            bench.scheduler.cache.values[:, :, 0].fill_(float("nan"))
            bench.scheduler.cancel(0)
        bench.submit(1, PROMPTS[1], 8)
        self.assertEqual(len(bench.run()[1]), 8)


if __name__ == "__main__":
    unittest.main()

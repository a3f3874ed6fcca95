"""The seam to the decode kernels: the same tokens, with and without adapters, on the CPU form and on a device."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import peft  # noqa: F401
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

PROMPTS = [list(range(5, 30)), [9, 8, 7], [44, 3, 90, 12]]


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch or no peft")
    if shutil.which("c++") is None and shutil.which("g++") is None:
        raise unittest.SkipTest("skipped: no C++ compiler")


class Seam(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def compare_decoders(self, names: list[str | None], **shape: object) -> None:
        from confide.worker.tests.test_adapters import Bench

        said = {}
        for decoder in ("torch", "kernels"):
            bench = Bench(self.folder / decoder, "qwen2", decoder=decoder)
            if any(names):
                bench.make("one", 1)
                bench.adapters.load("one", "plain", {"path": str(bench.folder / "one")})
            for number, (ids, name) in enumerate(zip(PROMPTS, names)):
                bench.submit(number, ids, 6 + 4 * number, name)
            said[decoder] = bench.run(120)
            self.assertEqual(bench.scheduler.stepper.kernels is not None, decoder == "kernels")
        self.assertEqual(said["kernels"], said["torch"])
        self.assertEqual([len(said["torch"][number]) for number in range(3)], [6, 10, 14])

    def test_every_shape_suits_them_and_more_heads_than_shared_memory_holds_do_not(self) -> None:
        from dataclasses import replace

        from confide.worker.config import SHAPES
        from confide.worker.kernels import is_supported

        for shape in SHAPES.values():
            self.assertTrue(is_supported(shape))
            self.assertFalse(is_supported(replace(shape, heads=10 * shape.kv_heads)))

    def test_greedy_tokens_are_those_of_the_torch_decoder(self) -> None:
        self.compare_decoders([None, None, None])

    def test_attention_by_the_kernel_is_that_of_torch_in_batches_beyond_the_kernels(self) -> None:
        from confide.worker.tests.test_adapters import Bench

        said = {}
        for form in ("fused", "kernel"):
            bench = Bench(self.folder / form, "qwen2", slots=12, decoder="kernels")
            stepper = bench.scheduler.stepper
            stepper.forms = {(12, context): form for context in stepper.contexts}
            for number in range(11):
                bench.submit(number, PROMPTS[number % 3][: 3 + number], 5 + number)
            said[form] = bench.run(120)
            self.assertEqual(bool(bench.built.model.kernel_attention.buffers), form == "kernel")
        self.assertEqual(said["kernel"], said["fused"])

    def test_plain_adapters_are_added_between_the_kernels(self) -> None:
        self.compare_decoders(["one", None, "one"])


if __name__ == "__main__":
    unittest.main()

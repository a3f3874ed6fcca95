"""What the stage `ring` times: kernels, not what the host does around them."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent.parent / "python")]

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    from confide.cuda import arrays, generator, runtime
    from confide.cuda import ring as cuda_ring
    from stages import ring


@unittest.skipIf(torch is None, "skipped: no torch")
class TheClock(unittest.TestCase):
    def test_runs_while_nothing_is_built_or_copied(self) -> None:
        context = cuda_ring.Context.dangerous_named("toy-256-q100-flood40", device="cpu")
        with mock.patch.object(ring, "SERVED", context.n):
            operations = ring.ring_operations(context, cpu=True)
        self.assertLessEqual({"scalar-products", "answers", "decrypt"}, operations.keys())
        for name, make in operations.items():
            work, _ = make()
            work()
            built = set(runtime._MODULES)
            with (
                self.subTest(operation=name),
                mock.patch.object(arrays, "upload", side_effect=AssertionError("a copy")),
                mock.patch.object(arrays, "to_host", side_effect=AssertionError("a copy")),
                mock.patch.object(generator, "upload_key", side_effect=AssertionError("a copy")),
                mock.patch.object(cuda_ring, "ScalarProducts", side_effect=AssertionError("built")),
            ):
                work()
            self.assertEqual(set(runtime._MODULES), built, f"{name} built a kernel")


if __name__ == "__main__":
    unittest.main()

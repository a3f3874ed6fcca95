"""The online step where arrays are torch tensors, without a CUDA device (torch_on_cpu.py)."""

from __future__ import annotations

import os
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None

import numpy as np

from confide.cuda import arrays
from confide.cuda.tests import test_online
from confide.cuda.tests.torch_on_cpu import OnTensors


@unittest.skipIf(torch is None, "no torch")
class Online(OnTensors, test_online.OnlineTest):
    """The online step again, every array a tensor."""

    def _wait(self, device: str) -> None:
        pass


@unittest.skipIf(torch is None, "no torch")
class Modes(unittest.TestCase):
    def test_what_was_made_in_inference_mode_is_wiped_and_written_outside(self) -> None:
        with torch.inference_mode():
            made = [torch.ones(4, dtype=torch.int64) for _ in range(3)]
            made.append(torch.ones(4, dtype=torch.int64).view(torch.uint64))
        arrays.wipe(made[0])
        arrays.wipe(made[1])
        arrays.copy(made[2][1:3], torch.zeros(2, dtype=torch.int64))
        arrays.wipe(made[3])
        left = [arrays.to_host(words).view(np.int64).tolist() for words in made]
        self.assertEqual(left, [[0] * 4, [0] * 4, [1, 0, 0, 1], [0] * 4])


if __name__ == "__main__":
    unittest.main()

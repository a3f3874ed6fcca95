"""The torch side of the ring's arrays without a CUDA device: tensors in the host's memory, kernels on the CPU."""

from __future__ import annotations

import os
import unittest
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None

import numpy as np

from confide.cuda import arrays, ring, runtime, tests
from confide.cuda.tests import test_ring, test_ring_ckks

# torch's other name for the host: arrays there are tensors.
DEVICE = "cpu:0"
MODULE = runtime.Module


def on_the_cpu(
    file: str, device: str, defines: dict[str, str | int] | None = None
) -> runtime.Module:
    """The CPU form of a file, for tensors of DEVICE."""
    assert device == DEVICE
    return MODULE(file, "cpu", defines)


class OnTensors(unittest.TestCase):
    """Runs a case's tests on DEVICE alone."""

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        with (
            mock.patch.object(runtime, "Module", on_the_cpu),
            mock.patch.object(tests, "devices", lambda: [DEVICE]),
            mock.patch.object(test_ring, "make_rng", make_rng_on_cpu),
            mock.patch.object(test_ring_ckks, "make_rng", make_rng_on_cpu),
        ):
            return super().run(result)


@unittest.skipIf(torch is None, "no torch")
class Exchange(OnTensors, test_ring.Exchange):
    """The walks again, every array a tensor."""


@unittest.skipIf(torch is None, "no torch")
class Layout(OnTensors, test_ring_ckks.Layout):
    """The seed's layout again, every array a tensor."""


@unittest.skipIf(torch is None, "no torch")
class Arrays(unittest.TestCase):
    def test_zeros_copies_and_columns_are_tensors_of_the_dtype(self) -> None:
        made = arrays.zeros((2, 3), "uint64", DEVICE)
        self.assertEqual(
            (made.dtype, arrays.empty(4, "uint32", DEVICE).dtype), (torch.uint64, torch.uint32)
        )
        given = arrays.to_device(np.arange(6, dtype=np.uint64), "uint64", DEVICE, "x", (6,))
        arrays.wipe(given)
        self.assertFalse(arrays.to_host(given).any())
        with self.assertRaises(TypeError):
            arrays.to_device(np.zeros(3, np.float32), "uint64", DEVICE, "x", (3,))
        with self.assertRaises(ValueError):
            arrays.to_device(np.zeros(3, np.int64), "uint64", DEVICE, "x", (4,))


def make_rng_on_cpu(byte: int, device: str) -> object:
    """As test_ring.make_rng; the generators that draw inputs stand next to the others."""
    return ring.Rng.from_seed(bytes([byte]) * 32, DEVICE)


if __name__ == "__main__":
    unittest.main()

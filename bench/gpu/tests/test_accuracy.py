"""The check of the masked step's integers finds none that is wrong, and finds a single one that is."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent.parent / "python")]

from typing import Any

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    from confide.cuda import online
    from device import Device
    from stages import accuracy


@unittest.skipIf(torch is None, "skipped: no torch")
class TheIntegers(unittest.TestCase):
    def test_of_the_kernels_are_the_exact_ones(self) -> None:
        self.assertEqual(accuracy.count_wrong_products(Device(cpu=True), 7), 0)

    def test_are_counted_where_one_differs_by_one(self) -> None:
        install = online.DevicePool.install

        def spoil(pool: Any, batch: int, prepared: Any, *keys: bytes) -> None:
            # A short vector's, whose products float32 holds to the last bit.
            prepared[4, 50] += 1
            install(pool, batch, prepared, *keys)

        with mock.patch.object(online.DevicePool, "install", spoil):
            self.assertEqual(accuracy.count_wrong_products(Device(cpu=True), 7), 1)


if __name__ == "__main__":
    unittest.main()

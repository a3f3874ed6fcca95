"""Races that an emulation of blocks one after the other would pass over are found from the accesses themselves."""

from __future__ import annotations

import os
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from confide.cuda import runtime

RACES = Path(__file__).parent / "races.cu"


class Races(unittest.TestCase):
    def setUp(self) -> None:
        self.enterContext(mock.patch.dict(os.environ, {"CONFIDE_CPU_RACES": "1"}))
        # Modules that were built without are not these.
        runtime._MODULES.clear()
        self.addCleanup(runtime._MODULES.clear)

    def test_barriers_atomics_and_launches_order_accesses(self) -> None:
        values = np.zeros(65, np.uint32)
        for _ in range(2):
            runtime.Module(RACES, "cpu").kernel("with_a_barrier")(2, 32, values)
        self.assertEqual((values[0], values[1], values[64]), (1, 0, 128))

    def test_what_nothing_orders_is_named(self) -> None:
        for name, blocks, told in (
            ("without_a_barrier", 1, "race in shared memory"),
            ("blocks_that_add", 2, "race in global memory .*block 0"),
            ("blocks_that_read", 2, "race in global memory .*block 0"),
            ("late_readers", 1, "race in global memory"),
        ):
            for order in ("", "reversed"):
                with (
                    self.subTest(kernel=name, order=order),
                    mock.patch.dict(os.environ, {"CONFIDE_CPU_ORDER": order}),
                    self.assertRaisesRegex(RuntimeError, told),
                ):
                    runtime.Module(RACES, "cpu").kernel(name)(blocks, 32, np.zeros(65, np.uint32))

    def test_one_block_alone_does_not_race_with_itself(self) -> None:
        for name in ("blocks_that_add", "blocks_that_read"):
            runtime.Module(RACES, "cpu").kernel(name)(1, 32, np.zeros(65, np.uint32))


if __name__ == "__main__":
    unittest.main()

"""Every kernel file compiles for the three architectures, without a GPU, and no kernel spills registers."""

from __future__ import annotations

import unittest

from confide.cuda import compile, nvrtc

try:
    nvrtc.library()
    MISSING = ""
except nvrtc.NvrtcMissing:
    MISSING = "no nvidia-cuda-nvrtc"


@unittest.skipIf(MISSING, MISSING)
class EveryKernel(unittest.TestCase):
    def test_compiles_for_each_architecture_and_none_spills(self) -> None:
        for arch in compile.ARCHITECTURES:
            for file in compile.files():
                for built in compile.build(file, arch):
                    with self.subTest(file=file, arch=arch, kernel=built.kernel, defines=built.defines):
                        self.assertIsNotNone(built.figures, "ptxas's figures are missing from the log")
                        self.assertEqual((built.figures.spill_stores, built.figures.spill_loads), (0, 0))


if __name__ == "__main__":
    unittest.main()

"""The driver's side of a launch, against a libcuda that records calls: no GPU is needed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confide.cuda import driver, nvrtc, source
from confide.cuda.tests import emulator

FOLDER = Path(__file__).parent
STREAM, FUNCTION = 0x7FFF00000040, 0x7FFF00000030

try:
    nvrtc.library()
    MISSING = ""
except nvrtc.NvrtcMissing:
    MISSING = "no nvidia-cuda-nvrtc"


@unittest.skipIf(MISSING, MISSING)
class Launches(unittest.TestCase):
    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        built = Path(folder, "libcuda.so")
        command = [
            emulator.compiler(),
            "-std=c++17",
            "-shared",
            "-fPIC",
            str(FOLDER / "driver_stub.cpp"),
            "-o",
            str(built),
        ]
        subprocess.run(command, check=True)
        self.stub = ctypes.CDLL(str(built))
        cuda = SimpleNamespace(
            init=lambda: None, get_device_capability=lambda ordinal: (9, 0), is_available=lambda: True,
            current_stream=lambda ordinal: SimpleNamespace(cuda_stream=STREAM),
            is_current_stream_capturing=lambda: False,
        )  # fmt: skip
        self.enterContext(mock.patch.dict(sys.modules, {"torch": SimpleNamespace(cuda=cuda)}))
        self.enterContext(mock.patch.object(driver, "library", lambda: self.stub))
        driver.primary_context.cache_clear()
        self.addCleanup(driver.primary_context.cache_clear)

    def kernel(self) -> driver.DeviceKernel:
        return driver.DeviceModule(source.read(FOLDER / "features.cu"), 0).kernel("sum")

    def read_launch(self) -> list[int]:
        return list((ctypes.c_uint64 * 16).in_dll(self.stub, "launched"))

    def number(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.in_dll(self.stub, name)

    def test_a_launch_hands_over_its_grid_stream_and_arguments(self) -> None:
        values: list[Any] = [ctypes.c_void_p(0x7FFF12345678), ctypes.c_uint64(1 << 63)]
        self.kernel().launch((70_000, 2, 3, 32, 4, 1), 1024, values)
        wanted = [
            70_000,
            2,
            3,
            32,
            4,
            1,
            1024,
            STREAM,
            FUNCTION,
            0,
            0,
            0,
            0x7FFF12345678,
            1 << 63,
            1,
        ]
        self.assertEqual(self.read_launch()[:15], wanted)
        self.assertEqual(self.number("pushed").value, 3)
        self.assertEqual(self.number("popped").value, 3)

    def test_overlap_is_asked_for_and_shared_memory_handed_over(self) -> None:
        values = [ctypes.c_void_p(1), ctypes.c_void_p(2)]
        self.kernel().launch((1, 1, 1, 32, 1, 1), 100_000, values, overlap=True)
        self.assertEqual(self.read_launch()[6:12], [100_000, STREAM, FUNCTION, 1, 6, 1])

    def test_a_loaded_kernel_may_use_all_shared_memory_that_its_static_part_leaves(self) -> None:
        self.kernel()
        self.assertEqual(self.number("shared_asked").value, 232_448 - 448)

    def test_failures_carry_the_driver_s_words(self) -> None:
        kernel = self.kernel()
        self.number("fail_with").value = 700
        values = [ctypes.c_void_p(1), ctypes.c_void_p(2)]
        with self.assertRaisesRegex(
            driver.CudaError, "launch sum .*: an illegal memory access was encountered"
        ):
            kernel.launch((1, 1, 1, 32, 1, 1), 0, values)
        with self.assertRaisesRegex(driver.CudaError, "load features.cu"):
            self.kernel()

    def test_the_switch_waits_after_each_launch(self) -> None:
        values = [ctypes.c_void_p(1), ctypes.c_void_p(2)]
        kernel = self.kernel()
        kernel.launch((1, 1, 1, 32, 1, 1), 0, values)
        self.assertEqual(self.number("synchronized").value, 0)
        with mock.patch.dict("os.environ", {"CONFIDE_CUDA_SYNC": "1"}):
            kernel.launch((1, 1, 1, 32, 1, 1), 0, values)
        self.assertEqual(self.number("synchronized").value, 1)


if __name__ == "__main__":
    unittest.main()

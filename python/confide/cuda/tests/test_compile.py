"""What a compile check finds: every kernel file passes it, and each kind of fault fails it. No GPU is needed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from confide.cuda import compile, nvrtc, source
from confide.cuda.decode import GROUP_MAX

try:
    nvrtc.library()
    MISSING = ""
except nvrtc.NvrtcMissing:
    MISSING = "no nvidia-cuda-nvrtc"

KERNEL = 'extern "C" __global__ void __launch_bounds__(1024, 2) one(float *values) {{ {} }}\n'
# More values at once than 32 registers hold.
SPILLS = """
    float held[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) held[i] = values[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) values[i * 1024 + threadIdx.x] = held[63 - i] * held[(i * 7) % 64];
"""
LOCAL = """
    float held[64] = {};
    for (int i = 0; i < 64; i++) held[int(values[i]) & 63] += values[i];
    for (int i = 0; i < 64; i++) values[i] = held[i];
"""


@unittest.skipIf(MISSING, MISSING)
class Checks(unittest.TestCase):
    def check(self, text: str, *more: str) -> tuple[int, str]:
        """The exit status for a file of this text, and what was said."""
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
            path = Path(folder, "kernels.cu")
            path.write_text(text)
            with contextlib.redirect_stderr(said):
                status = compile.main(["--arch", "sm_90", *more, str(path)])
        return status, said.getvalue()

    def test_every_kernel_of_the_package_passes(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = compile.main(["--check"])
        self.assertEqual(status, 0, said.getvalue())
        for file in compile.kernel_files():
            for arch in compile.ARCHITECTURES:
                self.assertRegex(said.getvalue(), f"{arch} +{file} ")

    def test_attention_has_room_for_as_many_heads_as_a_step_takes(self) -> None:
        for head, element in ((8, "float"), (64, "bf16"), (128, "bf16"), (256, "float")):
            with self.subTest(head=head):
                read = source.read(
                    "attention.cu", {"ELEMENT": element, "GROUP": GROUP_MAX, "HEAD_DIM": head}
                )
                figures = nvrtc.parse_kernel_resources(nvrtc.build_cubin(read, "sm_90")[1])[
                    "attention"
                ]
                self.assertEqual((figures.spill_stores, figures.stack), (0, 0))

    def test_a_clean_kernel_passes(self) -> None:
        status, said = self.check(KERNEL.format("values[threadIdx.x] *= 2;"), "--check")
        self.assertEqual(status, 0, said)

    def test_spills_local_arrays_and_warnings_fail_the_check_alone(self) -> None:
        for body, told in (
            (SPILLS, "[1-9][0-9]* spilled"),
            (LOCAL, "[1-9][0-9]* local"),
            ("int unused;", "warning"),
        ):
            with self.subTest(told=told):
                status, said = self.check(KERNEL.format(body), "--check")
                self.assertEqual(status, 1, said)
                self.assertRegex(said, told)
                self.assertEqual(self.check(KERNEL.format(body))[0], 0)

    def test_errors_and_unknown_architectures_always_fail(self) -> None:
        self.assertEqual(self.check(KERNEL.format("values[0] = absent;"))[0], 1)
        self.assertEqual(self.check(KERNEL.format(""), "--arch", "sm_12")[0], 1)
        # ptxas's own: more shared memory than a block may have.
        self.assertEqual(self.check(KERNEL.format("__shared__ float big[13000]; big[threadIdx.x] = *values;"
                                                  "__syncthreads(); *values = big[5];"))[0], 1)  # fmt: skip

    def test_kernels_that_are_overlooked_fail_the_check(self) -> None:
        unread = 'extern "C" __global__ void two(float *values) { *values = 1; }\n'
        with mock.patch.object(source, "_KERNEL", re.compile("(never)(found)")):
            status, said = self.check(unread, "--check")
        self.assertEqual(status, 1)
        self.assertIn("kernel two was not found in the source", said)
        self.assertIn("no kernel was found", said)

    def test_a_cubin_is_compiled_once_and_a_broken_one_again(self) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict("os.environ", {"CONFIDE_CACHE": folder}),
        ):
            read = source.read("embed.cu")
            binary, log = nvrtc.build_cubin(read, "sm_90")
            with mock.patch.object(
                nvrtc, "compile_cubin", side_effect=AssertionError("compiled again")
            ):
                self.assertEqual(nvrtc.build_cubin(read, "sm_90"), (binary, log))
            # What was built on another machine is found whatever NVRTC is here, and wherever its sources lie.
            brought, elsewhere = Path(folder, "brought"), Path(folder, "elsewhere")
            brought.mkdir(mode=0o700)
            nvrtc.export_cubin(read, "sm_90", brought)
            shutil.copytree(source.FOLDER, elsewhere, ignore=shutil.ignore_patterns("tests"))
            moved = source.read(elsewhere / "embed.cu")
            with (
                mock.patch.dict("os.environ", {"CONFIDE_CUBINS": str(brought)}),
                mock.patch.object(nvrtc, "library", side_effect=nvrtc.NvrtcMissing("none")),
            ):
                self.assertEqual(nvrtc.build_cubin(moved, "sm_90"), (binary, log))
                with self.assertRaises(nvrtc.NvrtcMissing):
                    nvrtc.build_cubin(moved, "sm_100")
            os.chmod(brought, 0o777)
            with (
                mock.patch.dict("os.environ", {"CONFIDE_CUBINS": str(brought)}),
                self.assertRaises(PermissionError),
            ):
                nvrtc.build_cubin(read, "sm_90")
            (kept,) = Path(folder, "kernels").glob("*.cubin")
            kept.write_bytes(b"")
            self.assertEqual(nvrtc.build_cubin(read, "sm_90")[0], binary)
            self.assertEqual(
                len(list(Path(folder, "kernels").iterdir())), 2, "a temporary file was left"
            )


if __name__ == "__main__":
    unittest.main()

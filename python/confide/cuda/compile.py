"""`python -m confide.cuda.compile --arch sm_80,sm_90,sm_100 [--check]`: every kernel file through NVRTC, without a GPU.

Prints registers, static shared bytes, spills and local arrays of each kernel. With --check these are errors: a
warning, a kernel that spills or keeps an array in local memory, one that the log or our reading of the file lacks.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from . import nvrtc, source

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
_WARNING = re.compile(r"\bwarning\b(?! can be suppressed)")


class CompiledKernel(NamedTuple):
    """One kernel of one file, variant and architecture."""

    file: str
    defines: dict[str, str]
    arch: str
    kernel: str
    figures: nvrtc.KernelResources | None


def kernel_files() -> list[str]:
    """Lists the names of this package's kernel files."""
    return sorted(path.name for path in source.FOLDER.glob("*.cu"))


def build(file: str, arch: str) -> Iterator[CompiledKernel]:
    """Compiles each variant of `file`; yields its kernels with ptxas's figures (None if the log has none)."""
    for defines in source.variants(file):
        yield from _kernels(file, defines, arch)[0]


def _kernels(
    file: str, defines: dict[str, str], arch: str
) -> tuple[list[CompiledKernel], list[str]]:
    """Compiles one variant; gives its kernels and its faults: the compiler's warnings, overlooked kernels."""
    read = source.read(file, defines)
    _, log = nvrtc.build_cubin(read, arch)
    figures, name = nvrtc.parse_kernel_resources(log), Path(file).name
    found = [
        CompiledKernel(name, defines, arch, kernel, figures.get(kernel)) for kernel in read.kernels
    ]
    wrong = [line for line in log.splitlines() if _WARNING.search(line)]
    wrong += [
        f"{name}: kernel {kernel} was not found in the source"
        for kernel in figures
        if kernel not in read.kernels
    ]
    return found, wrong if found else [*wrong, f"{name}: no kernel was found"]


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; exit status 0: all compiled, and with --check nothing was wrong; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m confide.cuda.compile", description=__doc__)
    parser.add_argument(
        "--arch", default=",".join(ARCHITECTURES), help="comma-separated, such as sm_80,sm_90"
    )
    parser.add_argument(
        "--check", action="store_true", help="warnings, spills and local arrays are errors"
    )
    parser.add_argument("files", nargs="*", help="kernel files; by default all of this package")
    given = parser.parse_args(arguments)
    print(f"NVRTC {'.'.join(map(str, nvrtc.version()))}")
    named = [str(Path(file).resolve()) for file in given.files] or kernel_files()
    wanted = [(file, defines, arch) for arch in given.arch.split(",") for file in named
              for defines in source.variants(file)]  # fmt: skip
    # ctypes lets go of the interpreter while NVRTC works.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        wrong = sum(
            pool.map(lambda one: _compile_and_print(one[0], one[1], one[2], given.check), wanted)
        )
    return 1 if wrong else 0


def _compile_and_print(file: str, defines: dict[str, str], arch: str, check: bool) -> int:
    """Compiles one variant and prints what came of it; gives the number of faults."""
    try:
        found, wrong = _kernels(file, defines, arch)
    except nvrtc.CompileError as error:
        print(error, file=sys.stderr)
        return 1
    for line in wrong if check else []:
        print(f"{arch} {line}", file=sys.stderr)
    return sum(_print(built) for built in found) * check + len(wrong) * check


def _print(built: CompiledKernel) -> int:
    defines = " ".join(f"{name}={value}" for name, value in built.defines.items())
    shown = f"{built.arch:7} {built.file:16} {built.kernel:28} {defines:32}"
    figures = built.figures
    if figures is None:
        print(f"{shown} no figures in the log")
        return 1
    spilled = figures.spill_stores + figures.spill_loads
    print(
        f"{shown} {figures.registers:3} registers {figures.shared:6} shared bytes {spilled:4} spilled bytes"
        f" {figures.stack:4} local bytes"
    )
    return int(spilled + figures.stack > 0)


if __name__ == "__main__":
    sys.exit(main())

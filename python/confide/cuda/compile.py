"""`python -m confide.cuda.compile --arch sm_80,sm_90,sm_100 [--check]`: every kernel file through NVRTC, without a GPU.

Prints registers, static shared bytes and spills of each kernel. With --check a kernel that spills is an error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

from . import nvrtc, source

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


class Built(NamedTuple):
    """One kernel of one file, variant and architecture."""

    file: str
    defines: dict[str, str]
    arch: str
    kernel: str
    figures: nvrtc.Figures | None


def files() -> list[str]:
    """The names of this package's kernel files."""
    return sorted(path.name for path in source.FOLDER.glob("*.cu"))


def build(file: str, arch: str) -> Iterator[Built]:
    """Compiles each variant of `file`; yields its kernels with ptxas's figures (None where the log has none)."""
    for defines in source.variants(file):
        read = source.read(file, defines)
        _, log = nvrtc.compile_cubin(read, arch)
        figures = nvrtc.figures(log)
        for kernel in read.kernels:
            yield Built(Path(file).name, defines, arch, kernel, figures.get(kernel))


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: all compiled, and with --check none spills; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m confide.cuda.compile", description=__doc__)
    parser.add_argument("--arch", default=",".join(ARCHITECTURES), help="comma-separated, such as sm_80,sm_90")
    parser.add_argument("--check", action="store_true", help="a kernel that spills registers is an error")
    parser.add_argument("files", nargs="*", help="kernel files; by default all of this package")
    given = parser.parse_args(arguments)
    wrong = 0
    print(f"NVRTC {'.'.join(map(str, nvrtc.version()))}")
    for arch in given.arch.split(","):
        for file in [Path(named).resolve() for named in given.files] or files():
            try:
                for built in build(file, arch):
                    wrong += _print(built, given.check)
            except nvrtc.CompileError as error:
                print(error, file=sys.stderr)
                wrong += 1
    return 1 if wrong else 0


def _print(built: Built, check: bool) -> int:
    defines = " ".join(f"{name}={value}" for name, value in built.defines.items())
    shown = f"{built.arch:7} {built.file:16} {built.kernel:28} {defines:32}"
    if built.figures is None:
        print(f"{shown} no figures in the log")
        return int(check)
    spilled = built.figures.spill_stores + built.figures.spill_loads
    print(
        f"{shown} {built.figures.registers:3} registers {built.figures.shared:6} shared bytes"
        f" {spilled:4} spilled bytes"
    )
    return int(check and spilled > 0)


if __name__ == "__main__":
    sys.exit(main())

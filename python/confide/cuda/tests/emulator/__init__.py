"""The CPU form of a kernel file: compiled once by the host's C++ compiler, loaded as a library, launched by ctypes.

A test tool of the checkout by its place: no wheel has it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confide.cuda import cache
from confide.cuda.nvrtc import CompileError
from confide.cuda.source import FOLDER, Source

FLAGS = [
    "-x",
    "c++",
    "-std=c++17",
    "-O2",
    "-g0",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
]
_RACES_SOURCE = Path(__file__).resolve().parent / "races.cpp"
# With $CONFIDE_CPU_RACES=1 each access is told to races.cpp, and a launch with a race fails.
RACES = ["-fsanitize=thread", "-DCONFIDE_RACES", "-O1"]
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?"
    r"((?:unsigned\s+|signed\s+)?[\w:]+(?:\s+long)*)\s+(\w+)\s*\[\s*\]\s*;"
)


@functools.cache
def compiler() -> str:
    """The host's C++ compiler: $CXX, or the first of c++, g++, clang++."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if found := shutil.which(name):
            return found
    raise CompileError("c++ compiler: wanted $CXX, c++, g++ or clang++, found none")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run(
        [compiler(), "--version"], capture_output=True, text=True, check=True
    ).stdout


def load(source: Source) -> ctypes.CDLL:
    """The library of `source`, built where the cache has none of this digest."""
    flags = [*FLAGS, *(RACES if os.environ.get("CONFIDE_CPU_RACES") == "1" else [])]
    key = hashlib.sha256(
        "\0".join([source.digest, _RACES_SOURCE.read_text(), _compiler_version(), *flags]).encode()
    ).hexdigest()
    path = cache.kernel_cache_folder() / f"{source.path.stem}-{key[:32]}.so"
    if not path.is_file():
        _build(source, path, flags)
    return ctypes.CDLL(str(path))


def _rewrite(source: Source) -> str:
    """The text for a host compiler: dynamic shared memory becomes a pointer, each kernel gets its launcher."""
    text = _DYNAMIC_SHARED.sub(
        r"\1 *\2 = reinterpret_cast<\1 *>(confide_cpu::dynamic_shared);", source.text
    )
    launchers = "".join(f"CONFIDE_KERNEL({name})\n" for name in source.kernels)
    return f'#line 1 "{source.path}"\n{text}\n{launchers}'


def _build(source: Source, path: Path, flags: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        text, built = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        text.write_text(_rewrite(source))
        includes = [f"-I{source.path.parent}", f"-I{FOLDER}"]
        defines = [f"-D{name}={value}" for name, value in source.defines]
        objects = [_compile(source, text, [*flags, *includes, *defines])]
        if "-DCONFIDE_RACES" in flags:
            objects.append(_compile(source, _RACES_SOURCE, FLAGS, Path(folder, "races.o")))
        # Linked without the sanitizer's runtime: races.cpp stands in for it.
        _run(source, ["-shared", *map(str, objects), "-o", str(built)])
        # Two processes may build the same file: the rename lets either win whole.
        os.replace(built, path)


def _compile(source: Source, text: Path, flags: list[str], made: Path | None = None) -> Path:
    made = made or text.with_suffix(".o")
    _run(source, [*flags, "-c", str(text), "-o", str(made)])
    return made


def _run(source: Source, arguments: list[str]) -> None:
    done = subprocess.run([compiler(), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(
            f"{source.path.name} for the cpu with {dict(source.defines)}:\n{done.stderr}"
        )


class HostKernel:
    """One kernel of a library: `launch` runs the whole grid and returns when it has ended."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self._run = getattr(library, f"confide_run_{name}")
        self._run.restype = ctypes.c_char_p
        sizes = getattr(library, f"confide_parameters_{name}")
        sizes.restype = ctypes.POINTER(ctypes.c_uint32)
        listed = sizes()
        self.parameter_bytes: list[int] = []
        while listed[len(self.parameter_bytes)]:
            self.parameter_bytes.append(listed[len(self.parameter_bytes)])

    def launch(
        self,
        dims: tuple[int, ...],
        shared: int,
        values: Sequence[ctypes._SimpleCData[Any]],
        overlap: bool = False,
    ) -> None:
        """dims: the grid's three, the block's three. $CONFIDE_CPU_ORDER=reversed runs threads and blocks backwards."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        order = 1 if os.environ.get("CONFIDE_CPU_ORDER") == "reversed" else 0
        fault = self._run(pointers, (ctypes.c_uint32 * 6)(*dims), ctypes.c_size_t(shared), order)
        if fault:
            raise RuntimeError(f"kernel {self.name} on the cpu: {fault.decode()}")

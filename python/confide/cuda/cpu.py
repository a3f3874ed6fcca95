"""The CPU form of a kernel file: compiled once by the host's C++ compiler, loaded as a library, launched by ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import cache
from .nvrtc import CompileError
from .source import FOLDER, Source, for_host

FLAGS = ["-x", "c++", "-std=c++17", "-O2", "-g0", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]


@functools.cache
def compiler() -> str:
    """The host's C++ compiler: $CXX, or the first of c++, g++, clang++."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if found := shutil.which(name):
            return found
    raise CompileError("c++ compiler: wanted $CXX, c++, g++ or clang++, found none")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def load(source: Source) -> ctypes.CDLL:
    """The library of `source`, built where the cache has none of this digest."""
    key = hashlib.sha256("\0".join([source.digest, _compiler_version(), *FLAGS]).encode()).hexdigest()
    path = cache.folder() / f"{source.path.stem}-{key[:32]}.so"
    if not path.is_file():
        _build(source, path)
    return ctypes.CDLL(str(path))


def _build(source: Source, path: Path) -> None:
    command = [compiler(), *FLAGS, f"-I{source.path.parent}", f"-I{FOLDER}"]
    command += [f"-D{name}={value}" for name, value in source.defines]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        text, built = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        text.write_text(for_host(source))
        done = subprocess.run([*command, str(text), "-o", str(built)], capture_output=True, text=True)
        if done.returncode != 0:
            raise CompileError(f"{source.path.name} for the cpu with {dict(source.defines)}:\n{done.stderr}")
        # Two processes may build the same file: the rename lets either win whole.
        os.replace(built, path)


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
        self, dims: tuple[int, ...], shared: int, values: list[ctypes._SimpleCData], overlap: bool = False
    ) -> None:
        """dims: the grid's three, the block's three. $CONFIDE_CPU_ORDER=reversed runs threads and blocks backwards."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        order = 1 if os.environ.get("CONFIDE_CPU_ORDER") == "reversed" else 0
        fault = self._run(pointers, (ctypes.c_uint32 * 6)(*dims), ctypes.c_size_t(shared), order)
        if fault:
            raise RuntimeError(f"kernel {self.name} on the cpu: {fault.decode()}")

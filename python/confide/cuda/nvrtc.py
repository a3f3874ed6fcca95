"""NVRTC by ctypes: a .cu file to a cubin for one architecture, with ptxas's figures; needs no GPU and no torch."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import cache
from .source import FOLDER, Source

_ELF = b"\x7fELF"


class NvrtcMissing(RuntimeError):
    """No libnvrtc was found on this machine."""


class CompileError(RuntimeError):
    """A compiler refused a kernel file; the message holds its log."""


@dataclass(frozen=True)
class KernelResources:
    """What ptxas says of a kernel: registers a thread, shared bytes a block, spilled and stack bytes a thread."""

    registers: int
    shared: int
    spill_stores: int
    spill_loads: int
    stack: int


@functools.cache
def library() -> ctypes.CDLL:
    """Loads libnvrtc from $CONFIDE_NVRTC, nvidia's wheels, torch, the loader or a CUDA toolkit, in this order."""
    for candidate in _candidates():
        try:
            found = ctypes.CDLL(str(candidate))
        except OSError:
            continue
        _load_builtins(Path(candidate))
        return found
    raise NvrtcMissing(
        "libnvrtc: wanted the wheel nvidia-cuda-nvrtc, torch's CUDA build or a toolkit, found none"
    )


def _load_builtins(beside: Path) -> None:
    """NVRTC opens its builtins by name. The wheels of 13.0 do not say where they are, so they are opened before."""
    for library in (
        sorted(beside.parent.glob("libnvrtc-builtins.so*")) if beside.is_absolute() else []
    ):
        try:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue


def version() -> tuple[int, int]:
    """Gives NVRTC's version, such as (13, 0)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def options(source: Source, arch: str) -> list[str]:
    """Lists NVRTC's options. `--fmad` stays on: exact steps use the _rn intrinsics."""
    folders = dict.fromkeys((source.path.parent, FOLDER))
    return _fixed_options(source, arch) + [f"--include-path={folder}" for folder in folders]


def _fixed_options(source: Source, arch: str) -> list[str]:
    """Those that are the same wherever the sources lie; what is included is in the source's digest."""
    fixed = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
    return fixed + [f"--define-macro={name}={value}" for name, value in source.defines]


def compile_cubin(source: Source, arch: str) -> tuple[bytes, str]:
    """Compiles `source` for `arch` (such as "sm_90"); gives the cubin and the log of NVRTC and ptxas."""
    nvrtc = library()
    program = ctypes.c_void_p()
    told = [option.encode() for option in options(source, arch)]
    array = (ctypes.c_char_p * len(told))(*told)
    name, text = source.path.name.encode(), source.text.encode()
    _check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None),
        "nvrtcCreateProgram",
    )
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(told), array)
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != 0:
            raise CompileError(
                f"{source.path.name} for {arch} with {dict(source.defines)}: {_name(status)}\n{log}"
            )
        return _bytes(program, "CUBIN"), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def build_cubin(source: Source, arch: str) -> tuple[bytes, str]:
    """Gives what `compile_cubin` gives: from the folder of cubins that were brought along (`cache.cubin_folder`),
    whichever NVRTC compiled them, or from the cache where the same options and this NVRTC compiled it before.
    """
    if (brought := cache.cubin_folder()) and (
        found := _read_pair(brought / cubin_name(source, arch))
    ):
        return found
    path = cache.kernel_cache_folder() / cubin_name(source, arch, repr(version()))
    if found := _read_pair(path):
        return found
    binary, log = compile_cubin(source, arch)
    _put_pair(path, binary, log)
    return binary, log


def export_cubin(source: Source, arch: str, folder: Path) -> None:
    """Puts the cubin of `source` into a folder for another machine, whose $CONFIDE_CUBINS names it there."""
    _put_pair(folder / cubin_name(source, arch), *build_cubin(source, arch))


def cubin_name(source: Source, arch: str, compiler: str = "") -> str:
    """The name of a cubin's file: the same for the same sources, options and compiler, wherever the sources lie."""
    parts = [source.digest, compiler, *_fixed_options(source, arch)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{source.path.stem}-{arch}-{key[:32]}.cubin"


def _read_pair(path: Path) -> tuple[bytes, str] | None:
    """Reads a cubin and its compiler's log; None if one of them is missing or the cubin is broken."""
    log = path.with_suffix(".log")
    if path.is_file() and log.is_file() and (binary := path.read_bytes()).startswith(_ELF):
        return binary, log.read_text()
    return None


def _put_pair(path: Path, binary: bytes, log: str) -> None:
    cache.write_atomically(path.with_suffix(".log"), log.encode())
    cache.write_atomically(path, binary)


def parse_kernel_resources(log: str) -> dict[str, KernelResources]:
    """Returns ptxas's figures for each kernel named in the log; empty if this NVRTC does not pass them on."""
    found: dict[str, KernelResources] = {}
    parts = re.split(r"Compiling entry function '(\w+)'", log)[1:]
    for name, part in zip(parts[::2], parts[1::2]):
        spills = re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part
        )
        used = re.search(r"Used (\d+) registers", part)
        shared = re.search(r"(\d+) bytes smem", part)
        stack, stores, loads = (int(number) for number in spills.groups()) if spills else (0, 0, 0)
        registers = int(used.group(1)) if used else 0
        found[name] = KernelResources(
            registers, int(shared.group(1)) if shared else 0, stores, loads, stack
        )
    return found


def _candidates() -> Iterator[Path | str]:
    if given := os.environ.get("CONFIDE_NVRTC"):
        yield given
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            libraries = sorted(
                Path(folder).rglob("libnvrtc.so*"), key=lambda path: path.name, reverse=True
            )
            # The wheels keep an alternative build next to the right one; it lacks its builtins.
            yield from (path for path in libraries if ".alt." not in path.name)
    if named := ctypes.util.find_library("nvrtc"):
        yield named
    yield from sorted(Path("/usr/local/cuda/lib64").glob("libnvrtc.so*"), reverse=True)


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(
        getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)),
        f"nvrtcGet{what}Size",
    )
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
    return buffer.raw


def _name(status: int) -> str:
    library().nvrtcGetErrorString.restype = ctypes.c_char_p
    return (library().nvrtcGetErrorString(status) or b"unknown error").decode()


def _check(status: int, call: str) -> None:
    if status != 0:
        raise RuntimeError(f"{call}: {_name(status)}")

"""Words of 64 bits that two processes on one device share: CUDA IPC on "cuda:N", a mapped file on "cpu".

Memory from cuMemAlloc, not from torch's allocator, whose blocks hold other tensors too, and in whole blocks of the
driver's: the other process sees these words and no more of this one's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy

from . import driver

HANDLE_BYTES = 64
# What the driver shares with another process is a block of this size, whatever else was put into it.
BLOCK_BYTES = 2 << 20
_LAZY_ENABLE_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


class _DeviceMemory:
    """Device memory as torch takes it in without a copy."""

    def __init__(self, pointer: int, words: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (words,),
            "typestr": "<i8",
            "data": (pointer, False),
            "version": 3,
        }


class SharedWords:
    """`words`: int64 [count] on the device (uint64 in numpy on "cpu"). The maker frees it; who opened it lets go."""

    def __init__(
        self, device: str, path: Path, count: int, handle: bytes | None = None, make: bool = True
    ) -> None:
        """make: here is where the memory is made; else it is opened, by its `handle` or, on "cpu", by its path."""
        self.device, self.count, self._made, self.handle = device, count, make, handle or b""
        if device == "cpu":
            if make:
                with path.open("xb") as file:
                    file.truncate(8 * count)
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 8 * count)
            self.words: Any = numpy.frombuffer(self._map, numpy.uint64)
            return
        import torch

        self._ordinal, library = int(device.partition(":")[2] or 0), driver.library()
        pointer = ctypes.c_uint64()
        with driver.CurrentContext(self._ordinal):
            if make:
                whole = ctypes.c_size_t(-(-8 * count // BLOCK_BYTES) * BLOCK_BYTES)
                driver.check(library.cuMemAlloc_v2(ctypes.byref(pointer), whole), "cuMemAlloc")
                found = _Handle()
                driver.check(
                    library.cuIpcGetMemHandle(ctypes.byref(found), pointer), "cuIpcGetMemHandle"
                )
                self.handle = bytes(found.bytes)
            else:
                if len(self.handle) != HANDLE_BYTES:
                    raise ValueError(
                        f"memory handle: wanted {HANDLE_BYTES} bytes, got {len(self.handle)}"
                    )
                given = _Handle((ctypes.c_ubyte * HANDLE_BYTES).from_buffer_copy(self.handle))
                opened = library.cuIpcOpenMemHandle_v2(
                    ctypes.byref(pointer), given, _LAZY_ENABLE_PEER_ACCESS
                )
                driver.check(opened, "cuIpcOpenMemHandle")
        self._pointer = pointer.value
        self.words = torch.as_tensor(_DeviceMemory(self._pointer, count), device=device)
        if make:
            self.words.zero_()
            # Before anybody else can write there.
            torch.cuda.current_stream(self._ordinal).synchronize()

    def close(self) -> None:
        """Gives the memory back. Nothing may still use `words`."""
        self.words = None
        if self.device == "cpu":
            # Views of it may live on; they end with the process.
            with contextlib.suppress(BufferError):
                self._map.close()
            return
        library, pointer = driver.library(), ctypes.c_uint64(self._pointer)
        with driver.CurrentContext(self._ordinal):
            if self._made:
                driver.check(library.cuMemFree_v2(pointer), "cuMemFree")
            else:
                driver.check(library.cuIpcCloseMemHandle(pointer), "cuIpcCloseMemHandle")

"""CUDA's driver API by ctypes: load a cubin, launch on torch's current stream. torch owns the context."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

from . import nvrtc
from .source import Source

# CUdevice_attribute, CUfunction_attribute and CUlaunchAttributeID (cuda.h).
MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
SHARED_SIZE_BYTES, MAX_DYNAMIC_SHARED_SIZE_BYTES = 1, 8
PROGRAMMATIC_STREAM_SERIALIZATION = 6


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, and a union of 64 bytes of which the first four are the number meant here."""

    _fields_ = [
        ("id", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    ]


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = [
        ("dims", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


_OVERLAP = _Attribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=1)


class CudaError(RuntimeError):
    """A call of the driver failed."""


@functools.cache
def library() -> ctypes.CDLL:
    """Returns libcuda of the installed driver."""
    return ctypes.CDLL("libcuda.so.1")


def check(status: int, call: str) -> None:
    """Raises CudaError with the driver's own words where `status` is not CUDA_SUCCESS."""
    if status == 0:
        return
    text = ctypes.c_char_p()
    library().cuGetErrorString(status, ctypes.byref(text))
    raise CudaError(f"{call}: {(text.value or b'unknown error').decode()} ({status})")


@functools.cache
def primary_context(ordinal: int) -> ctypes.c_void_p:
    """The primary context of device `ordinal`, the one that torch works in; kept for the life of the process."""
    import torch

    torch.cuda.init()
    device, held = ctypes.c_int(), ctypes.c_void_p()
    check(library().cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    check(
        library().cuDevicePrimaryCtxRetain(ctypes.byref(held), device), "cuDevicePrimaryCtxRetain"
    )
    return held


class CurrentContext:
    """The device's context made current for the calls inside."""

    def __init__(self, ordinal: int) -> None:
        self._wanted = primary_context(ordinal)
        self._pushed = False

    def __enter__(self) -> None:
        now = ctypes.c_void_p()
        check(library().cuCtxGetCurrent(ctypes.byref(now)), "cuCtxGetCurrent")
        if now.value != self._wanted.value:
            check(library().cuCtxPushCurrent_v2(self._wanted), "cuCtxPushCurrent")
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            check(library().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())), "cuCtxPopCurrent")


def architecture(ordinal: int) -> str:
    """The architecture of device `ordinal`, such as "sm_90"."""
    import torch

    major, minor = torch.cuda.get_device_capability(ordinal)
    return f"sm_{major}{minor}"


def load_or_compile_cubin(source: Source, arch: str) -> bytes:
    """Gives the cubin of `source`, from the cache where the same options and NVRTC compiled it before."""
    return nvrtc.build_cubin(source, arch)[0]


class DeviceModule:
    """A cubin loaded on device `ordinal`; lives as long as the process, since graphs may hold its kernels."""

    def __init__(self, source: Source, ordinal: int) -> None:
        self.ordinal = ordinal
        self._binary = load_or_compile_cubin(source, architecture(ordinal))
        self._handle = ctypes.c_void_p()
        with CurrentContext(ordinal):
            check(
                library().cuModuleLoadData(ctypes.byref(self._handle), self._binary),
                f"load {source.path.name}",
            )

    def kernel(self, name: str) -> DeviceKernel:
        """The kernel `name`, loaded now: a first use inside a graph's capture must not load."""
        function = ctypes.c_void_p()
        with CurrentContext(self.ordinal):
            check(
                library().cuModuleGetFunction(ctypes.byref(function), self._handle, name.encode()),
                f"find {name}",
            )
            if hasattr(library(), "cuFuncLoad"):
                check(library().cuFuncLoad(function), f"load {name}")
            _allow_shared_memory(function, self.ordinal, name)
        return DeviceKernel(name, function, self.ordinal)


def _allow_shared_memory(function: ctypes.c_void_p, ordinal: int, name: str) -> None:
    """Allows a kernel all shared memory that a block of the device can have; unasked it may use 48 KiB.

    Once, when it is loaded: two threads that asked for different sizes at a launch could leave the smaller one.
    """
    device, block_bytes, static_bytes = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    check(library().cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    check(
        library().cuDeviceGetAttribute(
            ctypes.byref(block_bytes), MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device
        ),
        "cuDeviceGetAttribute",
    )
    check(
        library().cuFuncGetAttribute(ctypes.byref(static_bytes), SHARED_SIZE_BYTES, function),
        f"{name}: cuFuncGetAttribute",
    )
    dynamic_bytes = block_bytes.value - static_bytes.value
    check(
        library().cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_bytes),
        f"{name}: {dynamic_bytes} bytes of shared memory",
    )


class DeviceKernel:
    """A kernel on a device. A launch asks nothing of the host but its own queueing, so it can be captured."""

    def __init__(self, name: str, function: ctypes.c_void_p, ordinal: int) -> None:
        self.name, self._function, self._ordinal = name, function, ordinal

    def launch(
        self,
        dims: tuple[int, ...],
        shared: int,
        values: Sequence[ctypes._SimpleCData[Any]],
        overlap: bool = False,
    ) -> None:
        """dims: the grid's three, the block's three. With $CONFIDE_CUDA_SYNC=1 each launch waits and reports faults.

        overlap: the blocks may take their places before the kernel ahead in the stream has ended (sm_90 on); this
        kernel and that one must be written for it (stream.cuh).
        """
        import torch

        stream = ctypes.c_void_p(torch.cuda.current_stream(self._ordinal).cuda_stream)
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        with CurrentContext(self._ordinal):
            attributes = ctypes.pointer(_OVERLAP) if overlap else None
            config = _LaunchConfig(
                (ctypes.c_uint * 6)(*dims), shared, stream, attributes, int(overlap)
            )
            status = library().cuLaunchKernelEx(
                ctypes.byref(config), self._function, pointers, None
            )
            check(
                status,
                f"launch {self.name} with grid {dims[:3]}, block {dims[3:]}, shared {shared}",
            )
            if (
                os.environ.get("CONFIDE_CUDA_SYNC") == "1"
                and not torch.cuda.is_current_stream_capturing()
            ):
                check(library().cuStreamSynchronize(stream), f"kernel {self.name}")

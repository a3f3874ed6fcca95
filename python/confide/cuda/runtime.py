"""Compile a .cu file and launch its kernels, on a CUDA device or, by the same source, on the CPU.

    module = runtime.Module("embed.cu", "cuda:0", {"WEIGHT": "bf16"})
    module.kernel("embed")(rows, 256, table, tokens, hidden, width, vocabulary)

Arguments are checked against the kernel's own parameter list: torch tensors on the module's device (numpy arrays and
torch CPU tensors on "cpu"), contiguous, of the parameter's dtype; numbers that fit the parameter; None for a null
pointer. A launch on a CUDA device goes to torch's current stream and waits for nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from . import driver, source
from .source import Parameter

u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
i8, i16, i32, i64 = ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64
f32, f64 = ctypes.c_float, ctypes.c_double

# A parameter's C type: what packs a scalar of it, and the dtypes that an array behind a pointer to it may have.
_UNSIGNED = {
    1: ("uint8", "int8", "bool"),
    2: ("uint16", "int16"),
    4: ("uint32", "int32"),
    8: ("uint64", "int64"),
}
_TYPES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "uint8_t": (u8, _UNSIGNED[1]), "unsigned char": (u8, _UNSIGNED[1]), "int8_t": (i8, _UNSIGNED[1]),
    "uint16_t": (u16, _UNSIGNED[2]), "int16_t": (i16, _UNSIGNED[2]), "bool": (ctypes.c_bool, _UNSIGNED[1]),
    "uint32_t": (u32, _UNSIGNED[4]), "unsigned": (u32, _UNSIGNED[4]), "unsigned int": (u32, _UNSIGNED[4]),
    "int32_t": (i32, _UNSIGNED[4]), "int": (i32, _UNSIGNED[4]),
    "uint64_t": (u64, _UNSIGNED[8]), "unsigned long long": (u64, _UNSIGNED[8]), "size_t": (u64, _UNSIGNED[8]),
    "int64_t": (i64, _UNSIGNED[8]), "long long": (i64, _UNSIGNED[8]),
    "float": (f32, ("float32",)), "double": (f64, ("float64",)), "bf16": (u16, ("bfloat16", "uint16")),
}  # fmt: skip
_GRID_MAX = (2**31 - 1, 65535, 65535)
_BLOCK_THREADS_MAX = 1024


def compile_ahead(file: str, device: str, defines: Mapping[str, str | int]) -> bool:
    """Fills the cache for `Module` with the same arguments, from any thread; whether it compiled."""
    try:
        read = source.read(file, defines)
        driver.load_or_compile_cubin(read, driver.architecture(int(device.partition(":")[2] or 0)))
    except RuntimeError:
        return False
    return True


class DeviceMissing(RuntimeError):
    """The installation cannot run kernels on the device."""


def check_device(device: str) -> None:
    """Refuses a name that no device has (ValueError), and a CPU without its form of the kernels (DeviceMissing)."""
    if device == "cpu":
        _import_emulator()
    elif not re.fullmatch(r"cuda(:[0-9]+)?", device):
        raise ValueError(f'device {device}: wanted "cpu" or "cuda:N"')


def _import_emulator() -> ModuleType:
    """Imports the kernels' CPU form, a test tool of the checkout, which no wheel has."""
    try:
        return importlib.import_module(".tests.emulator", __package__)
    except ModuleNotFoundError as error:
        raise DeviceMissing(
            "device cpu: the kernels' CPU form is for tests and is not in this package; hint: "
            "name a CUDA device, or run from a checkout of the repository"
        ) from error


# Those of this process, by file, device and defines.
_MODULES: dict[tuple[str, str, tuple[tuple[str, str], ...]], Module] = {}


class Module:
    """A .cu file (relative to this package, or absolute) built for `device`, with `defines` as macros.

    Made once per process for the same file, device and defines; building is cached on disk by the text of the file and
    its includes, the compiler and its options.
    """

    def __new__(
        cls,
        file: str | os.PathLike[str],
        device: str,
        defines: Mapping[str, str | int] | None = None,
    ) -> Module:
        """Returns the one module of this process for the same file, device and defines, building it if need be."""
        given = tuple(sorted((name, str(value)) for name, value in (defines or {}).items()))
        key = (str(file), "cuda:0" if str(device) == "cuda" else str(device), given)
        if key not in _MODULES:
            made = object.__new__(cls)
            made._build(key[0], key[1], dict(given))
            _MODULES[key] = made
        return _MODULES[key]

    def _build(self, file: str, device: str, defines: dict[str, str]) -> None:
        self.file, self.device = file, device
        self._source = source.read(file, defines)
        self._kernels: dict[str, Kernel] = {}
        if device == "cpu":
            self._library: Any = _import_emulator().load(self._source)
        elif device.startswith("cuda"):
            self._library = driver.DeviceModule(self._source, int(device.partition(":")[2] or 0))
        else:
            raise ValueError(f'device {device}: wanted "cpu" or "cuda:N"')

    @property
    def kernels(self) -> list[str]:
        """The names of the file's kernels."""
        return list(self._source.kernels)

    def kernel(self, name: str) -> Kernel:
        """The kernel `name`: call it with grid, block, its arguments, and `shared` bytes where it asks for them."""
        if name not in self._kernels:
            if name not in self._source.kernels:
                raise KeyError(
                    f"kernel {name}: {self.file} has {', '.join(self._source.kernels) or 'none'}"
                )
            self._kernels[name] = self._find(name)
        return self._kernels[name]

    def _find(self, name: str) -> Kernel:
        parameters = self._source.kernels[name]
        if self.device != "cpu":
            return Kernel(name, parameters, self.device, self._library.kernel(name).launch)
        found = _import_emulator().HostKernel(self._library, name)
        for parameter, size in zip(parameters, found.parameter_bytes, strict=True):
            known = _TYPES.get(parameter.type)
            if size != (8 if parameter.pointer else ctypes.sizeof(known[0]) if known else size):
                raise TypeError(
                    f"{name}: {parameter.name} has {size} bytes in the library, not those of its type"
                )
        return Kernel(name, parameters, self.device, found.launch)


class Kernel:
    """A kernel ready to launch: `kernel(grid, block, *arguments, shared=0)`, grid and block an int or up to three.

    overlap: its blocks may start before the kernel ahead has ended (driver.py); only for kernels written for it.
    """

    def __init__(
        self, name: str, parameters: tuple[Parameter, ...], device: str, launch: Callable[..., None]
    ) -> None:
        self.name, self.parameters, self.device = name, parameters, device
        self._launch = launch

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        shared: int = 0,
        overlap: bool = False,
    ) -> None:
        """Launches the kernel on `grid` blocks (at most three sizes) of `block` threads; waits for no device."""
        self.prepare(grid, block, *arguments, shared=shared, overlap=overlap)()

    def prepare(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        shared: int = 0,
        overlap: bool = False,
    ) -> Launch:
        """Checks and packs what a launch takes, for a call site that launches it again and again."""
        dims = _to_three_sizes(grid) + _to_three_sizes(block)
        if not all(1 <= value <= most for value, most in zip(dims[:3], _GRID_MAX)):
            raise ValueError(f"{self.name}: grid {grid}, wanted 1 to {_GRID_MAX}")
        if min(dims[3:]) < 1 or dims[3] * dims[4] * dims[5] > _BLOCK_THREADS_MAX or dims[5] > 64:
            raise ValueError(
                f"{self.name}: block {block}, wanted 1 to {_BLOCK_THREADS_MAX} threads"
            )
        if len(arguments) != len(self.parameters):
            wanted = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(
                f"{self.name}: wanted {len(self.parameters)} arguments ({wanted}), got {len(arguments)}"
            )
        values = [
            self._pack(parameter, value) for parameter, value in zip(self.parameters, arguments)
        ]
        return Launch(self, dims, int(shared), values, overlap)

    def _pack(self, parameter: Parameter, value: Any) -> ctypes._SimpleCData[Any]:
        if parameter.pointer:
            return ctypes.c_void_p(self._address(parameter, value))
        known = _TYPES.get(parameter.type)
        if isinstance(value, ctypes._SimpleCData):
            if known and type(value) is not known[0]:
                raise self._refusal(parameter, f"a {parameter.type}", type(value).__name__)
            return value
        if known is None:
            raise self._refusal(
                parameter, "an explicit ctypes value (runtime.u32(…))", type(value).__name__
            )
        if known[0] in (f32, f64):
            return known[0](float(value))
        packed = known[0](int(value))
        if packed.value != int(value):
            raise self._refusal(parameter, f"a {parameter.type}", str(value))
        return packed

    def _address(self, parameter: Parameter, value: Any) -> int | None:
        if value is None:
            return None
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            dtype, contiguous = str(value.dtype).removeprefix("torch."), value.is_contiguous()
            device, writable, address = _device_name(value.device), True, value.data_ptr()
        elif hasattr(value, "__array_interface__") and hasattr(value, "flags"):
            dtype, contiguous = value.dtype.name, value.flags.c_contiguous
            device, writable, address = "cpu", value.flags.writeable, value.ctypes.data
        else:
            raise self._refusal(parameter, "a torch tensor or a numpy array", type(value).__name__)
        if device != self.device:
            raise self._refusal(parameter, f"an array on {self.device}", device)
        if not contiguous:
            raise self._refusal(parameter, "a contiguous array", "a strided one")
        if parameter.writes and not writable:
            raise self._refusal(parameter, "an array that can be written", "a read-only one")
        known = _TYPES.get(parameter.type)
        if known and dtype not in known[1]:
            raise self._refusal(parameter, " or ".join(known[1]), dtype)
        return address

    def _refusal(self, parameter: Parameter, wanted: str, got: str) -> TypeError:
        return TypeError(f"{self.name}: argument {parameter.name}: wanted {wanted}, got {got}")


class LaunchOrder:
    """Whether the kernel ahead in the stream is one that the next launch may overlap (stream.cuh).

    One for a step. What is not this package's (a copy, torch's kernels) needs a whole end before and after it.
    """

    def __init__(self, overlap: bool) -> None:
        self.overlap = overlap
        self._may_overlap = self._was_kept = False

    def interrupt(self) -> None:
        """Notes that what runs next follows something else than these kernels."""
        self._may_overlap = self._was_kept = False

    def next(self) -> bool:
        """Says whether the launch that follows this call may overlap the kernel ahead."""
        may_overlap, self._may_overlap = self._may_overlap, self.overlap
        return may_overlap

    def keep(self) -> None:
        """Notes that only launches that asked `next` were made since the step stopped at a point."""
        self._was_kept = True

    def resume(self) -> None:
        """Goes on after a point."""
        if not self._was_kept:
            self._may_overlap = False
        self._was_kept = False


class Launch:
    """A launch of a kernel with its arguments packed; call it as often as wanted.

    Its arrays have to live that long: it keeps their addresses, not them.
    """

    def __init__(
        self,
        kernel: Kernel,
        dims: tuple[int, ...],
        shared: int,
        values: list[ctypes._SimpleCData[Any]],
        overlap: bool,
    ) -> None:
        self.kernel, self.values = kernel, values
        self._dims, self._shared, self._overlap = dims, shared, overlap

    def __call__(self) -> None:
        """Launches; waits for no device."""
        self.kernel._launch(self._dims, self._shared, self.values, self._overlap)

    def replace(self, place: int, array: Any) -> None:
        """Replaces the array of parameter `place`, under the checks of any argument."""
        self.values[place] = self.kernel._pack(self.kernel.parameters[place], array)


def _to_three_sizes(value: int | Sequence[int]) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else tuple(int(part) for part in value)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"grid or block {value}: wanted one to three numbers")
    return given[0], given[1] if len(given) > 1 else 1, given[2] if len(given) > 2 else 1


def _device_name(device: Any) -> str:
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"

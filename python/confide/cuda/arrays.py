"""Arrays on a device: numpy on "cpu", torch tensors on "cuda:N". uint64 and int64 stand for the same 64 bits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any

_SIGNED = {"uint64": "int64", "uint32": "int32", "uint16": "int16"}


def zeros(shape: int | Sequence[int], dtype: str, device: str) -> Array:
    """Makes zeros of a numpy dtype's name on the device."""
    if device == "cpu":
        return np.zeros(shape, dtype)
    import torch

    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    # torch fills few of its unsigned types; bits are bits.
    made = torch.zeros(shape, dtype=getattr(torch, _SIGNED.get(dtype, dtype)), device=device)
    return made.view(getattr(torch, dtype))


def empty(shape: int | Sequence[int], dtype: str, device: str) -> Array:
    """Takes memory that a kernel will write whole."""
    if device == "cpu":
        return np.empty(shape, dtype)
    import torch

    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.empty(shape, dtype=getattr(torch, dtype), device=device)


def to_device(
    values: Array, dtype: str, device: str, what: str, shape: Sequence[int | None]
) -> Array:
    """Gives `values` as a contiguous array on the device; None in `shape` is any length.

    Raises ValueError for another shape, TypeError for another dtype. An array that is as wanted is not copied.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        found = str(values.dtype).removeprefix("torch.")
        values = (
            values.detach().cpu().contiguous().numpy()
            if device == "cpu"
            else values.to(device).contiguous()
        )
    else:
        values = np.ascontiguousarray(values)
        found = values.dtype.name
        if device != "cpu":
            import torch as loaded

            # A copy: from_numpy would warn about memory that may not be written.
            values = loaded.from_numpy(values.copy()).to(device)
    if found not in (dtype, _SIGNED.get(dtype, dtype)):
        raise TypeError(f"{what}: wanted {dtype}, got {found}")
    got = tuple(values.shape)
    if len(got) != len(shape) or any(want not in (None, have) for want, have in zip(shape, got)):
        raise ValueError(f"{what}: wanted the shape {list(shape)}, got {list(got)}")
    return values


def to_host(values: Array) -> np.ndarray:
    """Gives the values as a numpy array: a copy from a device."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def as_words(values: Array) -> np.ndarray:
    """Gives the values as uint64 in numpy: a copy from a device, which is waited for."""
    return to_host(values).view(np.uint64)


def as_signed(values: Array) -> Array:
    """Gives the same words as int64, where torch would have uint64, which it hardly copies and joins."""
    if isinstance(values, np.ndarray):
        return values
    import torch

    return values.view(torch.int64) if values.dtype == torch.uint64 else values


def upload(values: np.ndarray, device: str) -> Array:
    """Copies `values` to the device. Words of 64 bits keep their bits."""
    if device == "cpu":
        return np.array(values, order="C")
    import torch

    signed = values.view(np.int64) if values.dtype == np.uint64 else values
    # torch takes no array that cannot be written, such as bytes are.
    return torch.from_numpy(np.require(signed, requirements=("C", "W"))).to(device)


def address(values: Array) -> int:
    """Gives where an array begins, for tables of addresses; the caller keeps the array alive meanwhile."""
    return int(values.ctypes.data) if isinstance(values, np.ndarray) else int(values.data_ptr())


def copy(target: Array, source: Array) -> None:
    """Copies words into a flat target of as many, in the order of the current stream."""
    if isinstance(target, np.ndarray):
        target[:] = source.reshape(-1)
        return
    import torch

    with torch.inference_mode():
        target.copy_(as_signed(source).reshape(-1))


def concatenate(parts: Sequence[Array]) -> Array:
    """Joins arrays of words, one below the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat([as_signed(part) for part in parts])


def transpose_and_wipe(messages: Array) -> Array:
    """Gives messages [rows, tokens] as a contiguous [tokens, rows] and wipes them."""
    if isinstance(messages, np.ndarray):
        made = np.array(messages.T, order="C")
    else:
        import torch

        made = as_signed(messages).T.clone(memory_format=torch.contiguous_format)
    wipe(messages)
    return made


def wipe(values: Array) -> None:
    """Overwrites a secret with zeros."""
    if isinstance(values, np.ndarray):
        values.fill(0)
        return
    import torch

    # A tensor that was made in this mode can be written in no other.
    with torch.inference_mode():
        values.view(torch.uint8).zero_()


def wipe_in_stream_order(values: Array) -> None:
    """Wipes a buffer after all that the current stream reads of it; its memory is nobody else's before that."""
    wipe(values)
    if not isinstance(values, np.ndarray) and values.is_cuda:
        import torch

        # The allocator knows only the stream that it was made on.
        values.record_stream(torch.cuda.current_stream(values.device))


def synchronize(device: str) -> None:
    """Waits for what the current stream of a CUDA device has to do."""
    if device != "cpu":
        import torch

        torch.cuda.current_stream(device).synchronize()

"""Arrays on a device: numpy on "cpu", torch tensors on "cuda:N". uint64 and int64 stand for the same 64 bits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any

_SIGNED = {"uint64": "int64", "uint32": "int32", "uint16": "int16"}


def zeros(shape: int | Sequence[int], dtype: str, device: str) -> Array:
    """Zeros of a numpy dtype's name."""
    if device == "cpu":
        return np.zeros(shape, dtype)
    import torch

    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    # torch fills few of its unsigned types; bits are bits.
    made = torch.zeros(shape, dtype=getattr(torch, _SIGNED.get(dtype, dtype)), device=device)
    return made.view(getattr(torch, dtype))


def empty(shape: int | Sequence[int], dtype: str, device: str) -> Array:
    """Memory that a kernel will write whole."""
    if device == "cpu":
        return np.empty(shape, dtype)
    import torch

    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.empty(shape, dtype=getattr(torch, dtype), device=device)


def on_device(
    values: Array, dtype: str, device: str, what: str, shape: Sequence[int | None]
) -> Array:
    """`values` as a contiguous array on the device; None in `shape` is any length.

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
            import torch

            # A copy: from_numpy would warn about memory that may not be written.
            values = torch.from_numpy(values.copy()).to(device)
    if found not in (dtype, _SIGNED.get(dtype, dtype)):
        raise TypeError(f"{what}: wanted {dtype}, got {found}")
    got = tuple(values.shape)
    if len(got) != len(shape) or any(want not in (None, have) for want, have in zip(shape, got)):
        raise ValueError(f"{what}: wanted the shape {list(shape)}, got {list(got)}")
    return values


def host(values: Array) -> np.ndarray:
    """The values as a numpy array: a copy from a device."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def wipe(values: Array) -> None:
    """Overwrites a secret with zeros."""
    if isinstance(values, np.ndarray):
        values.fill(0)
        return
    torch = sys.modules["torch"]
    # A tensor that was made in this mode can be written in no other.
    with torch.inference_mode():
        values.view(torch.uint8).zero_()

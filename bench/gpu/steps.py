"""One projection by each of our schemes, for the benches `step`, `ring` and `decode`."""

from __future__ import annotations

from typing import Any, Callable

from blocks import Took
from device import Device

Made = tuple[Callable[[int], Took], str, str]


def ckks(device: Device) -> Made:
    """Report 003's step by our kernels: run, what it says, its guarantee."""
    raise NotImplementedError("confide.cuda.ring has no CKKS step")


def ckks_adapter(device: Device, config: Any) -> Any:
    """Report 003's step on the last hidden state as an adapter of the worker."""
    raise NotImplementedError("confide.cuda.ring has no CKKS step")


def masked(device: Device) -> Made:
    """The masked step with its share of the offline work."""
    raise NotImplementedError("no preparation of masks on this device")


def online_work(device: Device) -> Callable[[], Any]:
    """One vector through both roles of one input."""
    raise NotImplementedError("no online step")

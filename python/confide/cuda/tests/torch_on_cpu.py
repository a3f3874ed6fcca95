"""The way of a CUDA device walked without one: arrays are torch tensors in the host's memory, kernels run on the CPU.

torch's other name for the host, "cpu:0", takes every branch that a "cuda:N" takes; what only a card has (streams,
pinned memory) is stood in for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from confide.cuda import arrays, online, runtime, tests

DEVICE = "cpu:0"
_MODULE = runtime.Module


def module(file: str, device: str, defines: dict[str, str | int] | None = None) -> runtime.Module:
    """The CPU form of a file, for tensors of DEVICE."""
    assert device in (DEVICE, "cpu"), device
    return _MODULE(file, "cpu", defines)


class HostBuffer:
    """As online.HostBuffer, of memory that is not pinned."""

    def __init__(self, device: str, shape: Any, dtype: str) -> None:
        import torch

        self._held = torch.zeros(shape, dtype=getattr(torch, dtype))
        self.array, self.address = self._held.numpy(), self._held.data_ptr()


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """DEVICE is the only device inside."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(runtime, "Module", module))
        stack.enter_context(mock.patch.object(tests, "devices", lambda: [DEVICE]))
        stack.enter_context(mock.patch.object(online.HostBuffer, "__init__", HostBuffer.__init__))
        stack.enter_context(mock.patch.object(arrays, "synchronize", lambda device: None))
        # Streams and events: all of it runs in order here.
        stack.enter_context(mock.patch("torch.cuda.set_device", lambda device: None))
        for name in ("Stream", "Event", "current_stream"):
            stack.enter_context(mock.patch(f"torch.cuda.{name}"))
        stack.enter_context(
            mock.patch("torch.cuda.stream", lambda stream: contextlib.nullcontext())
        )
        yield


class OnTensors(unittest.TestCase):
    """Runs a case's tests on DEVICE alone."""

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # Without torch the case says itself that it is skipped.
        with in_place() if importlib.util.find_spec("torch") else contextlib.nullcontext():
            return super().run(result)

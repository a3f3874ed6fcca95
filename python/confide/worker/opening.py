"""Adapters are opened on threads of their own while steps run, since that may reach a host far away."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from .deltas import Adapter, GenerationDeltas

OPENING_THREADS = 4


class Openings:
    """Opens adapters on threads of its own; `wake` is called when one is done."""

    def __init__(self, device: torch.device, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.threads = ThreadPoolExecutor(OPENING_THREADS, "open-adapter", on_device(device))

    def begin(self, adapter: Adapter) -> Future[GenerationDeltas]:
        """Begins a generation with this adapter; an adapter that reaches no other machine is opened at once."""
        if getattr(adapter, "opens_at_once", False):
            return immediate(adapter.open)
        opening = self.threads.submit(adapter.open)
        opening.add_done_callback(lambda _: self.wake())
        return opening

    def close(self) -> None:
        """Stops the threads."""
        self.threads.shutdown(wait=False, cancel_futures=True)


def on_device(device: torch.device) -> Callable[[], None]:
    """Gives a function that makes the device the one that a new thread uses."""
    return (lambda: torch.cuda.set_device(device)) if device.type == "cuda" else (lambda: None)


def immediate(call: Callable[[], GenerationDeltas]) -> Future[GenerationDeltas]:
    """Calls `call` and gives its result as a future that is done."""
    future: Future[GenerationDeltas] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future


def close_late(opening: Future[GenerationDeltas]) -> None:
    """Closes deltas that came after their generation had ended."""
    if not opening.cancelled() and opening.exception() is None:
        done = getattr(opening.result(), "close", None)
        if done is not None:
            done()

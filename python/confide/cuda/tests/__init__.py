"""Tests of the kernels: each body runs on the CPU form and on every CUDA device that is there."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from confide.cuda import driver


def devices() -> list[str]:
    """Lists the devices of this machine: "cpu", then each "cuda:N" that torch sees; with $CONFIDE_TEST_DEVICES those
    whose names begin so (`cuda`: no CPU forms).
    """
    names = ["cpu"]
    with contextlib.suppress(OSError, ImportError):
        driver.library()
        import torch

        names += [f"cuda:{ordinal}" for ordinal in range(torch.cuda.device_count())]
    wanted = os.environ.get("CONFIDE_TEST_DEVICES", "")
    chosen = [name for name in names if name.startswith(wanted)]
    if not chosen:
        raise RuntimeError(f"CONFIDE_TEST_DEVICES={wanted}: wanted one of {', '.join(names)}")
    return chosen


def on_each_device(test: Callable[[Any, Device], None]) -> Callable[[Any], None]:
    """Runs the test body on each device; on the CPU twice, the threads in order and reversed, so that races show."""

    @functools.wraps(test)
    def run(case: Any) -> None:
        for name in devices():
            for order in ("", "reversed") if name == "cpu" else ("",):
                os.environ["CONFIDE_CPU_ORDER"] = order
                try:
                    with case.subTest(device=name, order=order):
                        test(case, Device(name))
                finally:
                    del os.environ["CONFIDE_CPU_ORDER"]

    return run


class Device:
    """Arrays on a device, and back."""

    def __init__(self, name: str) -> None:
        self.name = name

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A copy of `values` on the device: numpy on the CPU, a torch tensor elsewhere."""
        made = np.array(values, dtype)
        if self.name == "cpu":
            return made
        # torch's unsigned types know few operations, but they carry bytes.
        return sys.modules["torch"].from_numpy(made).to(self.name)

    def zeros(self, shape: Any, dtype: Any) -> Any:
        """Zeros on the device."""
        return self.array(np.zeros(shape, dtype))

    def numpy(self, array: Any) -> np.ndarray:
        """The array's values on the host."""
        return array if isinstance(array, np.ndarray) else array.cpu().numpy()

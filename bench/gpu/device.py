"""The card, or in a rehearsal the CPU in its place: clocks, buffers and NVML's figures."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch


class Device:
    """`torch_device` is `cuda:0`, or `cpu` in a rehearsal, whose sizes are tiny."""

    def __init__(self, cpu: bool) -> None:
        self.cpu = cpu
        self.torch_device = torch.device("cpu" if cpu else "cuda:0")
        self.name = "cpu" if cpu else "cuda:0"
        if cpu:
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(0)

    def synchronize(self) -> None:
        """Waits until the card has done all its work."""
        if not self.cpu:
            torch.cuda.synchronize()

    def time_ms(self, work: Callable[[], Any], repeats: int) -> float:
        """Milliseconds of one `work` by device events around each of `repeats`: their median. One run warms up."""
        if self.cpu:
            return self.time_wall_ms(work)
        work()
        self.synchronize()
        pairs = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            pairs.append((begin, end))
        self.synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in pairs)

    def time_wall_ms(self, work: Callable[[], Any]) -> float:
        """Milliseconds of one `work` by the host's clock, the card idle at both ends."""
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        return (time.perf_counter() - began) * 1e3

    def measure_copy_bytes_per_s(self, repeats: int = 5) -> float:
        """Bytes read and written in a second by a copy within the card's memory; its cache is far smaller."""
        size = (1 << 20) if self.cpu else (1 << 30)
        if not hasattr(self, "_buffers"):

            def make_buffer() -> torch.Tensor:
                return torch.randint(0, 255, (size,), dtype=torch.uint8, device=self.torch_device)

            self._buffers = [(make_buffer(), make_buffer()), (make_buffer(), make_buffer())]
        turn = [0]

        def copy() -> None:
            source, target = self._buffers[turn[0] % 2]
            target.copy_(source)
            turn[0] += 1

        return 2 * size / (self.time_ms(copy, repeats) / 1e3)

    def free_buffers(self) -> None:
        """Gives the copy's buffers back."""
        self.__dict__.pop("_buffers", None)
        if not self.cpu:
            torch.cuda.empty_cache()


class UtilisationSampler:
    """`nvidia-smi`, ten times a second, as a process of its own, so that it takes no time of this one's."""

    FIELDS = "utilization.gpu,power.draw,clocks.sm,memory.used"

    def __init__(self, cpu: bool) -> None:
        options = f"--query-gpu={self.FIELDS} --format=csv,noheader,nounits -lms 100 -i 0"
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            if not cpu:
                command = ["nvidia-smi", *options.split()]
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def end(self) -> dict[str, float]:
        """Ends the sampling; gives the means of the figures, or none where there is no nvidia-smi."""
        if self._process is None:
            return {}
        self._process.terminate()
        told, _ = self._process.communicate(timeout=10)
        rows = []
        for line in told.splitlines():
            with contextlib.suppress(ValueError):
                rows.append([float(word) for word in line.split(",")])
        # The first row tells of the time before the work.
        columns = list(zip(*rows[1:]))
        if not columns:
            return {}
        use, power, clock, _ = (statistics.mean(column) for column in columns)
        return {"kernel_time_ratio": use / 100.0, "power_w": power, "clock_mhz": clock}


def release_cached_memory(cpu: bool) -> None:
    """Gives memory that nothing holds any more back to the card."""
    import gc

    gc.collect()
    if not cpu:
        torch.cuda.empty_cache()

"""Counts from a trace of torch's profiler: copies over the bus, their bytes, waits and launches."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from blocks import ArmFailed

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
         "cuCtxSynchronize", "cuEventSynchronize")  # fmt: skip
OF_THE_CARD = ("cuda_runtime", "cuda_driver", "kernel")
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch",
            "cuGraphLaunch")  # fmt: skip


def count_crossings(work: Callable[[], Any], passes: int) -> dict[str, float]:
    """Runs `work` under the profiler; gives the figures of one of its `passes`. The profiled run is not timed."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    from torch.profiler import ProfilerActivity, profile

    on_card = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_card else [])
    with profile(activities=activities) as profiler:
        work()
        if on_card:
            torch.cuda.synchronize()
    handle, name = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        profiler.export_chrome_trace(name)
        trace = json.loads(Path(name).read_text(encoding="utf-8"))
    finally:
        os.unlink(name)
    if on_card and not any(event.get("cat") in OF_THE_CARD for event in trace["traceEvents"]):
        # Counters may be closed to this user: nothing counted is not 0.
        raise ArmFailed("the profiler saw nothing of the card")
    # The last wait is this function's own.
    return count_events(trace["traceEvents"], passes, own_waits=1 if on_card else 0)


def count_events(events: list[dict[str, Any]], passes: int, own_waits: int) -> dict[str, float]:
    """Counts copies, bytes, waits and launches among the events of a trace."""
    up = down = count = waits = launches = 0
    for event in events:
        name, category = event.get("name", ""), event.get("cat", "")
        if category == "gpu_memcpy" and ("HtoD" in name or "DtoH" in name):
            size = int(event.get("args", {}).get("bytes", 0))
            count += 1
            up, down = (up + size, down) if "HtoD" in name else (up, down + size)
        elif category in ("cuda_runtime", "cuda_driver"):
            waits += name in WAITS
            launches += name in LAUNCHES
    totals = {
        "to_card_bytes": up,
        "from_card_bytes": down,
        "crossings_count": count,
        "synchronisations_count": max(0, waits - own_waits),
        "launches_count": launches,
    }
    return {name: total / passes for name, total in totals.items()}

"""What a worker tells of itself: memory by use, slots, tokens, recorded steps, utilisation."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch

from .schedule import Scheduler


def status(scheduler: Scheduler) -> dict[str, Any]:
    """The status frame's object. Bytes by use add up to what torch holds; `workspace` is the rest of that."""
    slots = scheduler.slots
    return {
        "memory_bytes": memory(scheduler),
        "slots": {"all": len(slots), "running": sum(one is not None for one in slots)},
        "waiting": len(scheduler.waiting),
        "totals": dict(scheduler.totals),
        "graphs": graphs(scheduler),
        "utilisation": utilisation(scheduler.model.device),
    }


def memory(scheduler: Scheduler) -> dict[str, int | None]:
    """Bytes of weights, cache, rows, graphs and workspace; None if the device does not tell."""
    model, stepper = scheduler.model, scheduler.stepper
    used = {
        "weights": model.weights.bytes(),
        "cache": scheduler.cache.bytes(),
        "rows": scheduler.rows.bytes(),
    }
    if model.device.type != "cuda":
        return used | dict.fromkeys(
            ("graphs", "workspace", "reserved", "device_used", "device_all")
        )
    if stepper.shadow is not None:
        used["rows"] += stepper.shadow.bytes()
    free, whole = torch.cuda.mem_get_info(model.device)
    pools = {tuple(pool) for pool in getattr(stepper, "pools", {}).values()}
    segments = torch.cuda.memory_snapshot()
    here = [one for one in segments if one["device"] == (model.device.index or 0)]
    recorded = sum(
        one["total_size"] for one in here if tuple(one.get("segment_pool_id", ())) in pools
    )
    reserved = torch.cuda.memory_reserved(model.device)
    rest = reserved - recorded - sum(used.values())
    return {**used, "graphs": recorded, "workspace": max(rest, 0), "reserved": reserved,
            "device_used": whole - free, "device_all": whole}  # fmt: skip


def graphs(scheduler: Scheduler) -> dict[str, Any]:
    """Reports what recording took, and which form of attention each size got."""
    counts = scheduler.stepper.counts
    kept = len(scheduler.stepper.recorded)
    return {
        "recorded": counts.recorded, "kept": kept, "seconds": round(counts.seconds, 3), "steps": counts.steps,
        "attention": counts.forms, "enabled": scheduler.stepper.graphs,
    }  # fmt: skip


def utilisation(device: torch.device) -> dict[str, Any] | None:
    """Shares of time in percent, watts and clocks by NVML; None if there is none."""
    if device.type != "cuda":
        return None
    try:
        return Nvml.instance().read(torch.cuda.get_device_properties(device))
    except (OSError, AttributeError, ValueError):
        return None


class Nvml:
    """libnvidia-ml by ctypes: the driver brings it, no package is needed."""

    one: Nvml | None = None

    class Rates(ctypes.Structure):
        """nvmlUtilization_t: percent of time that the GPU and its memory were busy."""

        _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.check(self.library.nvmlInit_v2())

    @classmethod
    def instance(cls) -> Nvml:
        """Returns the one library of this process."""
        cls.one = cls.one or Nvml()
        return cls.one

    def read(self, properties: Any) -> dict[str, Any]:
        """Reads rates, power and clock of the device with these properties, found by its UUID."""
        handle = ctypes.c_void_p()
        uuid = f"GPU-{properties.uuid}".encode()
        self.check(self.library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)))
        rates, milliwatts, clock = self.Rates(), ctypes.c_uint(), ctypes.c_uint()
        self.check(self.library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)))
        told: dict[str, Any] = {"gpu_percent": rates.gpu, "memory_percent": rates.memory}
        if self.library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts)) == 0:
            told["watts"] = milliwatts.value / 1000
        for name, kind in (("sm_mhz", 1), ("memory_mhz", 2)):
            if self.library.nvmlDeviceGetClockInfo(handle, kind, ctypes.byref(clock)) == 0:
                told[name] = clock.value
        return told

    def check(self, code: int) -> None:
        """Raises `OSError` for any status but success."""
        if code:
            raise OSError(f"NVML: error {code}")


def versions() -> dict[str, str]:
    """Gives the versions of Python, torch, numpy and CUDA."""
    import numpy

    found = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found

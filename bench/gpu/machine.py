"""The machine as a record holds it: `confide bench machine --json` where the binary is carried, else as /proc, torch
and nvidia-smi report it. What cannot be read is absent, never 0. No host name, serial number, UUID or address is read.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

GPU_FIELDS = {
    "name": "name",
    "vbios_version": "vbios",
    "memory.total": "memory_total",
    "ecc.mode.current": "ecc",
    "mig.mode.current": "mig",
    "persistence_mode": "persistence",
    "power.limit": "power_limit",
    "clocks.max.graphics": "clock_graphics_max",
    "clocks.max.memory": "clock_memory_max",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_width",
}


def read_machine_facts(confide: str | None) -> dict[str, Any]:
    """Facts of this machine."""
    if confide:
        told = _command_output([confide, "bench", "machine", "--json"])
        if told:
            machine: dict[str, Any] = json.loads(told)
            return machine
    info = _read_text("/proc/meminfo")
    kib = re.search(r"MemTotal:\s+(\d+)", info)
    model = re.search(r"model name\s*:\s*(.+)", _read_text("/proc/cpuinfo"))
    return {
        "cpu_model": model.group(1).strip() if model else "unknown",
        "cpus_online": os.cpu_count() or 0,
        "memory_bytes": int(kib.group(1)) * 1024 if kib else 0,
        "kernel": _read_text("/proc/sys/kernel/osrelease").strip() or "unknown",
        "gpus": _read_gpus(),
    }


def _read_gpus() -> dict[str, Any]:
    names = ",".join(["driver_version", *GPU_FIELDS])
    told = _command_output(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"])
    if not told:
        return {"source": "not known: no nvidia-smi"}
    rows = [line.split(", ") for line in told.strip().splitlines()]

    values = [[None if word.startswith("[") else word.strip() for word in row[1:]] for row in rows]
    devices = [dict(zip(GPU_FIELDS.values(), row)) for row in values]
    modes = _command_output(["nvidia-smi", "conf-compute", "-f"]) or ""
    status = re.search(r"(CC status)\s*:\s*(\w+)", modes)
    return {
        "source": "nvidia-smi",
        "driver": rows[0][0],
        "devices": devices,
        "confidential": {status.group(1): status.group(2)} if status else {},
    }


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _command_output(command: list[str]) -> str | None:
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None

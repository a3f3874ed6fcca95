"""Every kernel compiled for this card (in a rehearsal: for the CPU); later stages find them in the cache."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from blocks import Session
from confide.cuda import compile as compiler
from confide.cuda import nvrtc, runtime, source

THREADS_MAX = 12


def run(session: Session) -> None:
    """A kernel that does not compile ends the stage with the compiler's words; the others stand in the cache."""
    device = "cpu" if session.cpu else "cuda:0"
    began = time.monotonic()
    variants = [(file, defines) for file in compiler.files() for defines in source.variants(file)]

    def build(variant: tuple[str, dict[str, str]]) -> int:
        file, defines = variant
        return len(runtime.Module(file, device, defines).kernels)

    with ThreadPoolExecutor(
        min(THREADS_MAX, os.cpu_count() or 1) if not session.cpu else 1
    ) as pool:
        kernels = sum(pool.map(build, variants))
    took_s = time.monotonic() - began
    # What later stages need comes first; ptxas' figures only where a second round of compiling has time.
    figures: list[Any] = (
        registers(session) if not session.cpu and session.left_s() > took_s + 2 else []
    )
    ready: dict[str, Any] = {
        "kernels": kernels,
        "files": len(compiler.files()),
        "seconds": round(took_s, 2),
    }
    if figures:
        ready |= {
            "nvrtc": ".".join(map(str, nvrtc.version())),
            "registers_most": max(one.registers for one in figures),
            "spilled_bytes": sum(one.spill_stores + one.spill_loads for one in figures),
        }
    session.report_service("build", ["python3", "-m", "confide.cuda.compile"], ready)
    session.say(", ".join(f"{name} {value}" for name, value in ready.items()))


def registers(session: Session) -> list[Any]:
    """Compiles for this card's architecture without touching the card's context; ptxas's figures of each kernel."""
    import torch

    major, minor = torch.cuda.get_device_capability(0)
    arch = f"sm_{major}{minor}"
    with ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1)) as pool:
        built = pool.map(lambda file: list(compiler.build(file, arch)), compiler.files())
    return [kernel.figures for file in built for kernel in file if kernel.figures is not None]

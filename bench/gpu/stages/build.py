"""Every kernel of the run compiled for this card (in a rehearsal: for the CPU); later stages find them in the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import variants
from blocks import StageSession
from confide.cuda import compile as compiler
from confide.cuda import driver, nvrtc, runtime, source, tiling

THREADS_MAX = 12


def run(session: StageSession) -> None:
    """A kernel that does not compile ends the stage with the compiler's words; the others stand in the cache."""
    device = "cpu" if session.cpu else "cuda:0"
    began = time.monotonic()
    wanted = list_run_variants(session.cpu)

    def build(variant: variants.Variant) -> int:
        file, defines = variant
        return len(runtime.Module(file, device, defines).kernels)

    threads = 1 if session.cpu else min(THREADS_MAX, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        kernels = sum(pool.map(build, wanted))
    took_s = time.monotonic() - began
    # What later stages need comes first; ptxas' figures only where a second round of compiling has time.
    figures = (
        read_ptxas_figures(wanted) if not session.cpu and session.remaining_s() > took_s + 2 else []
    )
    ready: dict[str, Any] = {
        "kernels": kernels,
        "variants": len(wanted),
        "brought_along": "CONFIDE_CUBINS" in os.environ,
        "seconds": round(took_s, 2),
    }
    if figures:
        ready |= {
            "registers_most": max(one.registers for one in figures),
            "spilled_bytes": sum(one.spill_stores + one.spill_loads for one in figures),
        }
    session.report_service("build", ["python3", "-m", "confide.cuda.compile"], ready)
    session.print_line(", ".join(f"{name} {value}" for name, value in ready.items()))


def list_run_variants(cpu: bool) -> list[variants.Variant]:
    """Lists what this run compiles: on a card exactly what its stages launch, with the tilings measured on such a card;
    in a rehearsal, whose shapes are tiny, the variants that the kernel files name.
    """
    if cpu:
        every = ((file, source.variants(file)) for file in compiler.kernel_files())
        return [(file, dict(defines)) for file, found in every for defines in found]
    import torch

    return variants.list_variants(tiling.load_measured(torch.cuda.get_device_name(0)))


def read_ptxas_figures(wanted: Iterable[variants.Variant]) -> list[nvrtc.KernelResources]:
    """Ptxas's figures of every kernel, from the logs in the cache."""
    arch = driver.architecture(0)
    logs = (nvrtc.build_cubin(source.read(*variant), arch)[1] for variant in wanted)
    return [figures for log in logs for figures in nvrtc.parse_kernel_resources(log).values()]

"""The models that a run decodes, and the kernels that it compiles for them. Neither torch nor a GPU is needed.

`python3 bench/gpu/run.py --build-cubins` compiles them for other machines' cards into `CUBINS`; a run on such a machine
finds them there, whichever NVRTC it has.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from confide.cuda import compile as compiler
from confide.cuda import decode, nvrtc, source, tiling
from confide.worker import config
from journal import HERE

MODEL = "qwen2.5-1.5b"
# Model, batches, bits of its weights (0: bf16). Of 70B in 4 bits the weights take 38 GB; where the card has less,
# layers are left out and the label says so.
CASES = (
    (MODEL, (1, 8, 32), 0),
    ("llama-3.1-8b", (1, 8, 32), 0),
    ("phi-3-medium-14b", (1,), 0),
    ("llama-3.1-70b", (1,), 4),
)
# Where the adapters of the arms add: plain LoRA and the masked one at every layer, the others at the end.
SOURCES = (frozenset({"attention", "attention_output"}), frozenset({"final_hidden"}))
# Batches of the worker's recorded steps that the kernels compute: sessions begin one by one.
STEP_ROWS = (1, 2, 4, 8)

CUBINS = HERE / "cubins"
CUBIN_ARCHITECTURES = ("sm_90", "sm_100")

Variant = tuple[str, dict[str, str | int]]


def list_variants(tilings: tiling.Tilings) -> list[Variant]:
    """Lists every kernel file of a run with its macros, once each: those of the decode steps in the shapes that run,
    with `tilings` where one is known; of the others the variants that their files name.
    """
    steps = [variant for model, batches, bits in CASES
             for variant in _step_variants(model, max(batches), bits, tilings)]  # fmt: skip
    of_steps = {file for file, _ in steps}
    others: list[Variant] = [
        (file, dict(defines))
        for file in compiler.kernel_files() if file not in of_steps
        for defines in source.variants(file)
    ]  # fmt: skip
    return _unique([*steps, *others])


def _step_variants(model: str, batch: int, bits: int, tilings: tiling.Tilings) -> Iterable[Variant]:
    shape = config.SHAPES[model]
    names = (field.name for field in dataclasses.fields(decode.Shape))
    step = decode.Shape(**{name: getattr(shape, name) for name in names})
    for rows in (one for one in STEP_ROWS if one <= batch):
        for sources in (frozenset(), *SOURCES) if model == MODEL else (frozenset(),):
            found = decode.kernel_variants(step, rows, "bf16", tilings, sources)
            # Weights in few bits are multiplied by torch; attention is ours for every model.
            yield from (one for one in found if one[0] == "attention.cu" or not bits)


def _unique(variants: Iterable[Variant]) -> list[Variant]:
    found = {(file, tuple(sorted(defines.items()))): (file, defines) for file, defines in variants}
    return list(found.values())


def build_cubins() -> int:
    """Compiles every variant for the architectures that runs are expected on, without a GPU; gives an exit status."""
    CUBINS.mkdir(mode=0o700, exist_ok=True)
    began = time.monotonic()
    wanted = [
        (file, defines, arch)
        for file, defines in list_variants(tiling.Tilings())
        for arch in CUBIN_ARCHITECTURES
    ]

    def build(one: tuple[str, dict[str, str | int], str]) -> None:
        file, defines, arch = one
        nvrtc.export_cubin(source.read(file, defines), arch, CUBINS)

    # ctypes lets go of the interpreter while NVRTC works.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(build, wanted))
    size = sum(path.stat().st_size for path in CUBINS.iterdir()) / 2**20
    print(
        f"{len(wanted)} cubins by NVRTC {'.'.join(map(str, nvrtc.version()))} in bench/gpu/{CUBINS.name}:"
        f" {size:.1f} MiB, {time.monotonic() - began:.0f} s"
    )
    return 0

"""`python -m confide.cuda.tune SHAPE [--rows N]`: measures tilings of a step's products and keeps the fastest.

Each candidate runs over all layers' own weights, so that they come from memory and not from L2, inside one CUDA graph.
What was chosen serves every later DecodeStep on a device of this name (tiling.load_measured).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import runtime, tiling
from .decode import DecodeStep
from .tiling import Product, Tiling

REPEATS = 5


def tune(step: DecodeStep, most: int = 24) -> dict[Product, tuple[Tiling, float, float]]:
    """For each product of the step: the best tiling, its microseconds a launch, and those of the choice by shape.

    At most `most` candidates each. Buffers of the step are overwritten. Results are kept on disk.
    """
    found = {}
    for product, matrices, arguments in _products(step):
        timed: dict[Tiling, float] = {}
        candidates = _select_candidates(tiling.candidates(product), most)
        with ThreadPoolExecutor() as pool:
            defines = [candidate.defines(product, step.element) for candidate in candidates]
            list(pool.map(lambda one: runtime.compile_ahead("gemv.cu", step.device, one), defines))
        for candidate in candidates:
            took = _microseconds(step, product, candidate, matrices, arguments)
            if took is not None:
                timed[candidate] = took
        if not timed:
            raise RuntimeError(
                f"{product}: wanted one tiling of {len(candidates)} that runs here, found none"
            )
        best = min(timed, key=timed.__getitem__)
        found[product] = (best, timed[best], timed.get(tiling.choose_by_shape(product), math.nan))
    import torch

    tiling.save_measured(
        torch.cuda.get_device_name(step.device),
        {product: best for product, (best, _, _) in found.items()},
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Tunes for one of the worker's shapes with random weights, and prints what was measured."""
    parser = argparse.ArgumentParser(prog="python -m confide.cuda.tune", description=__doc__)
    parser.add_argument(
        "shape", help="a name of confide.worker.config.SHAPES, such as qwen2.5-1.5b"
    )
    parser.add_argument("--rows", type=int, default=1, help="rows of the step, 1 to 8")
    parser.add_argument(
        "--layers", type=int, default=8, help="layers to take turns over; more than L2 holds"
    )
    parser.add_argument(
        "--candidates", type=int, default=24, help="tilings tried for each product, at most"
    )
    parser.add_argument("--device", default="cuda:0")
    given = parser.parse_args(arguments)
    step = random_step(given.shape, given.rows, given.layers, given.device)
    print(f"{'product':48} {'by shape':>20} {'best':>20}  tiling")
    for product, (tiles, best, by_shape) in tune(step, given.candidates).items():
        size = product.out * product.columns * {"float": 4, "bf16": 2}[product.weight]
        name = f"{product.weight} {product.output} {product.out} x {product.columns}, {product.batch} rows"
        cells = " ".join(
            f"{took:8.2f} us {size / took / 1e3:4.0f} GB/s" for took in (by_shape, best)
        )
        print(f"{name:48} {cells}  {tiles}")
    return 0


def random_step(
    shape: str, rows: int, layers: int, device: str, dtype: str = "bfloat16"
) -> DecodeStep:
    """Makes a step of the worker's shape with random weights and an empty cache of 256 tokens."""
    import torch

    from confide.worker import config as shapes
    from confide.worker import rotary, weights
    from confide.worker.cache import Cache, Size
    from confide.worker.kernels import shape_of

    config = dataclasses.replace(shapes.SHAPES[shape], layers=layers)
    target, kind = torch.device(device), getattr(torch, dtype)
    cache = Cache(config, Size(rows, 256), target, kind)
    cosines, sines = (table.to(target) for table in rotary.angles(config.rope, cache.length))
    made = weights.random(config, 0, target, kind)
    return DecodeStep(
        shape_of(config),
        made,
        cache.values,
        cosines,
        sines,
        rows,
        device,
        limit=cache.idle_position,
        tilings={},
    )


def _products(step: DecodeStep) -> Iterator[tuple[Product, list[Any], tuple[Any, Any, Any]]]:
    layers = step.weights.layers
    norm, final = layers[0].ffn_norm, step.weights.final_norm
    for name, output, rows, gain, target in (
        ("qkv", "STORE", step.hidden, norm, step.qkv),
        ("o", "ADD", step.attended, None, step.hidden),
        ("gate_up", "SWIGLU", step.hidden, norm, step.inner),
        ("down", "ADD", step.inner, None, step.hidden),
    ):
        matrices = [getattr(layer, name) for layer in layers]
        yield _product(step, matrices[0], output, gain), matrices, (rows, gain, target)
    head = step.weights.head
    yield _product(step, head, "STORE", final), [head] * 4, (step.hidden, final, step.out)


def _product(step: DecodeStep, matrix: Any, output: str, norm: Any) -> Product:
    out, columns = matrix.weight.shape
    return Product(step.element, output, norm is not None, int(out), int(columns), step.rows)


def _select_candidates(candidates: Iterator[Tiling], most: int) -> list[Tiling]:
    """The choice by shape and an even selection of the others."""
    whole = list(candidates)
    return whole[:1] + whole[1 :: max(1, len(whole) // most)]


def _microseconds(
    step: DecodeStep,
    product: Product,
    tiles: Tiling,
    matrices: list[Any],
    arguments: tuple[Any, Any, Any],
) -> float | None:
    """Measures the microseconds of one launch; None if the device cannot run this tiling."""
    import torch

    try:
        module = runtime.Module("gemv.cu", step.device, tiles.defines(product, step.element))
        kernel = module.kernel("gemv")
    except RuntimeError:
        return None
    rows, norm, target = arguments

    def launch() -> None:
        for matrix in matrices:
            kernel(tiles.grid(product), tiles.warps * 32, matrix.weight, matrix.bias, rows, norm, target, product.out,
                   product.columns, step.config.norm_epsilon, shared=tiles.shared_bytes(product))  # fmt: skip

    with torch.cuda.device(step.device):
        try:
            launch()
            torch.cuda.synchronize()
        except RuntimeError:
            return None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        graph.replay()
        times = []
        for _ in range(REPEATS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        # A sum that grew at each launch must not become infinite: later steps start from what is left here.
        target.zero_()
    return min(times) * 1000 / len(matrices)


if __name__ == "__main__":
    sys.exit(main())

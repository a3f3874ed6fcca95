"""Measures tilings of a step's products and splits of its attention on the device, and keeps the fastest.

Each candidate runs over all layers' own weights or caches, in the order and with the overlap of a step, so that they
come from memory and not from L2, inside one CUDA graph. What was chosen serves every later step on a device of this
name (tiling.load_measured). `python -m confide.worker.tune SHAPE` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from . import runtime, tiling
from .decode import DecodeStep
from .tiling import AttentionShape, AttentionSplit, Product, Tiling, Tilings

REPEATS = 5
Chosen = TypeVar("Chosen", Tiling, AttentionSplit)


@dataclass(frozen=True)
class Measured:
    """What was chosen for one kernel of the step: microseconds of a launch, also those of the choice by shape (NaN
    where that did not run), and the bytes that a launch reads.
    """

    name: str
    chosen: Tiling | AttentionSplit
    us: float
    by_shape_us: float
    size: int


def tune(step: DecodeStep, most: int = 24) -> list[Measured]:
    """Measures at most `most` candidates of each product of the step, and of its attention; keeps the fastest on disk.

    Buffers and the cache of the step are overwritten.
    """
    import torch

    best, found = Tilings(), []
    for product, matrices, arguments in _products(step):
        candidates = _select_candidates(list(tiling.candidates(product)), most)
        with ThreadPoolExecutor() as pool:
            defines = [candidate.defines(product, step.element) for candidate in candidates]
            list(pool.map(lambda one: runtime.compile_ahead("gemv.cu", step.device, one), defines))
        timed = {one: _time_product(step, product, one, matrices, arguments) for one in candidates}
        tiles = best.products[product] = _fastest(str(product), timed)
        name = f"{product.weight} {product.output} {product.out} x {product.columns}, {product.batch} rows"
        size = product.out * product.columns * {"float": 4, "bf16": 2}[product.weight]
        found.append(_measured(name, tiles, timed, tiling.choose_by_shape(product), size))
    shape = AttentionShape(
        step.element, step.config.heads, step.config.kv_heads, step.config.head_dim, step.rows
    )
    splits = {one: _time_attention(step, one) for one in tiling.split_candidates(shape)}
    split = best.attention[shape] = _fastest(str(shape), splits)
    position = step.limit - 1
    name = f"{shape.element} attention, {shape.rows} rows at position {position:,}"
    size = (
        2
        * step.rows
        * shape.kv_heads
        * shape.head_dim
        * position
        * {"float": 4, "bf16": 2}[step.element]
    )
    found.append(_measured(name, split, splits, tiling.choose_split(shape), size))
    tiling.save_measured(torch.cuda.get_device_name(step.device), best)
    return found


def _fastest(name: str, timed: dict[Chosen, float | None]) -> Chosen:
    ran = {one: us for one, us in timed.items() if us is not None}
    if not ran:
        raise RuntimeError(f"{name}: wanted one tiling of {len(timed)} that runs here, found none")
    return min(ran, key=ran.__getitem__)


def _measured(
    name: str, chosen: Chosen, timed: dict[Chosen, float | None], by_shape: Chosen, size: int
) -> Measured:
    us, before = timed[chosen], timed.get(by_shape)
    return Measured(name, chosen, us or math.nan, math.nan if before is None else before, size)


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


def _select_candidates(whole: list[Tiling], most: int) -> list[Tiling]:
    """The choice by shape and an even selection of the others."""
    return whole[:1] + whole[1 :: max(1, len(whole) // most)]


def _time_product(
    step: DecodeStep,
    product: Product,
    tiles: Tiling,
    matrices: list[Any],
    arguments: tuple[Any, Any, Any],
) -> float | None:
    """Measures the microseconds of one launch; None if the device cannot run this tiling."""
    try:
        module = runtime.Module("gemv.cu", step.device, tiles.defines(product, step.element))
        kernel = module.kernel("gemv")
    except RuntimeError:
        return None
    rows, norm, target = arguments

    def launch(matrix: Any, overlap: bool) -> None:
        kernel(
            tiles.grid(product), tiles.warps * 32, matrix.weight, matrix.bias, rows, norm, target, product.out,
            product.columns, step.config.norm_epsilon, shared=tiles.shared_bytes(product), overlap=overlap,
        )  # fmt: skip

    took = _time_launches(step, launch, matrices)
    # A sum that grew at each launch must not become infinite: later steps start from what is left here.
    target.zero_()
    return took


def _time_attention(step: DecodeStep, split: AttentionSplit) -> float | None:
    """Measures the microseconds of one layer's attention at the last position, over all layers' caches."""
    import torch

    positions = torch.full((step.rows,), step.limit - 1, dtype=torch.int64, device=step.device)

    def launch(layer: int, overlap: bool) -> None:
        step.attend(layer, positions, overlap)

    step.set_attention_split(split)
    return _time_launches(step, launch, range(step.config.layers))


def _time_launches(
    step: DecodeStep, launch: Callable[[Any, bool], None], over: Iterable[Any]
) -> float | None:
    """Measures the microseconds of one launch of those over all of `over`; None if the device cannot run them."""
    import torch

    every = list(over)

    def launch_all() -> None:
        for index, one in enumerate(every):
            launch(one, step.overlap and index > 0)

    with torch.cuda.device(step.device):
        try:
            launch_all()
            torch.cuda.synchronize()
        except RuntimeError:
            return None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch_all()
        graph.replay()
        times = []
        for _ in range(REPEATS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    return min(times) * 1000 / len(every)

"""One decode step of a Llama-like decoder in this package's kernels: five launches a layer, and three.

    step = DecodeStep(config, weights, cache.values, cosines, sines, rows=1, device="cuda:0")
    logits = step.logits(tokens, positions)

Everything that changes from step to step lies in device memory, so a step can be recorded in a CUDA graph and
replayed without the host. Activations and the residual stream are float32, weights and the cache bf16 or float32.
Row i is slot i of the cache. For 1 to 8 rows; larger batches want tensor cores, which these kernels do not use.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import runtime, tiling
from .tiling import AttentionShape, AttentionSplit, Product, Tiling, Tilings

ROWS_MAX = 8
# Query heads for each key head: what the attention keeps of more is beyond the 48 KiB of a block's shared memory.
GROUP_MAX = 9


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder in elements; `window` is the length of sliding attention, None for all."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    norm_epsilon: float
    window: int | None = None


class Point(NamedTuple):
    """Where an adapter may add: `rows` float32 [B, width], and the outputs of the projections that read them.

    Where the step adds a projection to the residual itself (o, down), the output is the residual. A caller that
    adds with nothing but launches that asked `order.next` says `order.keep`.
    """

    layer: int
    source: str
    rows: Any
    outputs: dict[str, Any]
    order: runtime.LaunchOrder


class DecodeStep:
    """The kernels of a step for `rows` rows, with their buffers.

    weights: `embedding`, `layers` of `attention_norm`, `qkv`, `o`, `ffn_norm`, `gate_up`, `down`, then `final_norm` and
    `head`; a matrix has `weight` [out, in] and `bias` ([out] or None). torch tensors on the device; on "cpu" numpy
    arrays too. cache: [layers, 2, slots, kv_heads, length, head_dim]. cosines, sines: float32 [positions, turned
    elements / 2]. A row whose position is not below `limit` (default: length) is idle.
    overlap: let each kernel take its places while the one before still runs (sm_90 on; stream.cuh).
    """

    def __init__(
        self,
        config: Shape,
        weights: Any,
        cache: Any,
        cosines: Any,
        sines: Any,
        rows: int,
        device: str,
        *,
        limit: int | None = None,
        overlap: bool = False,
        tilings: Tilings | None = None,
    ) -> None:
        if not 1 <= rows <= min(ROWS_MAX, cache.shape[2]):
            raise ValueError(
                f"decode step: wanted 1 to {ROWS_MAX} rows and a slot for each, got {rows}"
            )
        widths = (config.hidden, config.heads * config.head_dim, config.ffn, config.head_dim)
        if any(width % 8 for width in widths) or config.head_dim > 256:
            raise ValueError(
                f"decode step: wanted widths in multiples of 8, heads up to 256, got {widths}"
            )
        if config.heads > GROUP_MAX * config.kv_heads:
            got = f"{config.heads} for {config.kv_heads}"
            raise ValueError(
                f"decode step: wanted at most {GROUP_MAX} query heads for each key head, got {got}"
            )
        self.config, self.weights, self.cache = config, weights, cache
        self.rows, self.device = rows, device
        self.cosines, self.sines, self.overlap = cosines, sines, overlap
        self.order = runtime.LaunchOrder(overlap)
        self.limit = cache.shape[4] if limit is None else limit
        self.element = "float" if "float32" in str(weights.embedding.dtype) else "bf16"
        self._tilings = tiling.load_on(device) if tilings is None else tilings
        self._products: dict[Product, tuple[runtime.Kernel, Tiling, int]] = {}
        self._take_buffers()
        heads = AttentionShape(self.element, config.heads, config.kv_heads, config.head_dim, rows)
        self.set_attention_split(self._tilings.of_attention(heads))
        group = config.heads // config.kv_heads
        defines: dict[str, str | int] = {
            "ELEMENT": self.element,
            "GROUP": group,
            "HEAD_DIM": config.head_dim,
        }
        self._attention = runtime.Module("attention.cu", device, defines).kernel("attention")
        self._embed = runtime.Module("embed.cu", device, {"WEIGHT": self.element}).kernel("embed")
        norm = runtime.Module("norm.cu", device, {"ELEMENT": self.element})
        self._rms_norm, self._swiglu = norm.kernel("rms_norm"), norm.kernel("swiglu")

    def logits(self, tokens: Any, positions: Any) -> Any:
        """Computes logits float32 [B, vocabulary] of one token each; tokens, positions int64 [B] on the device.

        The result is the step's own buffer, overwritten by the next step.
        """
        for _ in self.run(tokens, positions):
            raise RuntimeError("a step without points stopped at one")
        return self.out

    def run(
        self, tokens: Any, positions: Any, points: frozenset[tuple[int, str]] = frozenset()
    ) -> Generator[Point, None, Any]:
        """Runs as `logits` does, but stops at each of `points` (layer, source) for the outputs to be added to."""
        weights, width, vocabulary = self.weights, self.config.hidden, self.config.vocabulary
        self.order.interrupt()
        self._launch(
            self._embed, self.rows, 256, weights.embedding, tokens, self.hidden, width, vocabulary
        )
        for index, layer in enumerate(weights.layers):
            yield from self._project(layer, index, (index, "attention") in points)
            self.attend(index, positions, self.order.next())
            self._product(layer.o, self.attended, None, self.hidden, "ADD")
            if (index, "attention_output") in points:
                yield from self._yield_point(
                    index, "attention_output", self.attended, {"o": self.hidden}
                )
            yield from self._gate(layer, index, (index, "feed_forward") in points)
            self._product(layer.down, self.inner, None, self.hidden, "ADD")
            if (index, "feed_forward_inner") in points:
                yield from self._yield_point(
                    index, "feed_forward_inner", self.inner, {"down": self.hidden}
                )
        if (0, "final_hidden") in points:
            self._norm(weights.final_norm, self.normed)
            self._norm(weights.final_norm, self.changed)
            yield from self._yield_point(
                0, "final_hidden", self.normed, {"final_hidden": self.changed}
            )
            self._product(weights.head, self.changed, None, self.out, "STORE")
        else:
            self._product(weights.head, self.hidden, weights.final_norm, self.out, "STORE")
        return self.out

    def _project(self, layer: Any, index: int, stops: bool) -> Generator[Point, None, None]:
        config = self.config
        if not stops:
            self._product(layer.qkv, self.hidden, layer.attention_norm, self.qkv, "STORE")
            return
        self._norm(layer.attention_norm, self.normed)
        self._product(layer.qkv, self.normed, None, self.qkv, "STORE")
        query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
        bounds = {"q": (0, query), "k": (query, query + key), "v": (query + key, query + 2 * key)}
        outputs = {name: self.qkv[:, begin:end] for name, (begin, end) in bounds.items()}
        yield from self._yield_point(index, "attention", self.normed, outputs)

    def _gate(self, layer: Any, index: int, stops: bool) -> Generator[Point, None, None]:
        ffn = self.config.ffn
        if not stops:
            self._product(layer.gate_up, self.hidden, layer.ffn_norm, self.inner, "SWIGLU")
            return
        self._norm(layer.ffn_norm, self.normed)
        self._product(layer.gate_up, self.normed, None, self.both, "STORE")
        outputs = {"gate": self.both[:, :ffn], "up": self.both[:, ffn:]}
        yield from self._yield_point(index, "feed_forward", self.normed, outputs)
        self._launch(self._swiglu, (-(-ffn // 256), self.rows), 256, self.both, self.inner, ffn)

    def _yield_point(
        self, layer: int, source: str, rows: Any, outputs: dict[str, Any]
    ) -> Generator[Point, None, None]:
        yield Point(layer, source, rows, outputs, self.order)
        self.order.resume()

    def _norm(self, weight: Any, target: Any) -> None:
        width, epsilon = self.config.hidden, self.config.norm_epsilon
        self._launch(self._rms_norm, self.rows, 256, self.hidden, weight, target, width, epsilon)

    def attend(self, layer: int, positions: Any, overlap: bool) -> None:
        """Launches one layer's attention on the buffers of the step; tune.py times it alone."""
        config, cache = self.config, self.cache
        keys, values = cache[layer, 0], cache[layer, 1]
        self._attention(
            (self._splits, config.kv_heads, self.rows), tiling.ATTENTION_THREADS, self.qkv, keys, values, positions,
            self.cosines, self.sines, self.attended, self._partials, self._counters, cache.shape[4], self.limit,
            self.cosines.shape[1], config.window or 0, self._split.least, config.head_dim**-0.5, overlap=overlap,
        )  # fmt: skip

    def set_attention_split(self, split: AttentionSplit) -> None:
        """Shares contexts out as `split` says from now on."""
        config = self.config
        self._split, self._splits = split, split.blocks(self.limit)
        group = config.heads // config.kv_heads
        self._partials = self._zeros(
            (self.rows, config.kv_heads, self._splits, group, config.head_dim + 2)
        )

    def _product(self, matrix: Any, rows: Any, norm: Any, output: Any, kind: str) -> None:
        out, columns = matrix.weight.shape
        product = Product(self.element, kind, norm is not None, int(out), int(columns), self.rows)
        kernel, chosen, grid = self._kernel(product)
        epsilon = self.config.norm_epsilon
        self._launch(kernel, grid, chosen.warps * 32, matrix.weight, matrix.bias, rows, norm, output, product.out,
                     product.columns, epsilon, shared=chosen.shared_bytes(product))  # fmt: skip

    def _kernel(self, product: Product) -> tuple[runtime.Kernel, Tiling, int]:
        if product not in self._products:
            chosen = self._tilings.of_product(product)
            module = runtime.Module("gemv.cu", self.device, chosen.defines(product, self.element))
            self._products[product] = (module.kernel("gemv"), chosen, chosen.grid(product))
        return self._products[product]

    def _launch(
        self, kernel: runtime.Kernel, grid: Any, block: int, *arguments: Any, shared: int = 0
    ) -> None:
        # What runs ahead of a step's beginning is not this package's: no overlap with it.
        kernel(grid, block, *arguments, shared=shared, overlap=self.order.next())

    def _take_buffers(self) -> None:
        config, rows = self.config, self.rows
        heads = config.heads + 2 * config.kv_heads
        self.hidden, self.normed, self.changed = (
            self._zeros((rows, config.hidden)) for _ in range(3)
        )
        self.qkv = self._zeros((rows, heads * config.head_dim))
        self.attended = self._zeros((rows, config.heads * config.head_dim))
        self.inner, self.both = self._zeros((rows, config.ffn)), self._zeros((rows, 2 * config.ffn))
        self.out = self._zeros((rows, config.vocabulary))
        self._counters = self._zeros((rows, config.kv_heads), "int32")

    def _zeros(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        like = self.weights.embedding
        if isinstance(like, np.ndarray):
            return np.zeros(shape, dtype)
        import torch

        return torch.zeros(shape, dtype=getattr(torch, dtype), device=like.device)


def kernel_variants(
    config: Shape,
    rows: int,
    element: str,
    tilings: Tilings,
    sources: frozenset[str] = frozenset(),
) -> list[tuple[str, dict[str, str | int]]]:
    """Lists the kernel files of a step, each with its macros: what a `DecodeStep` of these sizes compiles.

    sources: the points at which an adapter adds (`Point.source`); `tilings` as in `DecodeStep`.
    """
    group = config.heads // config.kv_heads
    products = step_products(config, rows, element, sources)
    chosen = ((tilings.of_product(product), product) for product in products)
    return [
        ("attention.cu", {"ELEMENT": element, "GROUP": group, "HEAD_DIM": config.head_dim}),
        ("embed.cu", {"WEIGHT": element}),
        ("norm.cu", {"ELEMENT": element}),
        *(("gemv.cu", tiles.defines(product, element)) for tiles, product in chosen),
    ]


def step_products(
    config: Shape, rows: int, element: str, sources: frozenset[str] = frozenset()
) -> list[Product]:
    """Lists the products of a step. At the points `sources` the rows are normed before, in a kernel of their own."""
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    hidden, ffn = config.hidden, config.ffn
    gated = "feed_forward" in sources
    return [
        Product(element, "STORE", "attention" not in sources, query + 2 * key, hidden, rows),
        Product(element, "ADD", False, hidden, query, rows),
        Product(element, "STORE" if gated else "SWIGLU", not gated, 2 * ffn, hidden, rows),
        Product(element, "ADD", False, hidden, ffn, rows),
        Product(element, "STORE", "final_hidden" not in sources, config.vocabulary, hidden, rows),
    ]

"""The seam to this package's own decode kernels (confide.cuda.decode): whole steps of 1 to 8 rows.

They read the worker's weights and cache where they lie. Each size and each group of generations has buffers of its own,
since a step of one group may run between two parts of another's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from confide.cuda import decode, tiling

from .config import ModelConfig
from .deltas import Point
from .rotary import angles

if TYPE_CHECKING:
    from .cache import Cache
    from .graphs import Shape
    from .model import Model

ROWS_MAX = decode.ROWS_MAX


def is_supported(config: ModelConfig) -> bool:
    """Whether the kernels compute this shape."""
    widths = (config.hidden, config.query_width, config.ffn, config.head_dim)
    few = config.heads <= decode.GROUP_MAX * config.kv_heads
    return few and not any(width % 8 for width in widths) and config.head_dim <= 256


def shape_of(config: ModelConfig) -> decode.Shape:
    """Gives the sizes that the kernels ask for."""
    names = (field.name for field in dataclasses.fields(decode.Shape))
    return decode.Shape(**{name: getattr(config, name) for name in names})


class KernelDecoder:
    """Decode steps in kernels, made when a size is first asked for."""

    def __init__(self, model: Model, cache: Cache, overlap: bool = True) -> None:
        """overlap: let each kernel begin while the one before still runs, where the device can (`overlaps`)."""
        self.model, self.cache = model, cache
        self.overlap = overlap and model.device.type == "cuda" and overlaps(model.device)
        cosines, sines = angles(model.config.rope, cache.length)
        self.cosines, self.sines = cosines.to(model.device), sines.to(model.device)
        self.steps: dict[tuple[int, int], Any] = {}

    def supports(self, shape: Shape) -> bool:
        """Whether a step of this shape runs here: few rows, and plain weights."""
        return shape.batch <= ROWS_MAX and not self.model.weights.bits

    def decode(
        self, tokens: Tensor, positions: Tensor, shape: Shape
    ) -> Generator[Point, None, Tensor]:
        """Decodes as `Model.decode` does, in float32; rows at the idle position are passed over."""
        return (yield from self.step(shape).run(tokens, positions, shape.points))

    def step(self, shape: Shape) -> Any:
        """Gives the kernels with their buffers for so many rows of a group."""
        key = (shape.batch, shape.group)
        if key not in self.steps:
            self.steps[key] = decode.DecodeStep(
                shape_of(self.model.config),
                self.model.weights,
                self.cache.values,
                self.cosines,
                self.sines,
                shape.batch,
                str(self.model.device),
                limit=self.cache.idle_position,
                overlap=self.overlap,
            )
        return self.steps[key]


class KernelAttention:
    """One launch for rotary positions, the cache's new rows and attention, for batches whose products are torch's."""

    def __init__(self, model: Model, cache: Cache) -> None:
        from confide.cuda import runtime

        self.model, self.cache = model, cache
        config = model.config
        cosines, sines = angles(config.rope, cache.length)
        self.cosines, self.sines = cosines.to(model.device), sines.to(model.device)
        element = "float" if "float32" in str(model.dtype) else "bf16"
        defines: dict[str, str | int] = {
            "ELEMENT": element,
            "GROUP": model.groups,
            "HEAD_DIM": config.head_dim,
        }
        self.kernel = runtime.Module("attention.cu", str(model.device), defines).kernel("attention")
        self.tilings = tiling.load_on(str(model.device))
        self.element = element
        self.buffers: dict[int, tuple[Tensor, ...]] = {}

    def decode_attention(self, positions: Tensor, cache: Cache) -> Callable[[int, Tensor], Tensor]:
        """Attends as `Model.decode_attention` does, for the cache of this object; all contexts are one shape here."""
        config, scale = self.model.config, self.model.config.head_dim**-0.5
        rows = positions.shape[0]
        split = self.split_for(rows)
        grid = (split.blocks(cache.idle_position), config.kv_heads, rows)
        fused, attended, partials, counters = self.buffers_for(rows)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            # The kernel's activations are float32.
            fused.copy_(qkv)
            self.kernel(
                grid, tiling.ATTENTION_THREADS, fused, cache.values[layer, 0], cache.values[layer, 1], positions,
                self.cosines, self.sines, attended, partials, counters, cache.length, cache.idle_position,
                self.cosines.shape[1], config.window or 0, split.least, scale,
            )  # fmt: skip
            # A copy in float32 too: between two graphs of a slow step a fast one uses the same buffer.
            return attended.to(qkv.dtype, copy=True)

        return attend

    def split_for(self, rows: int) -> tiling.AttentionSplit:
        """Gives how the contexts of so many rows are shared out among blocks."""
        config = self.model.config
        shape = tiling.AttentionShape(
            self.element, config.heads, config.kv_heads, config.head_dim, rows
        )
        return self.tilings.of_attention(shape)

    def buffers_for(self, rows: int) -> tuple[Tensor, ...]:
        """Gives buffers for so many rows. Nothing but the counters' zeros is kept in them between calls."""
        if rows not in self.buffers:
            config, model = self.model.config, self.model
            splits = self.split_for(rows).blocks(self.cache.idle_position)
            shapes = (
                (rows, config.query_width + 2 * config.key_width),
                (rows, config.query_width),
                (rows, config.kv_heads, splits, model.groups, config.head_dim + 2),
            )
            floats = [torch.zeros(shape, device=model.device) for shape in shapes]
            counters = torch.zeros(rows, config.kv_heads, dtype=torch.int32, device=model.device)
            self.buffers[rows] = (*floats, counters)
        return self.buffers[rows]


def overlaps(device: Any) -> bool:
    """Whether a kernel may begin while the one before still runs: compute capability 9.0 and later."""
    return torch.cuda.get_device_capability(device) >= (9, 0)

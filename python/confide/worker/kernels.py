"""The seam to this package's own decode kernels (confide.cuda.decode): whole steps of 1 to 8 rows.

They read the worker's weights and cache where they lie. Each size and each group of generations has buffers of its own,
since a step of one group may run between two parts of another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generator

from torch import Tensor

from confide.cuda import decode

from .config import Config
from .deltas import Point
from .rotary import angles

if TYPE_CHECKING:
    from .cache import Cache
    from .graphs import Shape
    from .model import Model

ROWS_MAX = decode.ROWS_MAX


def suits(config: Config) -> bool:
    """Whether the kernels compute this shape."""
    widths = (config.hidden, config.query_width, config.ffn, config.head_dim)
    return not any(width % 8 for width in widths) and config.head_dim <= 256


class Kernels:
    """Decode steps in kernels, made when a size is first asked for."""

    def __init__(self, model: Model, cache: Cache) -> None:
        self.model, self.cache = model, cache
        cosines, sines = angles(model.config.rope, cache.length)
        self.cosines, self.sines = cosines.to(model.device), sines.to(model.device)
        self.steps: dict[tuple[int, int], Any] = {}

    def takes(self, shape: Shape) -> bool:
        """Whether a step of this shape runs here: few rows, and plain weights."""
        return shape.batch <= ROWS_MAX and not self.model.weights.bits

    def decode(self, tokens: Tensor, positions: Tensor, shape: Shape) -> Generator[Point, None, Tensor]:
        """As `Model.decode`, with activations and logits in float32; rows at the idle position are passed over."""
        return (yield from self.step(shape).run(tokens, positions, shape.points))

    def step(self, shape: Shape) -> Any:
        """The kernels with their buffers for so many rows of a group."""
        key = (shape.batch, shape.group)
        if key not in self.steps:
            device = str(self.model.device)
            self.steps[key] = decode.DecodeStep(
                self.model.config, self.model.weights, self.cache.values, self.cosines, self.sines, shape.batch, device,
                limit=self.cache.idle_position, overlap=device != "cpu" and overlaps(self.model.device),
            )  # fmt: skip
        return self.steps[key]


def overlaps(device: Any) -> bool:
    """Whether a kernel may begin while the one before still runs: compute capability 9.0 and later."""
    import torch

    return torch.cuda.get_device_capability(device) >= (9, 0)

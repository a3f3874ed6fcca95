"""Rotary positions as tables, and their application to the heads of a fused q, k, v row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import ModelConfig, Rope


def frequencies(rope: Rope) -> Tensor:
    """Gives turns per token [rotary / 2] in float32, by the same operations as transformers, so that they are equal
    bit for bit.
    """
    steps = torch.arange(0, rope.rotary, 2, dtype=torch.int64).to(torch.float32) / rope.rotary
    if rope.kind == "longrope":
        return 1.0 / (torch.tensor(rope.short, dtype=torch.float32) * rope.theta**steps)
    plain = 1.0 / (rope.theta**steps)
    if rope.kind == "linear":
        return plain / rope.factor
    return scale_llama3(plain, rope) if rope.kind == "llama3" else plain


def scale_llama3(plain: Tensor, rope: Rope) -> Tensor:
    """Scales as Llama 3.1 does: long waves are stretched, short ones stay, those between are mixed."""
    longest, shortest = rope.original_context / rope.low, rope.original_context / rope.high
    wave = 2 * math.pi / plain
    stretched = torch.where(wave > longest, plain / rope.factor, plain)
    share = (rope.original_context / wave - rope.low) / (rope.high - rope.low)
    mixed = (1 - share) * stretched / rope.factor + share * stretched
    between = ~(wave < shortest) & ~(wave > longest)
    return torch.where(between, mixed, stretched)


def angles(rope: Rope, positions: int) -> tuple[Tensor, Tensor]:
    """Gives cosines and sines of each position's turns, scaled, float32 [positions, rotary / 2]."""
    turns = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies(rope)[None, :]
    return turns.cos() * rope.scale, turns.sin() * rope.scale


class Rotary:
    """Cosines and signed sines [positions, head_dim] in the model's type; heads that hold values do not turn.

    With `half` the two halves of the rotary part exchanged, a head becomes `head · cos + exchanged · sin`, where sin is
    negative for the first half.
    """

    def __init__(
        self, config: ModelConfig, positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        rope, head_dim = config.rope, config.head_dim
        cosine, sine = angles(rope, positions)
        half = rope.rotary // 2
        cosines = torch.ones(positions, head_dim)
        sines = torch.zeros(positions, head_dim)
        cosines[:, : rope.rotary] = cosine.repeat(1, 2)
        sines[:, :half], sines[:, half : rope.rotary] = -sine, sine
        self.cosines = cosines.to(device=device, dtype=dtype)
        self.sines = sines.to(device=device, dtype=dtype)
        self.whole = rope.rotary == head_dim
        order = torch.arange(head_dim)
        order[:half], order[half : rope.rotary] = torch.arange(half, 2 * half), torch.arange(half)
        self.order = order.to(device)
        self.half = half
        self.turning, self.still = config.heads + config.kv_heads, config.kv_heads

    def tables_at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Gives cosines and sines for rows at these positions, each [T, heads of q, k and v, head_dim].

        Values get cosine 1 and sine 0, so that one operation takes the whole row.
        """
        cosines = self.cosines.index_select(0, positions).unsqueeze(1)
        sines = self.sines.index_select(0, positions).unsqueeze(1)
        rows, _, width = cosines.shape
        cosines = torch.cat(
            (cosines.expand(-1, self.turning, -1), cosines.new_ones(rows, self.still, width)), 1
        )
        sines = torch.cat(
            (sines.expand(-1, self.turning, -1), sines.new_zeros(rows, self.still, width)), 1
        )
        return cosines, sines

    def rotate(self, heads: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Turns `heads` [T, heads of q, k and v, head_dim]."""
        cosines, sines = table
        exchanged = heads.roll(self.half, -1) if self.whole else heads.index_select(-1, self.order)
        return torch.addcmul(heads * cosines, exchanged, sines)

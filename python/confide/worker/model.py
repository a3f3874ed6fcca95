"""The decoder in torch: prefill of one slot and decode of a batch, both as generators that stop where adapters add.

The layers are the reference that transformers' models are compared with; graphs.py records them. In a batch row i is
slot i of the cache. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .cache import Cache
from .config import ModelConfig
from .deltas import NO_POINTS, Point, Points
from .linear import Matrix
from .rotary import Rotary
from .weights import Weights

Pass = Generator[
    Point, None, Tensor
]  # stops at points; gives logits [T, vocabulary] in the model's type
ATTENTION_FORMS = ("fused", "products")
# Without cuDNN's, which builds a plan for each shape and refuses some at run time.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def run_pass(run: Pass, add: Callable[[Point], None] | None = None) -> Tensor:
    """Runs a pass to its end, calling `add` at each point."""
    while True:
        try:
            point = next(run)
        except StopIteration as end:
            return end.value
        if add is None:
            raise RuntimeError("a pass stopped at a point, and no adapter adds there")
        add(point)


@dataclass
class PrefillSpan:
    """Rows of one slot in a prefill: tokens `start` to `start + rows` of the text."""

    slot: int
    start: int
    rows: int


class Model:
    """A decoder with its weights."""

    def __init__(self, config: ModelConfig, weights: Weights, positions: int) -> None:
        self.config, self.weights = config, weights
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        self.rotary = Rotary(config, positions, self.device, self.dtype)
        self.scale = config.head_dim**-0.5
        self.groups = config.heads // config.kv_heads
        # Attention of a decode step by this package's own kernel, where a stepper has put one here.
        self.kernel_attention: Any = None

    def decode(
        self,
        tokens: Tensor,
        positions: Tensor,
        cache: Cache,
        context: int,
        points: Points = NO_POINTS,
        form: str = "fused",
    ) -> Pass:
        """One token of each row: `tokens` and `positions` int64 [B] on the device; attends to the first `context`
        tokens of each slot, of which those up to its own position count.
        """
        hidden = functional.embedding(tokens, self.weights.embedding)
        attend = self.decode_attention(positions, cache, context, form)
        hidden = yield from self.layers(hidden, attend, points)
        return (yield from self.logits(hidden, points))

    def decode_attention(
        self, positions: Tensor, cache: Cache, context: int, form: str
    ) -> Callable[[int, Tensor], Tensor]:
        """What turns a layer's fused q, k, v rows [B, widths] into what attention read [B, heads · head_dim], keeping
        keys and values. The form `kernel` is this package's own (kernels.py), the others are torch's.
        """
        if form == "kernel":
            return self.kernel_attention.decode_attention(positions, cache)
        rows = positions.shape[0]
        table = self.rotary.tables_at(positions)
        places = self.cache_places(cache, torch.arange(rows, device=self.device), positions)
        bias = self.decode_bias(positions, context)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            heads = self.rotate_heads(qkv, table)
            cache.flat_rows(layer).index_copy_(0, places, self.rows_to_keep(heads))
            query = heads[:, : self.config.heads].view(rows, self.config.kv_heads, self.groups, -1)
            keys, content = (
                cache.layer_keys(layer, rows, context),
                cache.layer_values(layer, rows, context),
            )
            return self.attention(query, keys, content, bias, form).reshape(rows, -1)

        return attend

    def prefill(
        self, tokens: Tensor, span: PrefillSpan, cache: Cache, points: Points = NO_POINTS
    ) -> Pass:
        """Runs part of a prompt, `tokens` int64 [T] on the device; gives the logits of its last row [1, vocabulary]."""
        config, rows = self.config, span.rows
        positions = torch.arange(span.start, span.start + rows, device=self.device)
        table = self.rotary.tables_at(positions)
        places = self.cache_places(cache, torch.full_like(positions, span.slot), positions)
        whole = span.start == 0 and config.window is None
        length = (
            span.start + rows if whole else min(-(-(span.start + rows) // 64) * 64, cache.length)
        )
        bias = None if whole else self.prefill_bias(positions, length).repeat(self.groups, 1)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            heads = self.rotate_heads(qkv, table)
            cache.flat_rows(layer).index_copy_(0, places, self.rows_to_keep(heads))
            keys = cache.values[layer, 0, span.slot : span.slot + 1, :, :length]
            content = cache.values[layer, 1, span.slot : span.slot + 1, :, :length]
            query = heads[:, : config.heads]
            if whole:
                return self.attend_causally(query, keys, content)
            query = query.view(rows, config.kv_heads, self.groups, -1).permute(1, 2, 0, 3)
            query = query.reshape(1, config.kv_heads, self.groups * rows, -1)
            with sdpa_kernel(KERNELS):
                out = functional.scaled_dot_product_attention(
                    query, keys, content, bias, scale=self.scale
                )
            out = out.view(config.kv_heads, self.groups, rows, -1).permute(2, 0, 1, 3)
            return out.reshape(rows, -1)

        hidden = functional.embedding(tokens, self.weights.embedding)
        hidden = yield from self.layers(hidden, attend, points)
        return (yield from self.logits(hidden[-1:], points))

    def layers(
        self, hidden: Tensor, attend: Callable[[int, Tensor], Tensor], points: Points
    ) -> Pass:
        """Runs all layers over `hidden` [T, hidden], which is overwritten; stops at `points`."""
        config, epsilon, width = self.config, self.config.norm_epsilon, (self.config.hidden,)
        for index, layer in enumerate(self.weights.layers):
            normed = functional.rms_norm(hidden, width, layer.attention_norm, epsilon)
            qkv = layer.qkv(normed)
            if (index, "attention") in points:
                parts = qkv.split((config.query_width, config.key_width, config.key_width), dim=-1)
                yield Point(index, "attention", normed, dict(zip(("q", "k", "v"), parts)))
            attended = attend(index, qkv)
            yield from self.add_projection(
                hidden, attended, layer.o, (index, "attention_output", "o"), points
            )
            normed = functional.rms_norm(hidden, width, layer.ffn_norm, epsilon)
            both = layer.gate_up(normed)
            gate, up = both.split((config.ffn, config.ffn), dim=-1)
            if (index, "feed_forward") in points:
                yield Point(index, "feed_forward", normed, {"gate": gate, "up": up})
            inner = functional.silu(gate).mul_(up)
            yield from self.add_projection(
                hidden, inner, layer.down, (index, "feed_forward_inner", "down"), points
            )
        return functional.rms_norm(hidden, width, self.weights.final_norm, epsilon)

    def add_projection(
        self,
        hidden: Tensor,
        rows: Tensor,
        matrix: Matrix,
        place: tuple[int, str, str],
        points: Points,
    ) -> Pass:
        """Adds a projection of `rows` to the residual `hidden` in place; one kernel where no adapter is between."""
        index, source, projection = place
        if (index, source) not in points:
            matrix.add_to(hidden, rows)
            return hidden
        output = matrix(rows)
        yield Point(index, source, rows, {projection: output})
        return hidden.add_(output)

    def logits(self, normed: Tensor, points: Points) -> Pass:
        """Computes the logits of rows after the last norm."""
        if (0, "final_hidden") in points:
            output = normed.clone()
            yield Point(0, "final_hidden", normed, {"final_hidden": output})
            normed = output
        return self.weights.head(normed)

    def rotate_heads(self, qkv: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Gives all heads of fused rows, positions applied: [T, heads + 2 · kv_heads, head_dim]."""
        heads = self.config.heads + 2 * self.config.kv_heads
        return self.rotary.rotate(qkv.view(qkv.shape[0], heads, self.config.head_dim), table)

    def rows_to_keep(self, heads: Tensor) -> Tensor:
        """Gives keys and values of `heads` as rows of the cache, in the order of `places`."""
        return heads[:, self.config.heads :].reshape(-1, self.config.head_dim)

    def cache_places(self, cache: Cache, slots: Tensor, positions: Tensor) -> Tensor:
        """Gives where the cache keeps each row's keys and values: int64 [T · 2 · kv_heads]."""
        kind = torch.arange(2, device=self.device)[None, :, None]
        head = torch.arange(self.config.kv_heads, device=self.device)[None, None, :]
        slot = kind * cache.size.slots + slots[:, None, None]
        return (
            (slot * self.config.kv_heads + head) * cache.length + positions[:, None, None]
        ).view(-1)

    def decode_bias(self, positions: Tensor, context: int) -> Tensor:
        """Makes a bias, 0 if a row attends, −∞ elsewhere: [B, 1, 1, context] in the model's type."""
        seen = torch.arange(context, device=self.device)[None, :]
        hidden = seen > positions[:, None]
        if self.config.window is not None:
            hidden = hidden | (seen <= positions[:, None] - self.config.window)
            # A row without a generation stands beyond the context: it would see nothing, which is not a number.
            hidden = hidden & (positions < context)[:, None]
        bias = torch.zeros(hidden.shape, device=self.device, dtype=self.dtype).masked_fill_(
            hidden, float("-inf")
        )
        return bias[:, None, None, :]

    def prefill_bias(self, positions: Tensor, length: int) -> Tensor:
        """Makes a bias as `decode_bias` does, [T, length]."""
        seen = torch.arange(length, device=self.device)[None, :]
        hidden = seen > positions[:, None]
        if self.config.window is not None:
            hidden = hidden | (seen <= positions[:, None] - self.config.window)
        return torch.zeros(hidden.shape, device=self.device, dtype=self.dtype).masked_fill_(
            hidden, float("-inf")
        )

    def attention(
        self, query: Tensor, keys: Tensor, content: Tensor, bias: Tensor, form: str
    ) -> Tensor:
        """Heads that share keys are rows of one query: [B, kv_heads, groups, head_dim], so nothing is repeated."""
        if form == "fused":
            bias = bias.expand(query.shape[0], keys.shape[1], query.shape[2], keys.shape[2])
            with sdpa_kernel(KERNELS):
                return functional.scaled_dot_product_attention(
                    query, keys, content, bias, scale=self.scale
                )
        scores = torch.matmul(query, keys.transpose(-1, -2))
        shares = torch.softmax(torch.add(bias, scores, alpha=self.scale), dim=-1)
        return torch.matmul(shares, content)

    def attend_causally(self, query: Tensor, keys: Tensor, content: Tensor) -> Tensor:
        """Computes the attention of a whole text [T, heads, head_dim] to itself, [T, heads · head_dim]."""
        query = query.transpose(0, 1).unsqueeze(0)
        with sdpa_kernel(KERNELS):
            out = functional.scaled_dot_product_attention(
                query, keys, content, is_causal=True, scale=self.scale, enable_gqa=self.groups > 1
            )
        return out[0].transpose(0, 1).reshape(query.shape[2], -1)

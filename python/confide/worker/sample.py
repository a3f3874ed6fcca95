"""The next token of each row, on the device: greedy, by temperature, within the nucleus of top_p.

A request's draws are numbers of its own seed and of how many tokens it has had (SplitMix64, counter-based), so that
they do not depend on what else is in its batch. They are made when it is admitted and lie on the device.
"""

from __future__ import annotations

import numpy
import torch
import torch.nn.functional as functional
from torch import Tensor

KINDS = ("greedy", "sampled", "nucleus")
# Elements of the last of two running sums; both are short enough to be summed in one order.
BLOCK = 1024
# Halvings of the span in which the nucleus' least logit is sought: 60 / 2^28 is below what float32 tells apart there.
HALVINGS = 28
SPAN = 60.0
NOT_FOUND = -1


def uniforms(seed: int, count: int) -> numpy.ndarray:
    """Gives float64 [count] in [0, 1): number i is SplitMix64's output after i + 1 steps from `seed`."""
    steps = numpy.arange(1, count + 1, dtype=numpy.uint64)
    with numpy.errstate(over="ignore"):
        mixed = numpy.uint64(seed & (1 << 64) - 1) + steps * numpy.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> numpy.uint64(31)
    return (mixed >> numpy.uint64(11)).astype(numpy.float64) / float(1 << 53)


def choice_kind(temperature: float, top_p: float) -> str:
    """Gives the cheapest kind of choice that serves a request."""
    if temperature <= 0.0:
        return "greedy"
    return "nucleus" if top_p < 1.0 else "sampled"


def greedy(logits: Tensor, forbidden: Tensor, best: Tensor, token: Tensor) -> None:
    """The first of the likeliest: `best` float32 [B] and `token` int64 [B] are written, from `logits` [B, V] (which may
    be overwritten) without the `forbidden` bool [B, V].

    Where a logit is not a number, `best` is none either, and the text ends there: nothing after it would mean anything.
    """
    torch.max(logits.float().masked_fill_(forbidden, float("-inf")), dim=-1, out=(best, token))


def choose(
    logits: Tensor,
    forbidden: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    draw: Tensor,
    kind: str,
    best: Tensor,
    token: Tensor,
) -> None:
    """As `greedy`, by `temperature` and `top_p` float32 [B] and a number `draw` float64 [B] in [0, 1).

    Rows of temperature 0 are greedy in every kind. `kind` nucleus respects top_p.
    """
    least = float("-inf")
    admitted = logits.float().masked_fill_(forbidden, least)
    torch.max(admitted, dim=-1, out=(best, token))
    heat = temperature.masked_fill(temperature <= 0, 1.0)
    scaled = (admitted - best.clamp(min=-3e38)[:, None]) / heat[:, None]
    if kind == "nucleus":
        scaled = scaled.masked_fill(scaled < nucleus_bound(scaled, top_p)[:, None], least)
    token.copy_(torch.where(temperature > 0, draw_tokens(scaled.exp_(), draw), token))


def nucleus_bound(scaled: Tensor, top_p: Tensor) -> Tensor:
    """Finds the least logit of the nucleus, the smallest set of likeliest tokens with a share of at least `top_p`.

    `scaled` [B, V] has 0 for the likeliest. Found by halving, since a sort of a whole vocabulary takes longer.
    """
    weights = scaled.exp()
    wanted = weights.sum(-1) * top_p
    low = torch.full_like(top_p, -SPAN)
    step = SPAN / 2
    for _ in range(HALVINGS):
        middle = low + step
        share = weights.masked_fill(scaled < middle[:, None], 0.0).sum(-1)
        low = torch.where((share >= wanted) & (middle <= 0), middle, low)
        step /= 2
    return low.masked_fill(top_p >= 1.0, float("-inf"))


def draw_tokens(weights: Tensor, draw: Tensor) -> Tensor:
    """Gives the first token at which the running sum of `weights` [B, V] passes `draw` times their sum."""
    rows, vocabulary = weights.shape
    blocks = -(-vocabulary // BLOCK)
    weights = functional.pad(weights, (0, blocks * BLOCK - vocabulary)).view(rows, blocks, BLOCK)
    sums = weights.sum(-1, dtype=torch.float64).cumsum(-1)
    target = draw * sums[:, -1]
    block = (sums <= target[:, None]).sum(-1).clamp_(max=blocks - 1)
    before = sums.gather(-1, (block - 1).clamp(min=0)[:, None])[:, 0].masked_fill(block == 0, 0.0)
    inside = weights.gather(1, block[:, None, None].expand(-1, 1, BLOCK))[:, 0].double().cumsum(-1)
    # Two orders of summing may differ in the last bit, so the rest is held within the block's own sum.
    rest = torch.minimum(target - before, inside[:, -1] * (1 - 2.0**-50))
    place = (inside <= rest[:, None]).sum(-1)
    return (block * BLOCK + place).clamp_(max=vocabulary - 1)

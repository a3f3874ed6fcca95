"""What the device knows of each slot: last token, position, how it samples. A step reads and advances it there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .sample import NOT_FOUND, choose, greedy, uniforms

# Generations whose adapters can be recorded step together; those whose adapters have to be waited for step apart.
FAST, SLOW = 0, 1
# As `sample.greedy`: logits, forbidden, best, token.
ChooseGreedy = Callable[[Tensor, Tensor, Tensor, Tensor], None]


class Rows:
    """Tensors over slots; `idle` is the position at which rows write that take no part in a step."""

    def __init__(
        self, slots: int, context: int, vocabulary: int, idle: int, device: torch.device
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        self.device, self.vocabulary, self.idle = device, vocabulary, idle
        # Numbers from here on are no token of the tokenizer and are never chosen.
        self.known = vocabulary
        # Of each group, so that a step of one group leaves the other's alone.
        self.token = zeros(2, slots, dtype=torch.int64)
        self.position = torch.full((2, slots), idle, device=device)
        self.active = zeros(2, slots, dtype=torch.int64)
        self.chosen = zeros(2, slots, dtype=torch.int64)
        self.best = zeros(2, slots, dtype=torch.float32)
        self.count = zeros(slots, dtype=torch.int64)
        self.nothing = torch.full((slots,), NOT_FOUND, device=device)
        self.temperature = zeros(slots, dtype=torch.float32)
        self.top_p = torch.ones(slots, device=device)
        self.draws = zeros(slots, context, dtype=torch.float64)
        self.forbidden = zeros(slots, vocabulary, dtype=torch.bool)

    def bytes(self) -> int:
        """Gives the bytes taken."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))

    def advance(
        self,
        batch: int,
        group: int,
        logits: Tensor,
        kind: str,
        choose_greedy: ChooseGreedy = greedy,
    ) -> None:
        """Chooses a token for each row and makes it the next one's input; only rows of the group move on.

        choose_greedy: what chooses in the kind `greedy`, a kernel where the step is in kernels.
        """
        active = self.active[group, :batch]
        self.pick(slice(0, batch), group, logits, kind, choose_greedy)
        self.position[group, :batch].add_(active)
        if kind != "greedy":
            # A greedy step uses no draws, and a greedy generation stays greedy to its end.
            self.count[:batch].add_(active)

    def pick(
        self,
        slots: slice,
        group: int,
        logits: Tensor,
        kind: str,
        choose_greedy: ChooseGreedy = greedy,
    ) -> None:
        """Makes the choice for these slots: the next input, and what the host is told."""
        token, best = self.token[group, slots], self.best[group, slots]
        chosen = self.chosen[group, slots]
        if kind == "greedy":
            choose_greedy(logits, self.forbidden[slots], best, token)
        else:
            count = self.count[slots].clamp(max=self.draws.shape[1] - 1)
            draw = self.draws[slots].gather(1, count[:, None])[:, 0]
            heat, share = self.temperature[slots], self.top_p[slots]
            choose(logits, self.forbidden[slots], heat, share, draw, kind, best, token)
        torch.where(best > float("-inf"), token, self.nothing[slots], out=chosen)

    def admit(
        self, slot: int, temperature: float, top_p: float, seed: int, tokens: int, banned: list[int]
    ) -> None:
        """Prepares a slot for a generation of at most `tokens` tokens. It takes part in no step yet."""
        self.temperature[slot].fill_(temperature)
        self.top_p[slot].fill_(top_p)
        self.forbidden[slot, : self.known].zero_()
        self.forbidden[slot, self.known :].fill_(True)
        if banned:
            self.forbidden[slot].index_fill_(0, self.to_device(torch.tensor(banned)), True)
        if temperature > 0:
            count = min(tokens, self.draws.shape[1])
            self.draws[slot, :count].copy_(self.to_device(torch.from_numpy(uniforms(seed, count))))

    def begin(self, slot: int, group: int, position: int, logits: Tensor, kind: str) -> None:
        """Chooses a slot's first token from its prompt's logits [1, V]; from the next step on it takes part."""
        self.count[slot].zero_()
        self.pick(slice(slot, slot + 1), group, logits, kind)
        self.position[group, slot].fill_(position)
        self.count[slot].fill_(1)
        self.active[group, slot].fill_(1)

    def release(self, slot: int) -> None:
        """Takes the slot out of all further steps."""
        self.active[:, slot].zero_()
        self.position[:, slot].fill_(self.idle)

    def move(self, source: int, target: int) -> None:
        """Moves a generation from one slot to another; its cache is moved by the caller."""
        for tensor in (self.temperature, self.top_p, self.draws, self.forbidden, self.count):
            tensor[target].copy_(tensor[source])
        for tensor in (self.token, self.position, self.active):
            tensor[:, target].copy_(tensor[:, source])
        self.release(source)

    def to_device(self, tensor: Tensor) -> Tensor:
        """Copies a tensor of the host to the device, without waiting for it."""
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

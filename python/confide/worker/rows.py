"""What the device knows of each slot: last token, position, how it samples. A step reads and advances it there."""

from __future__ import annotations

import torch
from torch import Tensor

from .sample import choose, uniforms

# Generations whose adapters can be recorded step together; those whose adapters have to be waited for step apart.
FAST, SLOW = 0, 1


class Rows:
    """Tensors over slots; `idle` is the position at which rows write that take no part in a step."""

    def __init__(self, slots: int, context: int, vocabulary: int, idle: int, device: torch.device) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        self.device, self.vocabulary, self.idle = device, vocabulary, idle
        # Numbers from here on are no token of the tokenizer and are never chosen.
        self.known = vocabulary
        self.token = zeros(slots, dtype=torch.int64)
        # Position and number of tokens chosen: both grow by one with each step.
        self.clock = zeros(2, slots, dtype=torch.int64)
        self.active = zeros(2, slots, dtype=torch.int64)
        self.temperature = zeros(slots, dtype=torch.float32)
        self.top_p = torch.ones(slots, device=device)
        self.draws = zeros(slots, context, dtype=torch.float64)
        self.forbidden = zeros(slots, vocabulary, dtype=torch.bool)
        self.chosen = zeros(slots, dtype=torch.int64)

    def bytes(self) -> int:
        """Bytes taken."""
        tensors = (self.token, self.clock, self.active, self.draws, self.forbidden, self.chosen)
        return sum(tensor.nbytes for tensor in tensors) + self.temperature.nbytes + self.top_p.nbytes

    def positions(self, batch: int, group: int) -> Tensor:
        """Where the rows of a group write next; all others at the idle position. int64 [batch]."""
        return self.clock[0, :batch].masked_fill(self.active[group, :batch] == 0, self.idle)

    def advance(self, batch: int, group: int, logits: Tensor, kind: str) -> None:
        """Chooses a token for each row and makes it the next one's input; only rows of the group move on."""
        active = self.active[group, :batch]
        token, told = self.pick(slice(0, batch), logits, kind)
        self.token[:batch].copy_(torch.where(active > 0, token, self.token[:batch]))
        self.chosen[:batch].copy_(told)
        self.clock[:, :batch].add_(active)

    def pick(self, slots: slice, logits: Tensor, kind: str) -> tuple[Tensor, Tensor]:
        """The choice for these slots, see `choose`."""
        count = self.clock[1, slots].clamp(max=self.draws.shape[1] - 1)
        draw = self.draws[slots].gather(1, count[:, None])[:, 0]
        return choose(logits, self.forbidden[slots], self.temperature[slots], self.top_p[slots], draw, kind)

    def admit(self, slot: int, temperature: float, top_p: float, seed: int, tokens: int, banned: list[int]) -> None:
        """Prepares a slot for a generation of at most `tokens` tokens. It takes part in no step yet."""
        self.temperature[slot].fill_(temperature)
        self.top_p[slot].fill_(top_p)
        self.clock[:, slot].zero_()
        self.forbidden[slot, : self.known].zero_()
        self.forbidden[slot, self.known :].fill_(True)
        if banned:
            self.forbidden[slot].index_fill_(0, self.sent(torch.tensor(banned)), True)
        if temperature > 0:
            count = min(tokens, self.draws.shape[1])
            self.draws[slot, :count].copy_(self.sent(torch.from_numpy(uniforms(seed, count))))

    def begin(self, slot: int, group: int, position: int, logits: Tensor, kind: str) -> None:
        """Chooses a slot's first token from its prompt's logits [1, V]; from the next step on it takes part."""
        token, told = self.pick(slice(slot, slot + 1), logits, kind)
        self.token[slot : slot + 1].copy_(token)
        self.chosen[slot : slot + 1].copy_(told)
        self.clock[0, slot].fill_(position)
        self.clock[1, slot].fill_(1)
        self.active[group, slot].fill_(1)

    def release(self, slot: int) -> None:
        """The slot takes part no more."""
        self.active[:, slot].zero_()

    def move(self, source: int, target: int) -> None:
        """Moves a generation from one slot to another; the cache moves beside it."""
        for tensor in (self.token, self.temperature, self.top_p, self.draws, self.forbidden):
            tensor[target].copy_(tensor[source])
        self.clock[:, target].copy_(self.clock[:, source])
        self.active[:, target].copy_(self.active[:, source])
        self.release(source)

    def sent(self, tensor: Tensor) -> Tensor:
        """A tensor of the host on the device, without waiting for it."""
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

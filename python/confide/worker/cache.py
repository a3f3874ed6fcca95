"""The static cache of keys and values: slots × context, taken once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ModelConfig

# Rows of a slot beyond its context. The first takes what rows without a generation write, so that a batch may be padded
# up to its bucket; so many that a length rounded up to ROUND, which attention kernels want, lies within the cache.
SPARE = 64
ROUND = 64
# Left free on a device: activations of a prefill, CUDA graphs, libraries' workspaces.
RESERVE_BYTES = 3 << 29


class CacheTooLarge(Exception):
    """The cache does not fit; the text says what would."""


@dataclass(frozen=True)
class CacheSize:
    """The size of a cache. `context` is in tokens and a multiple of eight."""

    slots: int
    context: int

    def bytes(self, config: ModelConfig, dtype: torch.dtype) -> int:
        """Gives the bytes of the whole cache."""
        return self.slots * (self.context + SPARE) * token_bytes(config, dtype)


def token_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Gives the bytes of one token's keys and values in all layers."""
    return config.layers * 2 * config.key_width * dtype.itemsize


def free_bytes(device: torch.device) -> int:
    """Gives the bytes that can be taken on the device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def require_cache_fits(
    config: ModelConfig, dtype: torch.dtype, wanted: CacheSize, room: int
) -> None:
    """Refuses a cache larger than `room` bytes, and says how many slots or tokens would fit."""
    need = wanted.bytes(config, dtype)
    if need <= room:
        return
    each = token_bytes(config, dtype)
    slots = max(room, 0) // ((wanted.context + SPARE) * each)
    context = max(max(room, 0) // (wanted.slots * each) - SPARE, 0) // 8 * 8
    raise CacheTooLarge(
        f"cache: wanted {need} bytes for {wanted.slots} slots of {wanted.context} tokens, got room for {max(room, 0)}; "
        f"hint: give --slots {slots} or --context {context}"
    )


class Cache:
    """Keys and values [layers, 2, slots, kv_heads, context + SPARE, head_dim]; a batch's row i is slot i."""

    def __init__(
        self,
        config: ModelConfig,
        size: CacheSize,
        device: torch.device,
        dtype: torch.dtype,
        limit: int = 0,
    ) -> None:
        room = free_bytes(device) - RESERVE_BYTES if device.type == "cuda" else free_bytes(device)
        require_cache_fits(config, dtype, size, min(room, limit) if limit else room)
        self.size, self.length = size, size.context + SPARE
        shape = (config.layers, 2, size.slots, config.kv_heads, self.length, config.head_dim)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.idle_position = size.context

    def bytes(self) -> int:
        """Gives the bytes taken."""
        return self.values.nbytes

    def flat_rows(self, layer: int) -> Tensor:
        """Gives a layer's rows [2 · slots · kv_heads · length, head_dim], to be written by index."""
        return self.values[layer].view(-1, self.values.shape[-1])

    def layer_keys(self, layer: int, rows: int, context: int) -> Tensor:
        """Gives the keys of a layer, [rows, kv_heads, context, head_dim]."""
        return self.values[layer, 0, :rows, :, :context]

    def layer_values(self, layer: int, rows: int, context: int) -> Tensor:
        """Gives the values of a layer, [rows, kv_heads, context, head_dim]."""
        return self.values[layer, 1, :rows, :, :context]

    def clear(self, slot: int) -> None:
        """Zeroes a slot, so that what is not a number in it reaches nobody else."""
        self.values[:, :, slot].zero_()

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copies the first `tokens` tokens of a slot to another."""
        self.values[:, :, target, :, :tokens].copy_(self.values[:, :, source, :, :tokens])

"""Masks of both ends: crates/lora/src/mask.rs on a device."""

from __future__ import annotations

from . import arrays, runtime
from .arrays import Array
from .generator import upload_key

TILE = 32
_TOKENS_MAX = 1 << 30
_THREADS = 128


class MaskStream:
    """Words of ChaCha20 by tile of 32 columns and token, under a key of 32 bytes that lives on the device."""

    def __init__(self, key: bytes, device: str) -> None:
        """The key lives until `wipe()`."""
        self.device = device
        self._key: Array | None = upload_key(key, device)

    @property
    def key(self) -> Array:
        """uint32 [8], for a kernel."""
        if self._key is None:
            raise RuntimeError("mask stream: wiped")
        return self._key

    def rows(
        self, first_token: int, tokens: int, columns: int, bits: int, negated: bool = False
    ) -> Array:
        """Draws uint64 [tokens, columns], words mod 2^bits; with `negated`, 2^bits minus them."""
        _check(first_token, tokens, bits)
        made = arrays.empty((tokens, columns), "uint64", self.device)
        blocks = tokens * -(-columns // TILE) * 4
        grid = -(-blocks // _THREADS)
        self._kernel("mask_rows")(
            grid, _THREADS, self.key, first_token, tokens, columns, bits, int(negated), made
        )
        return made

    def draw_columns(
        self,
        tile: int,
        first_token: int,
        tokens: int,
        bits: int,
        negated: bool = False,
        tiles: int = 1,
    ) -> Array:
        """Draws uint64 [32 * tiles, tokens]: the columns of `tiles` tiles for all tokens."""
        _check(first_token, tokens, bits)
        made = arrays.empty((TILE * tiles, tokens), "uint64", self.device)
        grid = (-(-tokens // _THREADS), 4, tiles)
        kernel = self._kernel("mask_columns")
        kernel(grid, _THREADS, self.key, tile, first_token, tokens, bits, int(negated), made)
        return made

    def wipe(self) -> None:
        """Zeroes the key."""
        if self._key is not None:
            arrays.wipe(self._key)
            self._key = None

    def _kernel(self, name: str) -> runtime.Kernel:
        return runtime.Module("mask_stream.cu", self.device).kernel(name)


def _check(first_token: int, tokens: int, bits: int) -> None:
    if not (
        1 <= bits <= 64 and first_token >= 0 and tokens >= 1 and first_token + tokens <= _TOKENS_MAX
    ):
        raise ValueError(
            f"masks: wanted 1 to 64 bits and tokens below {_TOKENS_MAX}, got {bits} bits and "
            f"{tokens} tokens from {first_token}"
        )

"""ChaCha20 (RFC 8439) as a generator whose key lives on the device: crates/rlwe/src/rng.rs word by word."""

from __future__ import annotations

import os
import sys

import numpy as np

from . import arrays, runtime
from .arrays import Array

# 2^32 blocks of 8 words.
_WORDS_MAX = 1 << 35


class Rng:
    """Draws take whole words of 64 bits from the keystream, in order. `wipe()` zeroes the key."""

    def __init__(self, key: Array, device: str) -> None:
        """`key`: uint32 [8] on the device; it is this object's from here on."""
        self.device = device
        self._key: Array | None = key
        self._next = 0

    @classmethod
    def from_os(cls, device: str) -> Rng:
        """Makes a generator seeded by the operating system."""
        return cls.from_seed(os.urandom(32), device)

    @classmethod
    def from_seed(cls, seed: bytes, device: str) -> Rng:
        """Makes the generator of 32 bytes."""
        return cls(upload_key(seed, device), device)

    @property
    def key(self) -> Array:
        """The key, for a kernel."""
        if self._key is None:
            raise RuntimeError("generator: wiped, cannot draw")
        return self._key

    def reserve_words(self, words: int) -> int:
        """Uses up the next words for a kernel that makes them itself; gives the first one's index.

        Not while a CUDA graph is recorded: each replay would draw the same words again.
        """
        torch = sys.modules.get("torch")
        if (
            self.device.startswith("cuda")
            and torch is not None
            and torch.cuda.is_current_stream_capturing()
        ):
            raise RuntimeError(
                "generator: wanted no draw in a graph, whose replays would repeat it"
            )
        first = self._next
        if first + words > _WORDS_MAX:
            raise RuntimeError("generator: its 256 GiB are used up")
        self._next += words
        return first

    def words(self, count: int) -> Array:
        """Draws the next words, uint64 [count]."""
        drawn = arrays.empty(count, "uint64", self.device)
        first = self.reserve_words(count)
        blocks = -(-count // 8) + 1
        kernel = runtime.Module("encrypt.cu", self.device, {"RING_WORD": "uint64_t"}).kernel(
            "keystream"
        )
        kernel(min(1024, -(-blocks // 128)), 128, self.key, first, drawn, count)
        return drawn

    def seed(self) -> Array:
        """Draws a fresh seed, uint32 [8]."""
        return _as_seed(self.words(4))

    def wipe(self) -> None:
        """Zeroes the key; no draw is possible afterwards."""
        if self._key is not None:
            arrays.wipe(self._key)
            self._key = None


def upload_key(key: bytes, device: str) -> Array:
    """Copies 32 bytes to the device as uint32 [8]."""
    if len(key) != 32:
        raise ValueError(f"key: wanted 32 bytes, got {len(key)}")
    words = np.frombuffer(key, "<u4").copy()
    if device == "cpu":
        return words
    import torch

    made = torch.from_numpy(words).to(device)
    arrays.wipe(words)
    return made


def _as_seed(words: Array) -> Array:
    if isinstance(words, np.ndarray):
        return words.view(np.uint32)
    import torch

    return words.view(torch.uint32)

"""Masks of both ends: ChaCha20 streams that can be read at any token. crates/lora/src/mask.rs, the slow reference.

Tile i (32 columns) is the ChaCha20 stream (RFC 8439) of nonce i; token n has the 256 bytes from 256·n on: 32 words
of 64 bits, cut to their lowest k.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy

TILE = 32
_CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
_ANSWER_DOMAIN = b"confide lora answer mask v1"


def chacha20(key: bytes, counters: numpy.ndarray, nonces: numpy.ndarray) -> numpy.ndarray:
    """Keystream blocks, uint32 [blocks, 16], of counters uint32 [blocks] and nonces uint32 [blocks, 3]."""
    start = numpy.empty((16, len(counters)), numpy.uint32)
    start[:4] = numpy.array(_CONSTANTS, numpy.uint32)[:, None]
    start[4:12] = numpy.frombuffer(key, "<u4")[:, None]
    start[12], start[13:] = counters, nonces.T
    state = start.copy()

    def turn(value: numpy.ndarray, count: int) -> numpy.ndarray:
        return (value << numpy.uint32(count)) | (value >> numpy.uint32(32 - count))

    def quarter(a: list[int], b: list[int], c: list[int], d: list[int]) -> None:
        for one, other, target, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[one] += state[other]
            state[target] = turn(state[target] ^ state[one], count)

    rows = [list(range(first, first + 4)) for first in (0, 4, 8, 12)]
    diagonals = [rows[0], [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14]]
    for _ in range(10):
        quarter(*rows)
        quarter(*diagonals)
    return (state + start).T


def rows(key: bytes, first: int, tokens: int, columns: int, bits: int) -> numpy.ndarray:
    """Masks of tokens `first` to `first + tokens`, uint64 [tokens, columns], each below 2^bits."""
    tiles = -(-columns // TILE)
    token, tile, part = numpy.meshgrid(
        numpy.arange(first, first + tokens), numpy.arange(tiles), numpy.arange(4), indexing="ij"
    )
    nonces = numpy.zeros((token.size, 3), numpy.uint32)
    nonces[:, 0] = tile.ravel()
    words = chacha20(key, (token * 4 + part).ravel().astype(numpy.uint32), nonces)
    whole = numpy.ascontiguousarray(words).view("<u8").reshape(tokens, tiles * TILE)
    return whole[:, :columns] & numpy.uint64((1 << bits) - 1)


def answer_key(
    process_key: bytes,
    epoch: bytes,
    client: bytes,
    adapter: bytes,
    layer: int,
    source: int,
    nonce: bytes,
    batch: int,
) -> bytes:
    """The key of one batch's answer masks: HMAC-SHA-256 of all that names it, under the process key."""
    named = _ANSWER_DOMAIN + epoch + client + adapter + struct.pack("<IB", layer, source) + nonce
    return hmac.new(process_key, named + struct.pack("<Q", batch), hashlib.sha256).digest()

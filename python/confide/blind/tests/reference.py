"""The slow reference of the kernels' online step, in numpy: masks, rounding, products. crates/lora is its model.

Tile i (32 columns) of a mask is the ChaCha20 stream (RFC 8439) of nonce i; token n has the 256 bytes from 256·n on: 32
words of 64 bits, cut to their lowest k. Sums are in the order of the Rust code, so that every bit agrees.
"""

from __future__ import annotations

import math
import struct

import numpy

from confide.blind.errors import ActivationRefused
from confide.blind.terms import InputTerms
from confide.cuda.mask_stream import TILE

VECTOR_MAX = 32767
ROUNDING_ERROR_MAX = 1.0 / 1024.0
_CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
_LANES, _GROUP = 256, 32
_MAGIC = 6_755_399_441_055_744.0


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


def mask_rows(key: bytes, first: int, tokens: int, columns: int, bits: int) -> numpy.ndarray:
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


def quantise_vector(real: numpy.ndarray, limit: int) -> tuple[numpy.ndarray, float]:
    """float32 [columns] -> int16 whose Euclidean norm is at most `limit`, and the scale."""
    wide = real.astype(numpy.float64)
    square = _lane_sum(wide)
    if not math.isfinite(square):
        at = int(numpy.argmin(numpy.isfinite(real)))
        raise ActivationRefused(f"activation cannot be sent: entry {at} is not finite")
    greatest = float(numpy.abs(wide).max(initial=0.0))
    if greatest == 0.0:
        return numpy.zeros(len(real), numpy.int16), 1.0
    room = float(limit) - math.sqrt(float(len(real))) / 2.0 - 1.0
    if room < 1.0:
        raise _too_coarse(limit, math.inf)
    scale = max(greatest / float(VECTOR_MAX), math.sqrt(square) / room)
    values = (wide * (1.0 / scale) + _MAGIC).view(numpy.int64).astype(numpy.int16)
    norm_square = int((values.astype(numpy.int64) ** 2).sum())
    if norm_square > limit * limit:
        raise _too_coarse(limit, math.inf)
    if norm_square < len(real) / 4.0 / ROUNDING_ERROR_MAX**2:
        error = math.sqrt(float(((wide - scale * values) ** 2).sum()) / square)
        if error > ROUNDING_ERROR_MAX:
            raise _too_coarse(limit, error)
    return values, scale


def _too_coarse(limit: int, error: float) -> ActivationRefused:
    return ActivationRefused(
        f"activation cannot be sent: vector is too coarse: under the norm limit {limit} rounding adds {error:.1e}, "
        f"wanted at most {ROUNDING_ERROR_MAX:.1e}"
    )


def _lane_sum(wide: numpy.ndarray) -> float:
    """Sums the squares in 256 lanes, each in its order; then groups of 32 lanes and their totals in trees."""
    padded = numpy.zeros(-(-len(wide) // _LANES) * _LANES)
    padded[: len(wide)] = wide * wide
    lanes = numpy.cumsum(padded.reshape(-1, _LANES), axis=0)[-1]
    return float(_tree_sum(_tree_sum(lanes.reshape(-1, _GROUP).T)))


def _tree_sum(values: numpy.ndarray) -> numpy.ndarray:
    """Adds the upper half of the first axis to the lower half until one is left."""
    while len(values) > 1:
        values = values[: len(values) // 2] + values[len(values) // 2 :]
    return values[0]


def add_products(
    terms: InputTerms,
    projection: str,
    products: numpy.ndarray,
    scales: numpy.ndarray,
    outputs: numpy.ndarray,
) -> bool:
    """Adds what products mean: uint64 [vectors, rows], float64 [vectors], float32 [vectors, width] in place."""
    first = 0
    for part in terms.parts:
        if part.projection == projection:
            words = centre(products[:, first : first + part.rows], terms.bits)
            real = (words.astype(numpy.float64) * scales[:, None]).astype(numpy.float32)
            if part.factor is None:
                outputs += (real.astype(numpy.float64) * part.scale).astype(numpy.float32)
            else:
                outputs += real @ part.factor.T
            return True
        first += part.rows
    return False


def centre(words: numpy.ndarray, bits: int) -> numpy.ndarray:
    """Words mod 2^bits as the integers of least magnitude, int64."""
    shift = numpy.uint64(64 - bits)
    return (words << shift).view(numpy.int64) >> shift.astype(numpy.int64)

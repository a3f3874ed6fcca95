"""An adapter's real numbers to integers, and the bound that no product of them wraps: crates/lora/src/quantise.rs.

Sums are in the order of the Rust code, so that every bit agrees. Activations are rounded by cuda/quantise.cuh.
"""

from __future__ import annotations

import math

import numpy

from .errors import AdapterRefused

ENTRY_MAX = 4095
NORM_LIMIT_MAX = 1 << 40
VECTOR_BITS_MAX = 33


def quantise_rows(real: numpy.ndarray, row_l1_max: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Rounds float32 [rows, columns] to int16 of the same shape, with a float64 scale above 0 for each row."""
    wide = real.astype(numpy.float64)
    scales = numpy.array([_scale_of(row[None], row_l1_max) for row in wide])
    return _round_half_away(wide / scales[:, None]).astype(numpy.int16), scales


def quantise_with_one_scale(real: numpy.ndarray, row_l1_max: int) -> tuple[numpy.ndarray, float]:
    """Rounds float64 [rows, columns] to int16 with one scale, which tells nothing of a single row."""
    scale = _scale_of(real, row_l1_max)
    return _round_half_away(real / scale).astype(numpy.int16), scale


def norm_limit(matrix: numpy.ndarray, bits: int, headroom: int) -> int:
    """The greatest norm of an integer vector whose products, with headroom, stay below 2^(bits - 1)."""
    room = max((1 << (bits - 1)) - 1 - headroom, 0)
    greatest = int((matrix.astype(numpy.int64) ** 2).sum(axis=1).max())
    return (
        NORM_LIMIT_MAX
        if greatest == 0
        else min(math.isqrt(room * room // greatest), NORM_LIMIT_MAX)
    )


def _scale_of(rows: numpy.ndarray, row_l1_max: int) -> float:
    """The least scale under which entries stay within ENTRY_MAX and rows within `row_l1_max`."""
    if not numpy.isfinite(rows).all():
        raise AdapterRefused("adapter: wanted finite entries, got one that is not")
    greatest = float(numpy.abs(rows).max(initial=0.0))
    if greatest == 0.0:
        return 1.0
    if row_l1_max == 0:
        raise AdapterRefused("row bound: wanted at least 1, got 0")
    scale = greatest / ENTRY_MAX
    while True:
        longest = int(numpy.abs(_round_half_away(rows / scale)).sum(axis=1).max())
        if longest <= row_l1_max:
            return scale
        # Rounding up can keep a row above the bound: a little more than the ratio ends that.
        scale *= (longest / row_l1_max) * (1.0 + 1.0 / 65536.0)


def _round_half_away(values: numpy.ndarray) -> numpy.ndarray:
    """Rounds to the nearest integer, halves away from zero, as f64::round."""
    whole = numpy.trunc(values)
    return whole + numpy.copysign((numpy.abs(values - whole) >= 0.5).astype(numpy.float64), values)

"""Real numbers to integers, and the bound that no product of them wraps: crates/lora/src/quantise.rs, sum for sum.

The slow reference of cuda/quantise.cuh. Sums are in the order of the Rust code, so that every bit agrees.
"""

from __future__ import annotations

import math

import numpy

from .errors import ActivationRefused, AdapterRefused

ENTRY_MAX = 4095
VECTOR_MAX = 32767
NORM_LIMIT_MAX = 1 << 40
ROUNDING_ERROR_MAX = 1.0 / 1024.0
VECTOR_BITS_MAX = 33
_LANES = 8
_MAGIC = 6_755_399_441_055_744.0


def quantise_rows(
    real: numpy.ndarray, row_l1_max: int, entry_max: int = ENTRY_MAX
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """float32 [rows, columns] -> int16 of the same shape and a float64 scale above 0 for each row."""
    wide = real.astype(numpy.float64)
    scales = numpy.array([_scale_of(row[None], entry_max, row_l1_max) for row in wide])
    return _half_away(wide / scales[:, None]).astype(numpy.int16), scales


def quantise_whole(
    real: numpy.ndarray, row_l1_max: int, entry_max: int = ENTRY_MAX
) -> tuple[numpy.ndarray, float]:
    """float64 [rows, columns] -> int16 with one scale, which tells nothing of a single row."""
    scale = _scale_of(real, entry_max, row_l1_max)
    return _half_away(real / scale).astype(numpy.int16), scale


def norm_limit(matrix: numpy.ndarray, bits: int, headroom: int) -> int:
    """The greatest norm of an integer vector whose products, with headroom, stay below 2^(bits - 1)."""
    room = max((1 << (bits - 1)) - 1 - headroom, 0)
    greatest = int((matrix.astype(numpy.int64) ** 2).sum(axis=1).max())
    return (
        NORM_LIMIT_MAX
        if greatest == 0
        else min(math.isqrt(room * room // greatest), NORM_LIMIT_MAX)
    )


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
    """Sum of squares in eight lanes, each in its order, then the lanes in theirs."""
    whole = len(wide) // _LANES * _LANES
    squares = wide * wide
    lanes = numpy.zeros(_LANES)
    if whole:
        lanes = numpy.cumsum(squares[:whole].reshape(-1, _LANES), axis=0)[-1].copy()
    lanes[: len(wide) - whole] += squares[whole:]
    return float(numpy.cumsum(lanes)[-1])


def _scale_of(rows: numpy.ndarray, entry_max: int, row_l1_max: int) -> float:
    """The least scale under which entries stay within `entry_max` and rows within `row_l1_max`."""
    if not numpy.isfinite(rows).all():
        raise AdapterRefused("adapter: wanted finite entries, got one that is not")
    greatest = float(numpy.abs(rows).max(initial=0.0))
    if greatest == 0.0:
        return 1.0
    if row_l1_max == 0:
        raise AdapterRefused("row bound: wanted at least 1, got 0")
    scale = greatest / float(min(entry_max, ENTRY_MAX))
    while True:
        longest = int(numpy.abs(_half_away(rows / scale)).sum(axis=1).max())
        if longest <= row_l1_max:
            return scale
        # Rounding up can keep a row above the bound: a little more than the ratio ends that.
        scale *= (longest / row_l1_max) * (1.0 + 1.0 / 65536.0)


def _half_away(values: numpy.ndarray) -> numpy.ndarray:
    """To the nearest integer, halves away from zero, as f64::round."""
    whole = numpy.trunc(values)
    return whole + numpy.copysign((numpy.abs(values - whole) >= 0.5).astype(numpy.float64), values)

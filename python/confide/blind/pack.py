"""Integers modulo 2^k in k bits each, least significant bit first: the host's end of the wire, in numpy."""

from __future__ import annotations

import numpy


def packed_bytes(count: int, bits: int) -> int:
    """Gives the bytes that `count` values of `bits` bits take."""
    return (count * bits + 7) // 8


def pack(values: numpy.ndarray, bits: int) -> bytes:
    """Packs uint64 [vectors, count], each below 2^bits: each vector by itself into whole bytes."""
    values = numpy.ascontiguousarray(values, dtype="<u8")
    vectors, count = values.shape
    planes = numpy.unpackbits(
        values.view(numpy.uint8).reshape(vectors, count, 8), axis=2, bitorder="little"
    )
    return numpy.packbits(
        planes[:, :, :bits].reshape(vectors, count * bits), axis=1, bitorder="little"
    ).tobytes()


def unpack(packed: bytes, bits: int, vectors: int, count: int) -> numpy.ndarray | None:
    """Unpacks to uint64 [vectors, count]; None if the length differs or a bit beyond the last value is set."""
    each = packed_bytes(count, bits)
    if not 1 <= bits <= 64 or len(packed) != each * vectors:
        return None
    rows = numpy.frombuffer(packed, numpy.uint8).reshape(vectors, each)
    if has_stray_bits(rows, bits, count):
        return None
    planes = numpy.unpackbits(rows, axis=1, bitorder="little")
    whole = numpy.zeros((vectors, count, 64), numpy.uint8)
    whole[:, :, :bits] = planes[:, : count * bits].reshape(vectors, count, bits)
    return (
        numpy.packbits(whole, axis=2, bitorder="little")
        .view("<u8")
        .reshape(vectors, count)
        .astype(numpy.uint64)
    )


def has_stray_bits(rows: numpy.ndarray, bits: int, count: int) -> bool:
    """Whether a bit beyond the last of `count` values is set in any of uint8 [vectors, bytes]."""
    last = count * bits % 8
    return bool(last and (rows[:, -1] >> last).any())

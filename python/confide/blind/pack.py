"""Vectors of integers modulo 2^k in k bits each, as numpy arrays: the native part packs and unpacks."""

from __future__ import annotations

import numpy

from .._extension import native

packed_bytes = native.packed_bytes


def pack(values: numpy.ndarray, bits: int) -> bytes:
    """Packs uint64 [vectors, count], each below 2^bits: each vector by itself into whole bytes."""
    return native.pack(numpy.ascontiguousarray(values, numpy.uint64), bits)


def unpack(packed: bytes, bits: int, vectors: int, count: int) -> numpy.ndarray | None:
    """Unpacks to uint64 [vectors, count]; None if the length differs or a bit beyond the last value is set."""
    words = native.unpack(packed, bits, vectors, count)
    return None if words is None else numpy.frombuffer(words, "<u8").reshape(vectors, count)

"""The wire forms of crates/rlwe/src/wire.rs: version, kind, set, plaintext bits, then fields of exact length; values
packed at the width of their prime on the device. Whatever is not the one form that is written here is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import arrays
from .arrays import Array

if TYPE_CHECKING:
    from .context import Context

VERSION = 1
HEADER_BYTES = 4
SEED_BYTES = 32
_THREADS = 256


class Kind(NamedTuple):
    """A type that has a wire form: its name and number."""

    name: str
    number: int


SEEDED = Kind("seeded ciphertext", 1)
PUBLIC_KEY = Kind("public key", 2)
SMALL = Kind("answer", 3)


class WireError(ValueError):
    """Bytes that are not the one form of what they were read as."""


def header(context: Context, kind: Kind) -> bytes:
    """Gives the four bytes that every form begins with."""
    return bytes([VERSION, kind.number, context.set.id, context.bits])


def read_body(context: Context, kind: Kind, form: bytes, length: int | None = None) -> bytes:
    """Checks the header of a form and gives what follows it; `length` is the whole form's."""
    if len(form) < HEADER_BYTES:
        raise WireError(f"{kind.name}: ends early")
    if form[:HEADER_BYTES] != header(context, kind):
        wanted, got = header(context, kind).hex(), form[:HEADER_BYTES].hex()
        raise WireError(
            f"{kind.name}: another version, type or parameter set, wanted {wanted}, got {got}"
        )
    if length is not None and len(form) != length:
        raise WireError(f"{kind.name}: wanted {length} bytes, got {len(form)}")
    return form[HEADER_BYTES:]


def packed_bytes(context: Context, limbs: int, count: int) -> int:
    """Gives the bytes of `count` values in each of the first limbs."""
    return sum(-(-count * prime.bit_length() // 8) for prime in context.primes[:limbs])


def pack(context: Context, values: Array) -> list[bytes]:
    """Returns the bytes of each of `values` [count, limbs, n], modulo the first limbs."""
    count, limbs, n = values.shape
    starts, total = _layout(context, limbs, n)
    words = arrays.zeros((count, total), "uint64", context.device)
    if n > 0:
        grid = (-(-n // _THREADS), limbs, count)
        given = arrays.to_device(starts, "uint32", context.device, "starts", (limbs,))
        context.kernel("wire.cu", "pack")(
            grid, _THREADS, values, context.limb_table, given, words, total, n
        )
    size = packed_bytes(context, limbs, n)
    rows = arrays.to_host(words).view(np.uint8).reshape(count, 8 * total)
    return [row[:size].tobytes() for row in rows]


def unpack(context: Context, kind: Kind, forms: Sequence[bytes], limbs: int, n: int) -> Array:
    """Undoes `pack`: gives [count, limbs, n]; refuses values that are not reduced and spare bits."""
    starts, total = _layout(context, limbs, n)
    size = packed_bytes(context, limbs, n)
    # The kernel reads a word beyond the last.
    rows = np.zeros((len(forms), total + 1), np.uint64)
    for row, form in zip(rows.view(np.uint8).reshape(len(forms), -1), forms):
        if len(form) != size:
            raise WireError(f"{kind.name}: wanted {size} bytes of values, got {len(form)}")
        row[:size] = np.frombuffer(form, np.uint8)
    spare = 8 * size - n * context.primes[0].bit_length() if limbs == 1 else 0
    if spare and any(form[-1] >> (8 - spare) for form in forms):
        raise WireError(f"{kind.name}: spare bits are not zero")
    values = arrays.empty((len(forms), limbs, n), "uint64", context.device)
    if n == 0:
        return values
    status = arrays.zeros(len(forms), "uint32", context.device)
    words = arrays.to_device(rows, "uint64", context.device, "words", rows.shape)
    given = arrays.to_device(starts, "uint32", context.device, "starts", (limbs,))
    grid = (-(-n // _THREADS), limbs, len(forms))
    kernel = context.kernel("wire.cu", "unpack")
    kernel(grid, _THREADS, words, context.limb_table, given, values, status, total + 1, n)
    if arrays.to_host(status).any():
        raise WireError(f"{kind.name}: a value is not below its modulus")
    return values


def _layout(context: Context, limbs: int, n: int) -> tuple[np.ndarray, int]:
    """Where each limb's words begin, and how many words there are in all."""
    lengths = [-(-n * prime.bit_length() // 64) for prime in context.primes[:limbs]]
    starts = np.cumsum([0, *lengths])
    return starts[:-1].astype(np.uint32), int(starts[-1])

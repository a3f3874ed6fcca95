"""Fresh encryptions and switched-down answers, and their wire forms."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from . import arrays, wire
from .arrays import Array
from .context import Context
from .wire import WireError


class SeededCiphertexts:
    """Fresh encryptions: `.c0 [count, limbs, n]` in NTT form, and the seeds and indices that c1 is expanded from."""

    def __init__(self, context: Context, c0: Array, seeds: list[bytes], indices: list[int]) -> None:
        self.context, self.c0, self.seeds, self.indices = context, c0, seeds, indices

    @staticmethod
    def wire_bytes(context: Context) -> int:
        """Gives the bytes of one wire form."""
        fixed = wire.HEADER_BYTES + wire.SEED_BYTES + 4
        return fixed + wire.packed_bytes(context, context.limbs, context.n)

    def to_wire_forms(self) -> list[bytes]:
        """Encodes all, each as header, seed, index and c0: one copy from the device."""
        if not self.seeds:
            return []
        start, bodies = wire.header(self.context, wire.SEEDED), wire.pack(self.context, self.c0)
        parts = zip(self.seeds, self.indices, bodies)
        return [start + seed + struct.pack("<I", index) + body for seed, index, body in parts]

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> SeededCiphertexts:
        """Reads wire forms; raises WireError for anything else."""
        length, end = cls.wire_bytes(context), wire.SEED_BYTES
        opened = [wire.read_body(context, wire.SEEDED, bytes(form), length) for form in forms]
        bodies = [form[end + 4 :] for form in opened]
        c0 = wire.unpack(context, wire.SEEDED, bodies, context.limbs, context.n)
        indices = [struct.unpack("<I", form[end : end + 4])[0] for form in opened]
        return cls(context, c0, [form[:end] for form in opened], indices)

    def expand(self) -> tuple[Array, Array]:
        """Expands the seeds: gives (c0, c1), both [count, limbs, n] in NTT form."""
        return self.c0, public_polynomials(self.context, self.seeds, self.indices)


def public_polynomials(context: Context, seeds: list[bytes], indices: list[int]) -> Array:
    """Expands seeds and indices to public polynomials, [count, limbs, n] in NTT form."""
    count = len(seeds)
    words = np.frombuffer(b"".join(seeds), "<u4").reshape(count, 8).copy()
    given = arrays.to_device(words, "uint32", context.device, "seeds", (count, 8))
    places = np.array(indices, np.uint32)
    return expand_seeds(
        context, given, arrays.to_device(places, "uint32", context.device, "indices", (count,))
    )


def expand_seeds(context: Context, seeds: Array, indices: Array) -> Array:
    """Expands seeds uint32 [count, 8] and indices uint32 [count] on the device as `public_polynomials` does."""
    count = seeds.shape[0]
    values = arrays.empty((count, context.limbs, context.n), "uint64", context.device)
    if count == 0:
        return values
    kernel, block = context.kernel("encrypt.cu", "public_polynomials"), context.transform["block"]
    given = (seeds, indices, context.limb_table, values, context.log_n)
    kernel((count, context.limbs), block, *given)
    return values


class SmallCiphertexts:
    """Answers switched down to the first limb, in coefficient form: `.c0 [count, n or positions]`, `.c1 [count, n]`."""

    def __init__(
        self, context: Context, c0: Array, c1: Array, positions: tuple[int, ...] | None = None
    ) -> None:
        """positions: where c0's values stand, ascending; None: everywhere."""
        self.context, self.c0, self.c1, self.positions = context, c0, c1, positions

    @property
    def count(self) -> int:
        """The number of answers."""
        return self.c1.shape[0]

    @staticmethod
    def wire_bytes(context: Context, count: int) -> int:
        """Gives the bytes of an answer with `count` of n messages."""
        bits, n = context.primes[0].bit_length(), context.n
        places = 0 if count == n else 2 * count
        return wire.HEADER_BYTES + 4 + places + -(-count * bits // 8) + n * bits // 8

    def to_wire_forms(self) -> list[bytes]:
        """Encodes all, each as header, count, positions where not all are there, c0 and c1: two copies."""
        if self.count == 0:
            return []
        context = self.context
        start = wire.header(context, wire.SMALL) + struct.pack("<I", self.c0.shape[1])
        if self.positions is not None:
            start += struct.pack(f"<{len(self.positions)}H", *self.positions)
        first = wire.pack(context, self.c0.reshape(self.count, 1, -1))
        second = wire.pack(context, self.c1.reshape(self.count, 1, -1))
        return [start + c0 + c1 for c0, c1 in zip(first, second)]

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> SmallCiphertexts:
        """Reads wire forms, all with the same positions; raises WireError for anything else."""
        n, heads, firsts, seconds = context.n, set(), [], []
        for form in forms:
            rest = wire.read_body(context, wire.SMALL, bytes(form))
            if len(rest) < 4:
                raise WireError("answer: the bytes end early")
            count = struct.unpack("<I", rest[:4])[0]
            if count > n:
                raise WireError("answer: more messages than coefficients")
            wire.read_body(context, wire.SMALL, bytes(form), cls.wire_bytes(context, count))
            end = 4 + (0 if count == n else 2 * count)
            heads.add(rest[:end])
            middle = end + -(-count * context.primes[0].bit_length() // 8)
            firsts.append(rest[end:middle])
            seconds.append(rest[middle:])
        if len(heads) != 1:
            raise WireError(f"answers: wanted one set of positions, got {len(heads)}")
        head = heads.pop()
        count = struct.unpack("<I", head[:4])[0]
        positions = None if count == n else struct.unpack(f"<{count}H", head[4:])
        if positions is not None:
            ascending = all(a < b for a, b in itertools.pairwise(positions))
            if not ascending or (positions and positions[-1] >= n):
                raise WireError("answer: positions are not ascending below N")
        c0 = wire.unpack(context, wire.SMALL, firsts, 1, count)
        c1 = wire.unpack(context, wire.SMALL, seconds, 1, n)
        return cls(context, c0.reshape(len(firsts), count), c1.reshape(len(firsts), n), positions)

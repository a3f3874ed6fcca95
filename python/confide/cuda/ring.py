"""Exact encryption of integers mod 2^k (crates/rlwe) on a device: keys, encryption, products, answers, wire forms.

Arrays are numpy on "cpu" and torch tensors on "cuda:N", uint64 unless said (int64 tensors of the same bits are taken
too, since torch has little arithmetic for uint64). Ciphertexts are in NTT form `[count, limbs, n]`, order and reduction
as crates/rlwe has them; answers that were switched down are in coefficient form `[count, n]`. Bytes are those of
crates/rlwe/src/wire.rs.

A generator of one seed gives what `Rng` of crates/rlwe gives for the same calls, so both sides are tested against
vectors/rlwe/*.json. Where no generator is given, one is seeded from the operating system and wiped after the call.

Secrets (the key, a generator's key, messages) are in the device's memory until `wipe()`; errors, ternary masks and
flooding are in registers and shared memory only. Kernels have no branch and no address that depends on a secret.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import Iterator, Sequence

import numpy as np

from . import arrays, parameters, primes, runtime, wire
from .arrays import Array
from .generator import Rng
from .mask_stream import MaskStream
from .parameters import ParameterSet
from .wire import WireError

__all__ = [
    "Context", "Encryptor", "MaskStream", "PlaintextProducts", "PublicKey", "Rng", "ScalarProducts", "SecretKey",
    "Seeded", "Small", "WireError",
]  # fmt: skip

# As crates/rlwe/src/products.rs.
_SIDE_MAX = 1 << 17
_THREADS = 128


class Context:
    """A parameter set at work on a device: `.n .primes .limbs .bits .device .set`."""

    def __init__(self, set_name: str, plaintext_bits: int | None = None, device: str = "cpu") -> None:
        """A set of at least 128 bits whose answers are flooded; `plaintext_bits` None: the set's own."""
        self._make(parameters.named(set_name), plaintext_bits, device)

    @classmethod
    def dangerous_named(cls, set_name: str, plaintext_bits: int | None = None, device: str = "cpu") -> Context:
        """Any set: also those below 128 bits, and those that are not flooded."""
        made = object.__new__(cls)
        made._make(parameters.dangerous_named(set_name), plaintext_bits, device)
        return made

    def _make(self, chosen: ParameterSet, plaintext_bits: int | None, device: str) -> None:
        if plaintext_bits is not None and plaintext_bits != chosen.plaintext_bits:
            chosen = chosen.with_plaintext_bits(plaintext_bits)
        self.set, self.device = chosen, "cuda:0" if device == "cuda" else device
        self.n, self.primes, self.limbs, self.bits = chosen.n, chosen.primes, chosen.limbs, chosen.plaintext_bits
        self.log_n = self.n.bit_length() - 1
        self.message_mask = (1 << self.bits) - 1
        narrow = max(self.primes) < 1 << 30
        self._defines = {"RING_WORD": "uint32_t" if narrow else "uint64_t"}
        # A word of padding after as many as there are banks: `at(n)` of ntt.cuh.
        words = self.n + (self.n >> (5 if narrow else 4))
        self.transform = {"block": min(512, max(32, self.n // 16)), "shared": words * (4 if narrow else 8)}
        self._fill_tables()

    def _fill_tables(self) -> None:
        one, n = self.set, self.n
        rows = [primes.limb(n, q, one.plaintext_bits, one.flood_bits, one.product_noise) for q in self.primes]
        inverses = np.zeros((self.limbs, self.limbs, 2), np.uint64)
        for last, dropped in enumerate(self.primes):
            for index, q in enumerate(self.primes[:last]):
                inverses[last, index] = primes.shoup(pow(dropped, -1, q), q)
        product = 1
        for q in self.primes:
            product *= q
        t = 1 << one.plaintext_bits
        encoding = [one.plaintext_bits, product % t, (t << 64) // self.primes[0], one.flood_bits]
        self.limb_table = self._table(np.array(rows, np.uint64))
        self.roots = self._table(np.stack([primes.roots(n, q) for q in self.primes]))
        self.inverses = self._table(inverses)
        self.encoding = self._table(np.array(encoding, np.uint64))

    def _table(self, values: np.ndarray) -> Array:
        return arrays.on_device(values, "uint64", self.device, "table", values.shape)

    @property
    def row_l1_max(self) -> int:
        """Greatest sum of magnitudes of the weights that enter one answer."""
        return self.set.row_l1_max

    @property
    def flood_bits(self) -> int:
        """Flooding is uniform in +-2^flood_bits times the bound of the products' noise; 0: none."""
        return self.set.flood_bits

    def kernel(self, file: str, name: str) -> runtime.Kernel:
        """A kernel for this context's words."""
        worded = file in ("ntt.cu", "encrypt.cu", "keys.cu", "products.cu")
        return runtime.Module(file, self.device, self._defines if worded else {}).kernel(name)

    def launch(self, file: str, name: str, grid: int | tuple[int, ...], *arguments: object) -> None:
        """A kernel of whole polynomials: a block each, the polynomial in shared memory."""
        shape = self.transform
        self.kernel(file, name)(grid, shape["block"], *arguments, shared=shape["shared"])

    def residues(self, values: Array, what: str = "values") -> Array:
        """An array [count, limbs, n] as kernels take it."""
        return arrays.on_device(values, "uint64", self.device, what, (None, self.limbs, self.n))

    def ntt_forward(self, values: Array) -> Array:
        """[count, limbs, n] in coefficient form to NTT form, a new array."""
        return self._transformed("ntt_forward", values)

    def ntt_inverse(self, values: Array) -> Array:
        """The inverse of `ntt_forward`."""
        return self._transformed("ntt_inverse", values)

    def transform_in_place(self, name: str, values: Array) -> None:
        """`ntt_forward` or `ntt_inverse` on an array whose last two axes are [limbs, n]."""
        count = int(np.prod(tuple(values.shape))) // self.n
        self.launch("ntt.cu", name, count, values, self.limb_table, self.roots, self.limbs, self.log_n)

    def _transformed(self, name: str, values: Array) -> Array:
        given = self.residues(values)
        made = given.copy() if isinstance(given, np.ndarray) else given.clone()
        self.transform_in_place(name, made)
        return made


@contextmanager
def _generator(context: Context, rng: Rng | None) -> Iterator[Rng]:
    """The generator given, or one from the operating system that is wiped afterwards."""
    if rng is not None:
        yield rng
        return
    fresh = Rng.from_os(context.device)
    try:
        yield fresh
    finally:
        fresh.wipe()


class SecretKey:
    """A ternary secret, in the device's memory only, never written out. `wipe()` zeroes it."""

    def __init__(self, context: Context, secret: Array) -> None:
        """secret [limbs, n] in NTT form; it is this object's from here on."""
        self.context = context
        self._secret: Array | None = secret

    @classmethod
    def random(cls, context: Context, rng: Rng | None = None) -> SecretKey:
        """A fresh key."""
        secret = arrays.empty((context.limbs, context.n), "uint64", context.device)
        with _generator(context, rng) as drawn:
            first = drawn.take(context.n)
            tables = (context.limb_table, context.roots)
            context.launch("encrypt.cu", "secret_key", context.limbs, drawn.key, first, *tables, secret, context.log_n)
        return cls(context, secret)

    @property
    def secret(self) -> Array:
        """[limbs, n] in NTT form, for a kernel."""
        if self._secret is None:
            raise RuntimeError("secret key: wiped")
        return self._secret

    def public_key(self, rng: Rng | None = None) -> PublicKey:
        """The public key that goes with it; each call makes another one."""
        with _generator(self.context, rng) as drawn:
            seed = drawn.seed()
            b = self._encrypted(None, 1, drawn, seed, 0)
        return PublicKey(self.context, arrays.host(seed).tobytes(), b)

    def encryptor(self, rng: Rng | None = None) -> Encryptor:
        """Encrypts many vectors of messages under one public seed."""
        return Encryptor(self, rng)

    def decrypt(self, answers: Small) -> Array:
        """The messages of each answer, `[count, n]` or `[count, positions]`, in [0, 2^k)."""
        context, kept = self.context, answers.c0.shape[1]
        if answers.context.set != context.set:
            raise ValueError(f"answer: wanted one of {context.set.name}, got one of {answers.context.set.name}")
        messages = arrays.empty((answers.count, kept), "uint64", context.device)
        if answers.count == 0 or kept == 0:
            return messages
        places = None
        if answers.positions is not None:
            given = np.array(answers.positions, np.uint32)
            places = arrays.on_device(given, "uint32", context.device, "positions", (kept,))
        tables = (context.limb_table, context.roots, context.encoding)
        parts = (answers.c0, answers.c1, places, self.secret)
        context.launch("keys.cu", "decrypt", answers.count, *parts, *tables, messages, kept, context.log_n)
        return messages

    def wipe(self) -> None:
        """Zeroes the secret."""
        if self._secret is not None:
            arrays.wipe(self._secret)
            self._secret = None

    def _encrypted(self, messages: Array | None, count: int, rng: Rng, seed: Array, first_index: int) -> Array:
        """c0 of `count` encryptions; the errors are the generator's next words."""
        context = self.context
        c0 = arrays.empty((count, context.limbs, context.n), "uint64", context.device)
        first = rng.take(count * context.n)
        tables = (context.limb_table, context.roots, context.encoding)
        given = (messages, rng.key, first, seed, first_index, self.secret)
        context.launch("encrypt.cu", "encrypt", (count, context.limbs), *given, *tables, c0, context.log_n)
        return c0


class PublicKey:
    """b = -a*s + e with a from a seed: whoever has it hides results from the holder of the secret key."""

    def __init__(self, context: Context, seed: bytes, b: Array) -> None:
        """b [1, limbs, n] in NTT form."""
        self.context, self.seed, self.b = context, seed, b
        self.a = _public(context, [seed], [0])

    def to_bytes(self) -> bytes:
        """Its wire form: header, seed, b."""
        return wire.header(self.context, wire.PUBLIC_KEY) + self.seed + wire.packed(self.context, self.b)[0]

    @classmethod
    def from_bytes(cls, context: Context, data: bytes) -> PublicKey:
        """From its wire form; whatever is not that form raises WireError."""
        length = wire.HEADER_BYTES + wire.SEED_BYTES + wire.packed_bytes(context, context.limbs, context.n)
        rest = wire.opened(context, wire.PUBLIC_KEY, bytes(data), length)
        b = wire.unpacked(context, wire.PUBLIC_KEY, [rest[wire.SEED_BYTES :]], context.limbs, context.n)
        return cls(context, rest[: wire.SEED_BYTES], b)


class Encryptor:
    """Encrypts vectors of messages one after the other under one public seed. `wipe()` zeroes its generator."""

    def __init__(self, key: SecretKey, rng: Rng | None = None) -> None:
        """The generator is this object's from here on; its first words are the public seed."""
        self.key = key
        self._rng = Rng.from_os(key.context.device) if rng is None else rng
        self._seed = self._rng.seed()
        self.seed = arrays.host(self._seed).tobytes()
        self._next = 0

    def encrypt(self, messages: Array) -> Seeded:
        """messages [count, n], taken mod 2^k."""
        context = self.key.context
        given = arrays.on_device(messages, "uint64", context.device, "messages", (None, context.n))
        count = given.shape[0]
        if self._next + count >= 1 << 32:
            raise ValueError(f"ciphertexts of one seed: wanted at most {(1 << 32) - 1}, got {self._next + count}")
        indices = list(range(self._next, self._next + count))
        self._next += count
        c0 = self.key._encrypted(given, count, self._rng, self._seed, indices[0]) if count else None
        if c0 is None:
            c0 = arrays.empty((0, context.limbs, context.n), "uint64", context.device)
        return Seeded(context, c0, [self.seed] * count, indices)

    def wipe(self) -> None:
        """Zeroes the generator's key."""
        self._rng.wipe()


class Seeded:
    """Fresh encryptions: `.c0 [count, limbs, n]` in NTT form, and the seeds and indices that c1 is expanded from."""

    def __init__(self, context: Context, c0: Array, seeds: list[bytes], indices: list[int]) -> None:
        self.context, self.c0, self.seeds, self.indices = context, c0, seeds, indices

    @staticmethod
    def wire_bytes(context: Context) -> int:
        """Bytes that each has."""
        fixed = wire.HEADER_BYTES + wire.SEED_BYTES + 4
        return fixed + wire.packed_bytes(context, context.limbs, context.n)

    def to_bytes(self, index: int) -> bytes:
        """The wire form of one: header, seed, index, c0."""
        one = slice(index, index + 1)
        return Seeded(self.context, self.c0[one], self.seeds[one], self.indices[one]).all_bytes()[0]

    def all_bytes(self) -> list[bytes]:
        """The wire forms of all: one copy from the device."""
        if not self.seeds:
            return []
        start, bodies = wire.header(self.context, wire.SEEDED), wire.packed(self.context, self.c0)
        parts = zip(self.seeds, self.indices, bodies)
        return [start + seed + struct.pack("<I", index) + body for seed, index, body in parts]

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> Seeded:
        """From wire forms; whatever is not that form raises WireError."""
        length, end = cls.wire_bytes(context), wire.SEED_BYTES
        opened = [wire.opened(context, wire.SEEDED, bytes(form), length) for form in forms]
        bodies = [form[end + 4 :] for form in opened]
        c0 = wire.unpacked(context, wire.SEEDED, bodies, context.limbs, context.n)
        indices = [struct.unpack("<I", form[end : end + 4])[0] for form in opened]
        return cls(context, c0, [form[:end] for form in opened], indices)

    def expand(self) -> tuple[Array, Array]:
        """(c0, c1), both [count, limbs, n] in NTT form."""
        return self.c0, _public(self.context, self.seeds, self.indices)


def _public(context: Context, seeds: list[bytes], indices: list[int]) -> Array:
    """The public polynomials of seeds and indices, [count, limbs, n] in NTT form."""
    count = len(seeds)
    values = arrays.empty((count, context.limbs, context.n), "uint64", context.device)
    if count == 0:
        return values
    words = np.frombuffer(b"".join(seeds), "<u4").reshape(count, 8).copy()
    given = arrays.on_device(words, "uint32", context.device, "seeds", (count, 8))
    places = arrays.on_device(np.array(indices, np.uint32), "uint32", context.device, "indices", (count,))
    kernel = context.kernel("encrypt.cu", "public_polynomials")
    block = context.transform["block"]
    kernel((count, context.limbs), block, given, places, context.limb_table, values, context.log_n)
    return values


class Small:
    """Answers switched down to the first limb, in coefficient form: `.c0 [count, n or positions]`, `.c1 [count, n]`."""

    def __init__(self, context: Context, c0: Array, c1: Array, positions: tuple[int, ...] | None = None) -> None:
        """positions: where c0's values stand, ascending; None: everywhere."""
        self.context, self.c0, self.c1, self.positions = context, c0, c1, positions

    @property
    def count(self) -> int:
        """How many answers these are."""
        return self.c1.shape[0]

    def select(self, positions: Sequence[int]) -> Small:
        """Keeps of c0 only the coefficients at the positions, which are ascending and below n."""
        kept, n = tuple(int(position) for position in positions), self.context.n
        if self.positions is not None:
            raise ValueError(f"answer to select from: wanted {n} messages, got {self.c0.shape[1]}")
        if any(a >= b for a, b in zip(kept, kept[1:])) or not all(0 <= place < n for place in kept):
            raise ValueError(f"positions: wanted ascending ones below {n}")
        if len(kept) == n:
            return self
        return Small(self.context, arrays.take_columns(self.c0, kept), self.c1, kept)

    @staticmethod
    def wire_bytes(context: Context, count: int) -> int:
        """Bytes of an answer with `count` of n messages."""
        bits, n = context.primes[0].bit_length(), context.n
        places = 0 if count == n else 2 * count
        return wire.HEADER_BYTES + 4 + places + -(-count * bits // 8) + n * bits // 8

    def to_bytes(self, index: int) -> bytes:
        """The wire form of one: header, count, positions where not all are there, c0, c1."""
        one = slice(index, index + 1)
        return Small(self.context, self.c0[one], self.c1[one], self.positions).all_bytes()[0]

    def all_bytes(self) -> list[bytes]:
        """The wire forms of all: one copy from the device for each part."""
        if self.count == 0:
            return []
        context = self.context
        start = wire.header(context, wire.SMALL) + struct.pack("<I", self.c0.shape[1])
        if self.positions is not None:
            start += struct.pack(f"<{len(self.positions)}H", *self.positions)
        first = wire.packed(context, self.c0.reshape(self.count, 1, -1))
        second = wire.packed(context, self.c1.reshape(self.count, 1, -1))
        return [start + c0 + c1 for c0, c1 in zip(first, second)]

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> Small:
        """From wire forms, all with the same positions; whatever is not that form raises WireError."""
        n, heads, firsts, seconds = context.n, set(), [], []
        for form in forms:
            rest = wire.opened(context, wire.SMALL, bytes(form))
            if len(rest) < 4:
                raise WireError("answer: ends early")
            count = struct.unpack("<I", rest[:4])[0]
            if count > n:
                raise WireError("answer: more messages than coefficients")
            wire.opened(context, wire.SMALL, bytes(form), cls.wire_bytes(context, count))
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
            ascending = all(a < b for a, b in zip(positions, positions[1:]))
            if not ascending or (positions and positions[-1] >= n):
                raise WireError("answer: positions are not ascending below N")
        c0 = wire.unpacked(context, wire.SMALL, firsts, 1, count)
        c1 = wire.unpacked(context, wire.SMALL, seconds, 1, n)
        return cls(context, c0.reshape(len(firsts), count), c1.reshape(len(firsts), n), positions)


def hide(context: Context, parts: Array, plain: Array | None, key: PublicKey, rng: Rng | None) -> None:
    """parts [rows, 2, limbs, n], in NTT form, plus a fresh flooded encryption of plain [rows, n] (None: of zero) under
    the key: in coefficient form, in place. Six words of the generator for each coefficient.
    """
    if context.flood_bits == 0:
        raise ValueError(f"{context.set.name}: not flooded, an encryption of zero would protect nothing")
    if key.context.set.name != context.set.name:
        raise ValueError(f"public key: wanted one of {context.set.name}, got one of {key.context.set.name}")
    rows = parts.shape[0]
    if plain is not None:
        plain = arrays.on_device(plain, "uint64", context.device, "plain", (rows, context.n))
    with _generator(context, rng) as drawn:
        first = drawn.take(6 * context.n * rows)
        if first % 2:
            raise ValueError("generator: wanted one that gave an even count of words")
        tables = (context.limb_table, context.roots, context.encoding)
        bound = runtime.u64(context.set.product_noise)
        given = (parts, plain, drawn.key, first, key.a, key.b, bound)
        context.launch("encrypt.cu", "hide", (rows, 2 * context.limbs), *given, *tables, context.log_n)


def switched_down(context: Context, parts: Array) -> Small:
    """parts [rows, 2, limbs, n] in coefficient form, divided by all primes but the first."""
    rows = parts.shape[0]
    c0, c1 = (arrays.empty((rows, context.n), "uint64", context.device) for _ in range(2))
    grid = (-(-context.n // _THREADS), 2 * rows)
    kernel = context.kernel("switch.cu", "switch_down")
    kernel(grid, _THREADS, parts, context.limb_table, context.inverses, c0, c1, context.limbs, context.n)
    return Small(context, c0, c1)


class ScalarProducts:
    """out_i = sum over j of matrix_ij * ct_j, the offline work of an adapter host. Holds the sums:
    16 * limbs * n bytes for each row, 128 KiB at two limbs of n = 4096.
    """

    def __init__(self, context: Context, matrix: Array) -> None:
        """matrix int16 [rows, columns]; a row's magnitudes sum to at most the context's `row_l1_max`."""
        values = arrays.host(matrix) if not isinstance(matrix, np.ndarray) else matrix
        if values.dtype != np.int16 or values.ndim != 2:
            raise TypeError(f"matrix: wanted int16 [rows, columns], got {values.dtype} {list(values.shape)}")
        self.rows, self.columns = values.shape
        if not all(0 < side <= _SIDE_MAX for side in values.shape):
            raise ValueError(f"matrix side: wanted 1 to {_SIDE_MAX}, got {list(values.shape)}")
        greatest = int(np.abs(values.astype(np.int64)).sum(axis=1).max())
        if greatest > context.row_l1_max:
            raise ValueError(f"weights: wanted rows whose magnitudes sum to {context.row_l1_max}, got {greatest}")
        self.context, self.added = context, 0
        weights = np.ascontiguousarray(values.T)
        self._weights = arrays.on_device(weights, "int16", context.device, "matrix", weights.shape)
        self.sums = arrays.zeros((self.rows, 2, context.limbs, context.n), "uint64", context.device)

    def add(self, first_column: int, c0: Array, c1: Array) -> None:
        """Takes the ciphertexts of the next columns, in order, each once; c0, c1 [count, limbs, n] in NTT form."""
        context = self.context
        c0, c1 = context.residues(c0, "c0"), context.residues(c1, "c1")
        count = c0.shape[0]
        if c1.shape[0] != count:
            raise ValueError(f"c1: wanted {count} polynomials, got {c1.shape[0]}")
        if first_column != self.added or count > self.columns - self.added:
            left = self.columns - self.added
            raise ValueError(f"columns: wanted at most {left} from {self.added} on, got {count} from {first_column}")
        if count == 0:
            return
        grid = (context.n // _THREADS, 2 * context.limbs, -(-self.rows // 16))
        given = (self._weights, c0, c1, self.sums, context.limb_table, first_column, count, self.rows, context.n)
        context.kernel("products.cu", "scalar_products")(grid, _THREADS, *given)
        self.added += count

    def add_seeded(self, first_column: int, seeded: Seeded) -> None:
        """As `add`, from what arrived."""
        self.add(first_column, *seeded.expand())

    def answers(self, public_key: PublicKey, plain: Array, rng: Rng | None = None) -> Small:
        """Each row plus a fresh, flooded encryption of plain [rows, n], switched down; the sums start again at 0."""
        if self.added != self.columns:
            raise ValueError(f"ciphertexts of a product: wanted {self.columns}, got {self.added}")
        hide(self.context, self.sums, plain, public_key, rng)
        return self._finished()

    def dangerous_answers(self) -> Small:
        """The sums themselves, switched down: they give the matrix to whoever holds the secret key."""
        if self.added != self.columns:
            raise ValueError(f"ciphertexts of a product: wanted {self.columns}, got {self.added}")
        self.context.transform_in_place("ntt_inverse", self.sums)
        return self._finished()

    def _finished(self) -> Small:
        made = switched_down(self.context, self.sums)
        arrays.wipe(self.sums)
        self.added = 0
        return made


class PlaintextProducts:
    """out_i = sum over j of weights_ij(X) * ct_j mod X^n + 1: the direct scheme."""

    def __init__(self, context: Context, weights: Array) -> None:
        """weights int64 [outputs, inputs, n], small signed coefficients: the magnitudes that enter one answer sum to at
        most the context's `row_l1_max`.
        """
        values = arrays.host(weights) if not isinstance(weights, np.ndarray) else weights
        if values.dtype != np.int64 or values.ndim != 3 or values.shape[2] != context.n or 0 in values.shape:
            raise TypeError(f"weights: wanted int64 [outputs, inputs, {context.n}], got {list(values.shape)}")
        greatest = int(np.abs(values.astype(object)).sum(axis=(1, 2)).max()) if values.size else 0
        if greatest > context.row_l1_max:
            raise ValueError(f"weights: wanted magnitudes that sum to {context.row_l1_max}, got {greatest}")
        self.context, (self.outputs, self.inputs) = context, values.shape[:2]
        count, n = self.outputs * self.inputs, context.n
        given = arrays.on_device(values.reshape(count, n), "int64", context.device, "weights", (count, n))
        self._weights = arrays.empty((count, context.limbs, n), "uint64", context.device)
        grid = (-(-n // _THREADS), context.limbs, count)
        context.kernel("products.cu", "lift_weights")(grid, _THREADS, given, self._weights, context.limb_table, n)
        context.transform_in_place("ntt_forward", self._weights)

    def sums(self, c0: Array, c1: Array) -> Array:
        """[outputs, 2, limbs, n] in NTT form, for c0, c1 [inputs, limbs, n]."""
        context = self.context
        c0, c1 = context.residues(c0, "c0"), context.residues(c1, "c1")
        if (c0.shape[0], c1.shape[0]) != (self.inputs, self.inputs):
            raise ValueError(f"ciphertexts: wanted {self.inputs}, got {c0.shape[0]} and {c1.shape[0]}")
        made = arrays.zeros((self.outputs, 2, context.limbs, context.n), "uint64", context.device)
        grid = (-(-context.n // _THREADS), 2 * context.limbs, self.outputs)
        given = (self._weights, c0, c1, made, context.limb_table, self.inputs, context.n)
        context.kernel("products.cu", "plaintext_products")(grid, _THREADS, *given)
        return made

    def answers(
        self,
        c0: Array,
        c1: Array,
        public_key: PublicKey,
        positions: Sequence[int] | None = None,
        rng: Rng | None = None,
    ) -> Small:
        """c0, c1 [inputs, limbs, n]; a fresh flooded zero is added, then switched down and cut to `positions`."""
        made = self.sums(c0, c1)
        hide(self.context, made, None, public_key, rng)
        return _cut(switched_down(self.context, made), positions)

    def dangerous_answers(self, c0: Array, c1: Array, positions: Sequence[int] | None = None) -> Small:
        """Without the zero: the answers give the weights to whoever holds the secret key."""
        made = self.sums(c0, c1)
        self.context.transform_in_place("ntt_inverse", made)
        return _cut(switched_down(self.context, made), positions)


def _cut(answers: Small, positions: Sequence[int] | None) -> Small:
    return answers if positions is None else answers.select(positions)

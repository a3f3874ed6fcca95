"""One step of report 003's layout under CKKS (crates/report-003/src/ckks_slots.rs) on a device, to be measured.

The key, the activations and the adapter are in one process: the guarantee is `none`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import arrays, primes, runtime
from .arrays import Array
from .generator import Rng

FIRST_BITS, DATA_BITS, SCALE_BITS, LIMBS = 60, 40, 40, 3
# The report's degree; 1024 is for tests. Parts of the embedding are of radix 4, so the degree is a power of 4.
DEGREES = (1024, 4096, 16384)
_THREADS = 512


def data_primes(n: int) -> list[int]:
    """Chooses primes as SEAL does: the greatest of each width, the greatest of all kept for key switching."""
    large = primes.ntt_primes_below(FIRST_BITS, n, 2)
    return [large[1], *reversed(primes.ntt_primes_below(DATA_BITS, n, LIMBS - 1))]


@functools.cache
def embedding_tables(n: int) -> tuple[np.ndarray, np.ndarray]:
    """complex128 [n/2 + n/4]: roots of the nodes, products with their left children; uint32 [n/2]: a leaf's slot."""
    half = n // 2
    exponents = [0] * (2 * half)
    exponents[1] = half
    for node in range(1, half):
        exponents[2 * node] = exponents[node] // 2
        exponents[2 * node + 1] = exponents[node] // 2 + n
    power = [
        complex(math.cos(math.pi * (e / n)), math.sin(math.pi * (e / n))) for e in range(2 * n)
    ]
    roots = [complex(1.0)] + [power[exponents[2 * node] % (2 * n)] for node in range(1, half)]
    products = [complex(1.0)]
    products += [
        power[(exponents[2 * node] + exponents[4 * node]) % (2 * n)] for node in range(1, half // 2)
    ]
    leaves = {exponents[half + leaf]: leaf for leaf in range(half)}
    slot_of_leaf, exponent = np.empty(half, np.uint32), 1
    for slot in range(half):
        slot_of_leaf[leaves[exponent if exponent % 4 == 1 else 2 * n - exponent]] = slot
        exponent = exponent * 3 % (2 * n)
    return np.array(roots + products, np.complex128), slot_of_leaf


class Ckks:
    """Degree and moduli of report 003 (60/40/40 bits, scale 2^40) with everything that depends on them alone."""

    def __init__(self, n: int, device: str = "cpu") -> None:
        if n not in DEGREES:
            raise ValueError(f"ckks: wanted a degree of {', '.join(map(str, DEGREES))}, got {n}")
        self.n, self.device, self.log_n = n, device, n.bit_length() - 1
        self.primes, self.limbs, self.scale = data_primes(n), LIMBS, 2.0**SCALE_BITS
        self.slot_factor = self.scale / (n // 2)
        roots, leaves = embedding_tables(n)
        self.limb_table = self._upload_words(
            [primes.limb_words(n, q, 1, 0, 0) for q in self.primes]
        )
        self.roots = self._upload_words(np.stack([primes.root_powers(n, q) for q in self.primes]))
        self.embedding = self._table(roots.view(np.float64).copy(), "float64")
        self.slot_of_leaf = self._table(leaves, "uint32")
        self.garner = self._table(np.array(self._garner()), "float64")
        half, part = n // 2, n // 8
        self.shared_slots = 2 * (half + half // 16) * 8
        # A part of a polynomial, and of the slots as complex numbers: the same bytes.
        self.shared_part = (part + part // 16) * 8
        self.part_block = min(256, max(32, part // 8))

    def _garner(self) -> list[list[float]]:
        first, second, third = self.primes
        rows = []
        for q, before in ((second, [first]), (third, [first, second])):
            factors = [pow(p, -1, q) for p in before]
            pairs = [
                number for value in factors for number in (float(value), float(value) / float(q))
            ]
            rows.append([float(q), 1.0 / float(q), *pairs, *[0.0] * (4 - len(pairs))])
        return rows

    def _upload_words(self, values: Any) -> Array:
        return self._table(np.array(values, np.uint64), "uint64")

    def _table(self, values: np.ndarray, dtype: str) -> Array:
        return arrays.to_device(values, dtype, self.device, "table", values.shape)

    def kernel(self, name: str) -> runtime.Kernel:
        """Gives a kernel of ckks.cu."""
        return runtime.Module("ckks.cu", self.device).kernel(name)

    def encode(self, slots: Array) -> Array:
        """Encodes `slots` float64 [messages, given] as scaled coefficients int64 [messages, n]; other slots are 0."""
        count, given = slots.shape
        if given > self.n // 2:
            raise ValueError(f"slots: wanted at most {self.n // 2}, got {given}")
        values = arrays.to_device(slots, "float64", self.device, "slots", (count, given))
        coefficients = arrays.empty((count, self.n), "int64", self.device)
        status = arrays.zeros(count, "uint32", self.device)
        taken = (
            values,
            given,
            self.slot_of_leaf,
            self.embedding,
            self.slot_factor,
            coefficients,
            status,
            self.log_n,
        )
        self.kernel("ckks_encode")(count, _THREADS, *taken, shared=self.shared_slots)
        if arrays.to_host(status).any():
            raise ValueError(
                "message: wanted finite values whose scaled coefficients stay below 2^62"
            )
        return coefficients

    def encode_factors(self, slots: Array) -> Array:
        """Encodes float64 [count, given] as factors in NTT form, uint64 [count, limbs, n]."""
        coefficients = self.encode(slots)
        count = coefficients.shape[0]
        made = arrays.empty((count, self.limbs, self.n), "uint64", self.device)
        grid = (self.n // 256, self.limbs, count)
        self.kernel("ckks_residues")(grid, 256, coefficients, made, self.limb_table, self.n)
        self.ntt_in_place(made)
        return made

    def ntt_in_place(self, values: Array) -> None:
        """Transforms [count, limbs, n] to NTT form, in place."""
        kernel = runtime.Module("ntt.cu", self.device, {"RING_WORD": "uint64_t"}).kernel(
            "ntt_forward"
        )
        shared = (self.n + self.n // 16) * 8
        count, block = values.shape[0] * self.limbs, min(512, self.n // 16)
        kernel(
            count, block, values, self.limb_table, self.roots, self.limbs, self.log_n, shared=shared
        )

    def secret_key(self, rng: Rng) -> Array:
        """Draws a ternary secret, uint64 [limbs, n] in NTT form; the owner wipes it."""
        secret = arrays.empty((self.limbs, self.n), "uint64", self.device)
        kernel = runtime.Module("encrypt.cu", self.device, {"RING_WORD": "uint64_t"}).kernel(
            "secret_key"
        )
        given = (
            rng.key,
            rng.reserve_words(self.n),
            self.limb_table,
            self.roots,
            secret,
            self.log_n,
        )
        kernel(self.limbs, min(512, self.n // 16), *given, shared=(self.n + self.n // 16) * 8)
        return secret


class CkksSlots:
    """A matrix [rank, width] under CKKS together with the key: `step` gives A*x. `wipe()` zeroes key and generator.

    A step is kernels alone, over memory that is kept: it can be recorded in a CUDA graph, and each replay draws fresh
    words, as the place in the generator is in device memory.
    """

    guarantee = "none"

    def __init__(
        self, ckks: Ckks, matrix: np.ndarray, key_rng: Rng | None = None, rng: Rng | None = None
    ) -> None:
        """`matrix`: float [rank, width], width at most n/2. The generators are this object's from here on."""
        self.ckks, (self.rank, self.width) = ckks, matrix.shape
        if not 0 < self.width <= ckks.n // 2 or self.rank == 0:
            raise ValueError(
                f"matrix: wanted 1 to {ckks.n // 2} columns and a row, got {list(matrix.shape)}"
            )
        self.copies = ckks.n // 2 // self.width
        self.packs = -(-self.rank // self.copies)
        rows = np.zeros((self.packs * self.copies, self.width))
        rows[: self.rank] = matrix
        self.factors = ckks.encode_factors(rows.reshape(self.packs, self.copies * self.width))
        maker = Rng.from_os(ckks.device) if key_rng is None else key_rng
        self.secret = ckks.secret_key(maker)
        maker.wipe()
        self._rng = Rng.from_os(ckks.device) if rng is None else rng
        self.place = arrays.zeros(1, "uint64", ckks.device)
        self._allocate()

    def _allocate(self) -> None:
        one, device = self.ckks, self.ckks.device
        self.status = arrays.zeros(1, "uint32", device)
        self.rejected = arrays.zeros(1, "uint32", device)
        self.seed = arrays.empty(8, "uint32", device)
        self.c0, self.c1 = (arrays.empty((one.limbs, one.n), "uint64", device) for _ in range(2))
        self.products = arrays.empty((self.packs, 2, one.limbs, one.n), "uint64", device)
        self.phases = arrays.empty((self.packs, one.limbs, one.n), "uint64", device)
        self.wave = arrays.empty(one.n, "float64", device)
        self.waves = arrays.empty((self.packs, one.n), "float64", device)
        self.partial = arrays.empty((self.packs * self.copies, 8), "float64", device)
        self.dots = arrays.empty(self.packs * self.copies, "float64", device)

    def step(self, vector: Array) -> Array:
        """Multiplies `vector` float64 [width] on the device: float64 [rank], overwritten by the next step. `status` [1]
        becomes 1 where the vector does not fit the scale; the caller reads it when it reads the result.
        """
        self.encrypt(vector)
        self.multiply()
        self.decrypt()
        return self.dots[: self.rank]

    def encrypt(self, vector: Array) -> None:
        """Encrypts the vector, `copies` times, as (c0, c1)."""
        one, key = self.ckks, self._rng.key
        given = (
            vector,
            self.width,
            self.copies,
            one.slot_of_leaf,
            one.embedding,
            one.slot_factor,
            self.wave,
        )
        drawn = (key, self.place, self.seed, one.log_n)
        one.kernel("ckks_encode_tail")(8, one.part_block, *given, *drawn, shared=one.shared_part)
        grid = -(-one.limbs * one.n // 8 // 128)
        public = (self.seed, one.limb_table, self.c1, self.rejected, one.limbs, one.log_n)
        one.kernel("ckks_public")(grid, 128, *public)
        one.kernel("ckks_public_exact")(1, _THREADS, *public)
        tables = (one.limb_table, one.roots)
        head = (self.wave, one.embedding, key, self.place, *tables, self.c0, self.status, one.log_n)
        one.kernel("ckks_encrypt_head")((one.n // 1024, one.limbs), 160, *head)
        tail = (self.c0, self.c1, self.secret, *tables, one.log_n)
        one.kernel("ckks_encrypt_tail")(
            (8, one.limbs), one.part_block, *tail, shared=one.shared_part
        )

    def multiply(self) -> None:
        """Multiplies the ciphertext by each factor."""
        one = self.ckks
        grid = (one.n // 256, one.limbs, self.packs)
        given = (self.c0, self.c1, self.factors, self.products, one.limb_table, one.n)
        one.kernel("ckks_products")(grid, 256, *given)

    def decrypt(self, slots: Array | None = None) -> None:
        """Decrypts the products' slots (float64 [packs, n/2], where wanted) and sums; moves the generator's place."""
        one = self.ckks
        tables = (one.limb_table, one.roots)
        tail = (self.products, self.secret, self.phases, *tables, one.log_n)
        kernel = one.kernel("ckks_decrypt_tail")
        kernel((8, one.limbs, self.packs), one.part_block, *tail, shared=one.shared_part)
        head = (self.phases, self.waves, one.embedding, *tables, one.garner, one.limbs, one.log_n)
        one.kernel("ckks_decrypt_head")((-(-one.n // 16 // 64), self.packs), 64, *head)
        factor = 1.0 / (one.scale * one.scale)
        given = (
            self.waves,
            one.slot_of_leaf,
            one.embedding,
            factor,
            slots,
            self.partial,
            self.copies,
            self.width,
        )
        kernel = one.kernel("ckks_decode_tail")
        kernel((8, self.packs), one.part_block, *given, one.log_n, shared=one.shared_part)
        count = self.packs * self.copies
        one.kernel("ckks_dots")(1, 128, self.partial, self.dots, count, self.place, one.n + 4)

    def wipe(self) -> None:
        """Zeroes the key, the generator and what a step left."""
        for secret in (self.secret, self.wave, self.phases, self.waves, self.partial, self.dots):
            arrays.wipe(secret)
        self._rng.wipe()

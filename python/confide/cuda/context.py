"""A parameter set at work on a device: its tables, its kernels, its transforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from . import arrays, parameters, primes, runtime
from .arrays import Array
from .generator import Rng
from .parameters import ParameterSet


class Context:
    """A parameter set at work on a device: `.n .primes .limbs .bits .device .set`."""

    def __init__(self, chosen: ParameterSet, device: str = "cpu") -> None:
        self.set, self.device = chosen, "cuda:0" if device == "cuda" else device
        self.n, self.primes, self.limbs = chosen.n, chosen.primes, chosen.limbs
        self.bits = chosen.plaintext_bits
        self.log_n = self.n.bit_length() - 1
        narrow = max(self.primes) < 1 << 30
        self._defines = {"RING_WORD": "uint32_t" if narrow else "uint64_t"}
        # A word of padding after as many as there are banks: `padded_index(n)` of ntt.cuh.
        words = self.n + (self.n >> (5 if narrow else 4))
        self.transform = {
            "block": min(512, max(32, self.n // 16)),
            "shared": words * (4 if narrow else 8),
        }
        self._fill_tables()

    @classmethod
    def dangerous_named(cls, set_name: str, device: str = "cpu") -> Context:
        """Makes a context of any set: also of those below 128 bits, and of those that are not flooded."""
        return cls(parameters.find_set(set_name, dangerous=True), device)

    def _fill_tables(self) -> None:
        one, n = self.set, self.n
        rows = [
            primes.limb_words(n, q, one.plaintext_bits, one.flood_bits, one.product_noise)
            for q in self.primes
        ]
        inverses = np.zeros((self.limbs, self.limbs, 2), np.uint64)
        for last, dropped in enumerate(self.primes):
            for index, q in enumerate(self.primes[:last]):
                inverses[last, index] = primes.with_shoup_quotient(pow(dropped, -1, q), q)
        product = 1
        for q in self.primes:
            product *= q
        t = 1 << one.plaintext_bits
        encoding = [one.plaintext_bits, product % t, (t << 64) // self.primes[0], one.flood_bits]
        self.limb_table = self._table(np.array(rows, np.uint64))
        self.roots = self._table(np.stack([primes.root_powers(n, q) for q in self.primes]))
        self.inverses = self._table(inverses)
        self.encoding = self._table(np.array(encoding, np.uint64))

    def _table(self, values: np.ndarray) -> Array:
        return arrays.to_device(values, "uint64", self.device, "table", values.shape)

    @property
    def row_l1_max(self) -> int:
        """Greatest sum of magnitudes of the weights that enter one answer."""
        return self.set.row_l1_max

    @property
    def flood_bits(self) -> int:
        """Flooding is uniform in +-2^flood_bits times the bound of the products' noise; 0: none."""
        return self.set.flood_bits

    def kernel(self, file: str, name: str) -> runtime.Kernel:
        """Gives a kernel for this context's words."""
        worded = file in ("ntt.cu", "encrypt.cu", "keys.cu", "products.cu")
        return runtime.Module(file, self.device, self._defines if worded else None).kernel(name)

    def launch(self, file: str, name: str, grid: int | tuple[int, ...], *arguments: object) -> None:
        """Launches a kernel of whole polynomials: a block each, the polynomial in shared memory."""
        shape = self.transform
        self.kernel(file, name)(grid, shape["block"], *arguments, shared=shape["shared"])

    def as_residues(self, values: Array, what: str = "values") -> Array:
        """Gives an array [count, limbs, n] as kernels take it."""
        return arrays.to_device(values, "uint64", self.device, what, (None, self.limbs, self.n))

    def ntt_forward(self, values: Array) -> Array:
        """Transforms [count, limbs, n] from coefficient form to NTT form, as a new array."""
        return self._transform("ntt_forward", values)

    def ntt_inverse(self, values: Array) -> Array:
        """Transforms [count, limbs, n] from NTT form to coefficient form, as a new array."""
        return self._transform("ntt_inverse", values)

    def transform_in_place(self, name: str, values: Array) -> None:
        """Runs `ntt_forward` or `ntt_inverse` on an array whose last two axes are [limbs, n]."""
        count = int(np.prod(tuple(values.shape))) // self.n
        tables = (self.limb_table, self.roots)
        self.launch("ntt.cu", name, count, values, *tables, self.limbs, self.log_n)

    def _transform(self, name: str, values: Array) -> Array:
        given = self.as_residues(values)
        made = given.copy() if isinstance(given, np.ndarray) else given.clone()
        self.transform_in_place(name, made)
        return made


@contextmanager
def borrow_rng(context: Context, rng: Rng | None) -> Iterator[Rng]:
    """Yields the generator given, or one from the operating system that is wiped afterwards."""
    if rng is not None:
        yield rng
        return
    fresh = Rng.from_os(context.device)
    try:
        yield fresh
    finally:
        fresh.wipe()

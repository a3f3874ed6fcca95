"""Products of ciphertexts with what the adapter host knows, and the fresh encryption that hides them."""

from __future__ import annotations

import numpy as np

from . import arrays, runtime
from .arrays import Array
from .ciphertexts import SeededCiphertexts, SmallCiphertexts
from .context import Context, borrow_rng
from .generator import Rng
from .keys import PublicKey

# As crates/rlwe/src/products.rs.
_SIDE_MAX = 1 << 17
_THREADS = 128


def add_flooded_encryption(
    context: Context, parts: Array, plain: Array | None, key: PublicKey, rng: Rng | None
) -> None:
    """Adds to `parts` [rows, 2, limbs, n], in NTT form, a fresh flooded encryption of plain [rows, n] (None: of zero)
    under the key: in coefficient form, in place. Six words of the generator for each coefficient.
    """
    if context.flood_bits == 0:
        raise ValueError(
            f"{context.set.name}: not flooded, an encryption of zero would protect nothing"
        )
    if key.context.set.name != context.set.name:
        raise ValueError(
            f"public key: wanted one of {context.set.name}, got one of {key.context.set.name}"
        )
    rows = parts.shape[0]
    if plain is not None:
        plain = arrays.to_device(plain, "uint64", context.device, "plain", (rows, context.n))
    with borrow_rng(context, rng) as drawn:
        first = drawn.reserve_words(6 * context.n * rows)
        if first % 2:
            raise ValueError("generator: wanted one that has drawn an even number of words")
        tables = (context.limb_table, context.roots, context.encoding)
        bound = runtime.u64(context.set.product_noise)
        given = (parts, plain, drawn.key, first, key.a, key.b, bound)
        context.launch(
            "encrypt.cu", "hide", (rows, 2 * context.limbs), *given, *tables, context.log_n
        )


def switch_down(context: Context, parts: Array) -> SmallCiphertexts:
    """Divides `parts` [rows, 2, limbs, n], in coefficient form, by all primes but the first."""
    rows = parts.shape[0]
    c0, c1 = (arrays.empty((rows, context.n), "uint64", context.device) for _ in range(2))
    grid = (-(-context.n // _THREADS), 2 * rows)
    kernel = context.kernel("switch.cu", "switch_down")
    given = (parts, context.limb_table, context.inverses)
    kernel(grid, _THREADS, *given, c0, c1, context.limbs, context.n)
    return SmallCiphertexts(context, c0, c1)


class ScalarProducts:
    """out_i = sum over j of matrix_ij * ct_j, the offline work of an adapter host. Holds the sums:
    16 * limbs * n bytes for each row, 128 KiB at two limbs of n = 4096.
    """

    def __init__(self, context: Context, matrix: Array) -> None:
        """`matrix`: int16 [rows, columns]; a row's magnitudes sum to at most the context's `row_l1_max`."""
        values = arrays.to_host(matrix) if not isinstance(matrix, np.ndarray) else matrix
        if values.dtype != np.int16 or values.ndim != 2:
            raise TypeError(
                f"matrix: wanted int16 [rows, columns], got {values.dtype} {list(values.shape)}"
            )
        self.rows, self.columns = values.shape
        if not all(0 < side <= _SIDE_MAX for side in values.shape):
            raise ValueError(f"matrix side: wanted 1 to {_SIDE_MAX}, got {list(values.shape)}")
        greatest = int(np.abs(values.astype(np.int64)).sum(axis=1).max())
        if greatest > context.row_l1_max:
            raise ValueError(
                f"weights: wanted rows whose magnitudes sum to at most {context.row_l1_max}, got {greatest}"
            )
        self.context, self.added = context, 0
        weights = np.ascontiguousarray(values.T)
        self._weights = arrays.to_device(weights, "int16", context.device, "matrix", weights.shape)
        self.sums = arrays.zeros((self.rows, 2, context.limbs, context.n), "uint64", context.device)

    def add(self, first_column: int, c0: Array, c1: Array) -> None:
        """Takes the ciphertexts of the next columns, in order, each once; c0, c1 [count, limbs, n] in NTT form."""
        context = self.context
        c0, c1 = context.as_residues(c0, "c0"), context.as_residues(c1, "c1")
        count = c0.shape[0]
        if c1.shape[0] != count:
            raise ValueError(f"c1: wanted {count} polynomials, got {c1.shape[0]}")
        if first_column != self.added or count > self.columns - self.added:
            left = self.columns - self.added
            raise ValueError(
                f"columns: wanted at most {left} from {self.added} on, got {count} from {first_column}"
            )
        if count == 0:
            return
        grid = (context.n // _THREADS, 2 * context.limbs, -(-self.rows // 16))
        given = (
            self._weights,
            c0,
            c1,
            self.sums,
            context.limb_table,
            first_column,
            count,
            self.rows,
            context.n,
        )
        context.kernel("products.cu", "scalar_products")(grid, _THREADS, *given)
        self.added += count

    def add_seeded(self, first_column: int, seeded: SeededCiphertexts) -> None:
        """Adds as `add` does, from ciphertexts as they arrived."""
        self.add(first_column, *seeded.expand())

    def answers(
        self, public_key: PublicKey, plain: Array, rng: Rng | None = None
    ) -> SmallCiphertexts:
        """Gives each row plus a fresh, flooded encryption of plain [rows, n], switched down; resets the sums to 0."""
        if self.added != self.columns:
            raise ValueError(f"ciphertexts of a product: wanted {self.columns}, got {self.added}")
        add_flooded_encryption(self.context, self.sums, plain, public_key, rng)
        return self._finish()

    def _finish(self) -> SmallCiphertexts:
        made = switch_down(self.context, self.sums)
        arrays.wipe(self.sums)
        self.added = 0
        return made

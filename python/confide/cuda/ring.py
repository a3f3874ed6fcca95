"""Exact encryption of integers mod 2^k (crates/rlwe) on a device: keys, encryption, products, answers, wire forms.

Arrays are numpy on "cpu" and torch tensors on "cuda:N", uint64 unless said (int64 tensors of the same bits are taken
too, since torch has little arithmetic for uint64). Ciphertexts are in NTT form `[count, limbs, n]`, order and reduction
as crates/rlwe has them; answers that were switched down are in coefficient form `[count, n]`. Bytes are those of
crates/rlwe/src/wire.rs.

A generator of one seed gives what `Rng` of crates/rlwe gives for the same calls, so both sides are tested against
vectors/rlwe/*.json. Where no generator is given, one is seeded from the operating system.
"""

from __future__ import annotations

from typing import Any, Sequence

Array = Any


class Context:
    """A parameter set at work on a device: `.n .primes .limbs .bits .device .row_l1_max .flood_bits`."""

    def __init__(self, set_name: str, plaintext_bits: int | None = None, device: str = "cpu") -> None:
        """A set of at least 128 bits whose answers are flooded; `plaintext_bits` None: the set's own."""
        raise NotImplementedError

    @classmethod
    def dangerous_named(cls, set_name: str, plaintext_bits: int | None = None, device: str = "cpu") -> Context:
        """Any set: also those below 128 bits, and those that are not flooded."""
        raise NotImplementedError

    def ntt_forward(self, values: Array) -> Array:
        """[count, limbs, n] in coefficient form to NTT form, a new array."""
        raise NotImplementedError

    def ntt_inverse(self, values: Array) -> Array:
        """The inverse of `ntt_forward`."""
        raise NotImplementedError


class Rng:
    """ChaCha20 (RFC 8439) under a key on the device; draws take whole words of 64 bits in order."""

    @classmethod
    def from_os(cls, device: str) -> Rng:
        """Seeded by the operating system."""
        raise NotImplementedError

    @classmethod
    def from_seed(cls, seed: bytes, device: str) -> Rng:
        """The generator of 32 bytes."""
        raise NotImplementedError

    def wipe(self) -> None:
        """Zeroes the key; no draw is possible afterwards."""
        raise NotImplementedError


class SecretKey:
    """A ternary secret, in the device's memory only. `wipe()` zeroes it."""

    @classmethod
    def random(cls, context: Context, rng: Rng | None = None) -> SecretKey:
        """A fresh key."""
        raise NotImplementedError

    def public_key(self, rng: Rng | None = None) -> PublicKey:
        """The public key that goes with it; each call makes another one."""
        raise NotImplementedError

    def decrypt(self, answers: Small) -> Array:
        """The messages of each answer, `[count, n]` or `[count, positions]`, in [0, 2^k)."""
        raise NotImplementedError

    def wipe(self) -> None:
        """Zeroes the secret."""
        raise NotImplementedError


class PublicKey:
    """b = -a*s + e with a from a seed."""

    def to_bytes(self) -> bytes:
        """Its wire form."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, context: Context, data: bytes) -> PublicKey:
        """From its wire form; whatever is not that form raises WireError."""
        raise NotImplementedError


class Encryptor:
    """Encrypts vectors of messages one after the other under one public seed."""

    def __init__(self, key: SecretKey, rng: Rng | None = None) -> None:
        raise NotImplementedError

    def encrypt(self, messages: Array) -> Seeded:
        """messages [count, n], taken mod 2^k."""
        raise NotImplementedError


class Seeded:
    """Fresh encryptions: `.c0 [count, limbs, n]` in NTT form, and the seeds and indices that c1 is expanded from."""

    c0: Array

    def to_bytes(self, index: int) -> bytes:
        """The wire form of one."""
        raise NotImplementedError

    def all_bytes(self) -> list[bytes]:
        """The wire forms of all: one copy from the device."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> Seeded:
        """From wire forms; whatever is not that form raises WireError."""
        raise NotImplementedError

    def expand(self) -> tuple[Array, Array]:
        """(c0, c1), both [count, limbs, n] in NTT form."""
        raise NotImplementedError


class ScalarProducts:
    """out_i = sum over j of matrix_ij * ct_j, the offline work of an adapter host."""

    def __init__(self, context: Context, matrix: Array) -> None:
        """matrix int16 [rows, columns]; a row's magnitudes sum to at most the context's `row_l1_max`."""
        raise NotImplementedError

    def add(self, first_column: int, c0: Array, c1: Array) -> None:
        """Takes the ciphertexts of the next columns, in order, each once; c0, c1 [count, limbs, n]."""
        raise NotImplementedError

    def add_seeded(self, first_column: int, seeded: Seeded) -> None:
        """As `add`, from what arrived."""
        raise NotImplementedError

    def answers(self, public_key: PublicKey, plain: Array, rng: Rng | None = None) -> Small:
        """Each row plus a fresh, flooded encryption of plain [rows, n], switched down; the sums start again at 0."""
        raise NotImplementedError


class PlaintextProducts:
    """out_i = sum over j of weights_ij(X) * ct_j mod X^n + 1: the direct scheme."""

    def __init__(self, context: Context, weights: Array) -> None:
        """weights int64 [outputs, inputs, n], small signed coefficients."""
        raise NotImplementedError

    def answers(
        self, c0: Array, c1: Array, public_key: PublicKey, positions: Sequence[int] | None = None, rng: Rng | None = None
    ) -> Small:
        """c0, c1 [inputs, limbs, n]; a fresh flooded zero is added, then switched down and cut to `positions`."""
        raise NotImplementedError


class Small:
    """Answers switched down to the first limb, in coefficient form: `.c0 [count, n or positions]`, `.c1 [count, n]`."""

    c0: Array
    c1: Array
    positions: tuple[int, ...] | None

    def to_bytes(self, index: int) -> bytes:
        """The wire form of one."""
        raise NotImplementedError

    def all_bytes(self) -> list[bytes]:
        """The wire forms of all: one copy from the device."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, context: Context, forms: Sequence[bytes]) -> Small:
        """From wire forms, all with the same positions; whatever is not that form raises WireError."""
        raise NotImplementedError


class MaskStream:
    """crates/lora/src/mask.rs on the device: words of ChaCha20 by tile of 32 columns and token."""

    def __init__(self, key: bytes, device: str) -> None:
        """key: 32 bytes. It lives in the device's memory until `wipe()`."""
        raise NotImplementedError

    def rows(self, first_token: int, tokens: int, columns: int, bits: int, negated: bool = False) -> Array:
        """[tokens, columns] words mod 2^bits; `negated`: 2^bits minus them."""
        raise NotImplementedError

    def columns(self, tile: int, first_token: int, tokens: int, bits: int, negated: bool = False) -> Array:
        """[32, tokens]: one tile for all tokens."""
        raise NotImplementedError

    def wipe(self) -> None:
        """Zeroes the key."""
        raise NotImplementedError

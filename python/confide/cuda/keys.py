"""Secret and public keys, and encryption under a secret key."""

from __future__ import annotations

import numpy as np

from . import arrays, wire
from .arrays import Array
from .ciphertexts import SeededCiphertexts, SmallCiphertexts, public_polynomials
from .context import Context, borrow_rng
from .generator import Rng


class SecretKey:
    """A ternary secret, in the device's memory only, never written out. `wipe()` zeroes it."""

    def __init__(self, context: Context, secret: Array) -> None:
        """`secret`: [limbs, n] in NTT form; it is this object's from here on."""
        self.context = context
        self._secret: Array | None = secret

    @classmethod
    def random(cls, context: Context, rng: Rng | None = None) -> SecretKey:
        """Draws a fresh key."""
        secret = arrays.empty((context.limbs, context.n), "uint64", context.device)
        with borrow_rng(context, rng) as drawn:
            first = drawn.reserve_words(context.n)
            given = (drawn.key, first, context.limb_table, context.roots, secret)
            context.launch("encrypt.cu", "secret_key", context.limbs, *given, context.log_n)
        return cls(context, secret)

    @property
    def secret(self) -> Array:
        """[limbs, n] in NTT form, for a kernel."""
        if self._secret is None:
            raise RuntimeError("secret key: wiped")
        return self._secret

    def public_key(self, rng: Rng | None = None) -> PublicKey:
        """Makes a public key of this secret; each call makes another one."""
        with borrow_rng(self.context, rng) as drawn:
            seed = drawn.seed()
            b = self._encrypt(None, 1, drawn, seed, 0)
        return PublicKey(self.context, arrays.to_host(seed).tobytes(), b)

    def decrypt(self, answers: SmallCiphertexts) -> Array:
        """Decrypts the messages of each answer, `[count, n]` or `[count, positions]`, in [0, 2^k)."""
        context, kept = self.context, answers.c0.shape[1]
        if answers.context.set != context.set:
            raise ValueError(
                f"answer: wanted one of {context.set.name}, got one of {answers.context.set.name}"
            )
        messages = arrays.empty((answers.count, kept), "uint64", context.device)
        if answers.count == 0 or kept == 0:
            return messages
        places = None
        if answers.positions is not None:
            given = np.array(answers.positions, np.uint32)
            places = arrays.to_device(given, "uint32", context.device, "positions", (kept,))
        tables = (context.limb_table, context.roots, context.encoding)
        parts = (answers.c0, answers.c1, places, self.secret)
        context.launch(
            "keys.cu", "decrypt", answers.count, *parts, *tables, messages, kept, context.log_n
        )
        return messages

    def wipe(self) -> None:
        """Zeroes the secret."""
        if self._secret is not None:
            arrays.wipe(self._secret)
            self._secret = None

    def _encrypt(
        self, messages: Array | None, count: int, rng: Rng, seed: Array, first_index: int
    ) -> Array:
        """Makes c0 of `count` encryptions; the errors are the generator's next words."""
        context = self.context
        c0 = arrays.empty((count, context.limbs, context.n), "uint64", context.device)
        first = rng.reserve_words(count * context.n)
        tables = (context.limb_table, context.roots, context.encoding)
        given = (messages, rng.key, first, seed, first_index, self.secret)
        context.launch(
            "encrypt.cu", "encrypt", (count, context.limbs), *given, *tables, c0, context.log_n
        )
        return c0


class PublicKey:
    """b = -a*s + e with a from a seed: its owner can hide results from the holder of the secret key."""

    def __init__(self, context: Context, seed: bytes, b: Array) -> None:
        """`b`: [1, limbs, n] in NTT form."""
        self.context, self.seed, self.b = context, seed, b
        self.a = public_polynomials(context, [seed], [0])

    def to_bytes(self) -> bytes:
        """Gives the wire form: header, seed, b."""
        return (
            wire.header(self.context, wire.PUBLIC_KEY)
            + self.seed
            + wire.pack(self.context, self.b)[0]
        )

    @classmethod
    def from_bytes(cls, context: Context, data: bytes) -> PublicKey:
        """Reads the wire form; raises WireError for anything else."""
        length = (
            wire.HEADER_BYTES
            + wire.SEED_BYTES
            + wire.packed_bytes(context, context.limbs, context.n)
        )
        rest = wire.read_body(context, wire.PUBLIC_KEY, bytes(data), length)
        b = wire.unpack(
            context, wire.PUBLIC_KEY, [rest[wire.SEED_BYTES :]], context.limbs, context.n
        )
        return cls(context, rest[: wire.SEED_BYTES], b)


class Encryptor:
    """Encrypts vectors of messages one after the other under one public seed. `wipe()` zeroes its generator."""

    def __init__(self, key: SecretKey, rng: Rng | None = None) -> None:
        """The generator is this object's from here on; its first words are the public seed."""
        self.key = key
        self._rng = Rng.from_os(key.context.device) if rng is None else rng
        self._seed = self._rng.seed()
        self.seed = arrays.to_host(self._seed).tobytes()
        self._next = 0

    def encrypt(self, messages: Array) -> SeededCiphertexts:
        """Encrypts `messages` [count, n], taken mod 2^k."""
        context = self.key.context
        given = arrays.to_device(messages, "uint64", context.device, "messages", (None, context.n))
        count = given.shape[0]
        if self._next + count >= 1 << 32:
            raise ValueError(
                f"ciphertexts of one seed: wanted at most {(1 << 32) - 1}, got {self._next + count}"
            )
        indices = list(range(self._next, self._next + count))
        self._next += count
        c0 = self.key._encrypt(given, count, self._rng, self._seed, indices[0]) if count else None
        if c0 is None:
            c0 = arrays.empty((0, context.limbs, context.n), "uint64", context.device)
        return SeededCiphertexts(context, c0, [self.seed] * count, indices)

    def wipe(self) -> None:
        """Zeroes the generator's key."""
        self._rng.wipe()

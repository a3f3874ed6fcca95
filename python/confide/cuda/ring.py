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

from .ciphertexts import SeededCiphertexts, SmallCiphertexts
from .context import Context
from .generator import Rng
from .keys import Encryptor, PublicKey, SecretKey
from .mask_stream import MaskStream
from .products import ScalarProducts
from .wire import WireError

__all__ = [
    "Context", "Encryptor", "MaskStream", "PublicKey", "Rng", "ScalarProducts", "SecretKey",
    "SeededCiphertexts", "SmallCiphertexts", "WireError",
]  # fmt: skip

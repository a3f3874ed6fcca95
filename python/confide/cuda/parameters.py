"""The named parameter sets of crates/rlwe/src/params.rs and their worst-case budgets."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .primes import ntt_primes_below

ERROR_BOUND = 21
SECURITY_BITS_MIN = 128
# The one that both roles take by default.
DEFAULT = "rlwe-4096-q100-flood40"
_L1_LIMIT = 1 << 40
# Greatest log2 q of 256, 192 and 128 bits: HomomorphicEncryption.org tables (2018), ternary secret, quantum row.
_QUANTUM = {1024: (13, 17, 25), 2048: (27, 35, 51), 4096: (54, 70, 101), 8192: (109, 141, 202)}


@dataclass(frozen=True)
class ParameterSet:
    """A ring, its moduli and the room for messages and noise."""

    name: str
    id: int
    n: int
    prime_bits: int
    limbs: int
    plaintext_bits: int
    flood_bits: int

    @functools.cached_property
    def primes(self) -> tuple[int, ...]:
        """The primes of the modulus, with the one that answers are switched down to first."""
        return tuple(ntt_primes_below(self.prime_bits, self.n, self.limbs))

    @property
    def security_bits(self) -> int:
        """256, 192 or 128 by the quantum row; 0 below."""
        product = 1
        for prime in self.primes:
            product *= prime
        limits = _QUANTUM.get(self.n, (0, 0, 0))
        return next(
            (level for level, most in zip((256, 192, 128), limits) if product <= 1 << most),
            0,
        )

    @property
    def row_l1_max(self) -> int:
        """Greatest sum of magnitudes of the weights that enter one answer."""
        if self.plaintext_bits > 62:
            return 0
        room = max(0, self._noise_room - self._zero_noise)
        share = room // ((1 << self.flood_bits) + 1) if self.flood_bits else room
        return max(0, min(share * 2 // (2 * ERROR_BOUND + 1) - 1, _L1_LIMIT))

    @property
    def product_noise(self) -> int:
        """B: greatest noise of products whose weights keep to `row_l1_max`."""
        return -(-self.row_l1_max * (2 * ERROR_BOUND + 1) // 2)

    @property
    def _noise_room(self) -> int:
        rounding = self.n // 2 + 2 if self.limbs > 1 else 0
        others = 1
        for prime in self.primes[1:]:
            others = min(others * prime, 1 << 100)
        room = max(0, ((self.primes[0] - 1) >> (self.plaintext_bits + 1)) - rounding)
        return min(room * others, 1 << 120)

    @property
    def _zero_noise(self) -> int:
        return ERROR_BOUND * (2 * self.n + 1) + 1 if self.flood_bits else 0


SETS = {
    made.name: made
    for made in (
        ParameterSet("rlwe-4096-q100-flood40", 1, 4096, 50, 2, 33, 40),
        ParameterSet("rlwe-8192-q200-flood40", 2, 8192, 50, 4, 35, 40),
        ParameterSet("rlwe-2048-q50", 3, 2048, 50, 1, 27, 0),
        ParameterSet("rlwe-1024-q25", 4, 1024, 25, 1, 12, 0),
        # For tests of what goes on above the ring: no security at all.
        ParameterSet("toy-256-q100-flood40", 5, 256, 50, 2, 33, 40),
    )
}


def find_set(name: str, dangerous: bool = False) -> ParameterSet:
    """Finds a set of at least 128 bits whose answers are flooded; with `dangerous` any set. Raises ValueError."""
    if name not in SETS:
        raise ValueError(f"parameter set: wanted one of {', '.join(SETS)}, got {name!r}")
    found = SETS[name]
    if dangerous:
        return found
    if found.security_bits < SECURITY_BITS_MIN:
        raise ValueError(
            f"{name}: wanted at least {SECURITY_BITS_MIN} bits, it has {found.security_bits}"
        )
    if found.flood_bits == 0:
        raise ValueError(
            f"{name}: its answers are not flooded, so they reveal the matrix to the holder of the secret key"
        )
    return found

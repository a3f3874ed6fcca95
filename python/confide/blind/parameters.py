"""The named rings of crates/rlwe/src/params.rs: what a split of their room allows, computed as there."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

ERROR_BOUND = 21
L1_LIMIT = 1 << 40
DEFAULT = "rlwe-4096-q100-flood40"
SECURITY_BITS_MIN = 128

# Name -> number on the wire, N, bits of a prime, limbs, k, flood bits.
_DEFINITIONS = {
    "rlwe-4096-q100-flood40": (1, 4096, 50, 2, 33, 40),
    "rlwe-8192-q200-flood40": (2, 8192, 50, 4, 35, 40),
    "rlwe-2048-q50": (3, 2048, 50, 1, 27, 0),
    "rlwe-1024-q25": (4, 1024, 25, 1, 12, 0),
    # For tests of what goes on above the ring: no security at all.
    "toy-256-q100-flood40": (5, 256, 50, 2, 33, 40),
}
# HomomorphicEncryption.org tables (2018), quantum row: log2 q for 256, 192 and 128 bits.
_QUANTUM = {1024: (13, 17, 25), 2048: (27, 35, 51), 4096: (54, 70, 101), 8192: (109, 141, 202)}


@dataclass(frozen=True)
class ParameterSet:
    """A named choice of ring, moduli and room for messages and noise."""

    name: str
    number: int
    n: int
    primes: tuple[int, ...]
    plaintext_bits: int
    flood_bits: int

    @property
    def row_l1_max(self) -> int:
        """Greatest sum of magnitudes of the weights of one answer under which decryption is exact."""
        steps = len(self.primes) - 1
        rounding = self.n // 2 + 2 if steps else 0
        room = max(((self.primes[0] - 1) >> (self.plaintext_bits + 1)) - rounding, 0)
        others = 1
        for prime in self.primes[1:]:
            others = min(others * prime, 1 << 100)
        room = min(room * others, 1 << 120)
        if self.flood_bits:
            room = max(room - (ERROR_BOUND * (2 * self.n + 1) + 1), 0) // ((1 << self.flood_bits) + 1)
        return min(max(room * 2 // (2 * ERROR_BOUND + 1) - 1, 0), L1_LIMIT)

    @property
    def security_bits(self) -> int:
        """Level by the tables; 0 below 128."""
        bits = math.ceil(sum(math.log2(prime) for prime in self.primes))
        levels = zip((256, 192, 128), _QUANTUM.get(self.n, (0, 0, 0)))
        return next((level for level, limit in levels if bits <= limit), 0)


@functools.cache
def dangerous_named(name: str) -> ParameterSet:
    """Any set: also those below 128 bits, and those whose answers give the matrix away."""
    if name not in _DEFINITIONS:
        raise ValueError(f"parameter set: wanted one of {', '.join(_DEFINITIONS)}, got {name!r}")
    number, n, prime_bits, limbs, plaintext_bits, flood_bits = _DEFINITIONS[name]
    primes, candidate = [], (1 << prime_bits) - 2 * n + 1
    while len(primes) < limbs:
        if _is_prime(candidate):
            primes.append(candidate)
        candidate -= 2 * n
    return ParameterSet(name, number, n, tuple(primes), plaintext_bits, flood_bits)


def named(name: str) -> ParameterSet:
    """A set of at least 128 bits whose answers are flooded."""
    found = dangerous_named(name)
    if found.security_bits < SECURITY_BITS_MIN:
        raise ValueError(f"{name}: wanted at least {SECURITY_BITS_MIN} bits, got {found.security_bits}")
    if not found.flood_bits:
        raise ValueError(f"{name}: wanted a set whose answers are flooded: this one gives the matrix away")
    return found


def _is_prime(candidate: int) -> bool:
    """Miller and Rabin with the bases that decide all numbers below 2^64."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if candidate < 2 or any(candidate % base == 0 for base in bases):
        return candidate in bases
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, candidate)
        if power not in (1, candidate - 1):
            if not any((power := power * power % candidate) == candidate - 1 for _ in range(twos - 1)):
                return False
    return True

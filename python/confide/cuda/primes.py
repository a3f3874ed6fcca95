"""Primes of a ring and the tables of its transforms, as crates/rlwe/src/{modulus,ntt}.rs has them. Public numbers."""

from __future__ import annotations

import functools

import numpy as np

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def is_prime(number: int) -> bool:
    """Miller-Rabin with the twelve least primes, exact below 2^64."""
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for base in _BASES:
        x = pow(base, (number - 1) >> twos, number)
        if x in (1, number - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % number
            if x == number - 1:
                break
        else:
            return False
    return True


def ntt_primes_below(bits: int, n: int, count: int) -> list[int]:
    """The `count` greatest primes below 2^bits that are 1 mod 2n, greatest first."""
    found: list[int] = []
    candidate = (1 << bits) - 2 * n + 1
    while len(found) < count and candidate > 2 * n:
        if is_prime(candidate):
            found.append(candidate)
        candidate -= 2 * n
    return found


def primitive_root(q: int, order: int) -> int:
    """The least primitive root of unity of `order`, a power of two that divides q - 1."""
    roots = (pow(x, (q - 1) // order, q) for x in range(2, q))
    root = next(root for root in roots if pow(root, order // 2, q) == q - 1)
    square, least, power = root * root % q, root, root
    for _ in range(order // 2 - 1):
        power = power * square % q
        least = min(least, power)
    return least


def with_shoup_quotient(value: int, q: int) -> tuple[int, int]:
    """Gives a factor with floor(value * 2^64 / q)."""
    return value, (value << 64) // q


@functools.cache
def root_powers(n: int, q: int) -> np.ndarray:
    """Gives uint64 [2, n, 2]: powers of the root and of its inverse in bit-reversed order, each with its quotient."""
    table = np.empty((2, n, 2), np.uint64)
    root, bits = primitive_root(q, 2 * n), n.bit_length() - 1
    places = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(n)]
    for direction, base in enumerate((root, pow(root, -1, q))):
        power, values = 1, [0] * n
        for place in places:
            values[place] = power
            power = power * base % q
        table[direction, :, 0] = values
        table[direction, :, 1] = [(value << 64) // q for value in values]
    table.flags.writeable = False
    return table


def limb_words(
    n: int, q: int, plaintext_bits: int, flood_bits: int, product_noise: int
) -> list[int]:
    """Gives the 12 words of `Limb` in modulus.cuh."""
    bits, inverse_n = q.bit_length(), pow(n, -1, q)
    turn = inverse_n * int(root_powers(n, q)[1, 1, 0]) % q
    factors = (pow(1 << plaintext_bits, -1, q), inverse_n, turn, (1 << flood_bits) % q)
    words = [q, (1 << (63 + bits)) // q, bits, (product_noise << flood_bits) % q]
    return words + [word for factor in factors for word in with_shoup_quotient(factor, q)]

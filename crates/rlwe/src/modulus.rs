//! Arithmetic modulo one prime.

use crate::error::RlweError;

/// The greatest width of a modulus, in bits: lazy butterflies hold values below 8q in 64 bits.
pub(crate) const MODULUS_BITS_MAX: u32 = 61;

/// An odd prime q below 2^61, with the constant of Barrett's reduction.
///
/// All operations take and return reduced values, and never branch on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modulus {
    value: u64,
    bits: u32,
    /// floor(2^(63 + bits) / q), below 2^64.
    ratio: u64,
}

/// A factor w below q with its quotient floor(w·2^64 / q): products with it need no division
/// (V. Shoup's trick).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShoupFactor {
    /// The factor.
    pub value: u64,
    /// floor(value · 2^64 / q).
    pub quotient: u64,
}

impl Modulus {
    /// Makes the modulus of a prime.
    ///
    /// # Errors
    /// If `value` is not an odd prime below 2^61.
    pub fn new(value: u64) -> Result<Modulus, RlweError> {
        let bits = 64 - value.leading_zeros();
        if value < 3 || bits > MODULUS_BITS_MAX || !is_prime(value) {
            return Err(RlweError::NotAModulus { got: value });
        }
        let ratio = ((1u128 << (63 + bits)) / u128::from(value)) as u64;
        Ok(Modulus { value, bits, ratio })
    }

    /// The prime q.
    pub fn value(self) -> u64 {
        self.value
    }

    /// The width of q, in bits.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// floor(2^(63 + bits) / q), the constant of Barrett's reduction.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn barrett_ratio(self) -> u64 {
        self.ratio
    }

    /// a + b mod q.
    #[inline(always)]
    pub fn add(self, a: u64, b: u64) -> u64 {
        conditional_subtract(a + b, self.value)
    }

    /// a − b mod q.
    #[inline(always)]
    pub fn sub(self, a: u64, b: u64) -> u64 {
        conditional_subtract(a + self.value - b, self.value)
    }

    /// a · b mod q.
    #[inline(always)]
    pub fn mul(self, a: u64, b: u64) -> u64 {
        self.reduce_wide(u128::from(a) * u128::from(b))
    }

    /// a · b + c mod q.
    #[inline(always)]
    pub(crate) fn mul_add(self, a: u64, b: u64, c: u64) -> u64 {
        self.reduce_wide(u128::from(a) * u128::from(b) + u128::from(c))
    }

    /// x mod q for any x.
    #[inline(always)]
    pub fn reduce(self, x: u64) -> u64 {
        self.reduce_wide(u128::from(x))
    }

    /// x mod q for x below 2^(63 + bits of q): any product of two reduced values, and any sum of
    /// four such products.
    ///
    /// Barrett: rounding down in c = floor(x / 2^(bits − 1)) and in floor(c · ratio / 2^64) makes
    /// the quotient at most two too small, so the remainder is below 3q.
    #[inline(always)]
    pub(crate) fn reduce_wide(self, x: u128) -> u64 {
        let c = (x >> (self.bits - 1)) as u64;
        let quotient = high_word_of_product(c, self.ratio);
        let rest = (x as u64).wrapping_sub(quotient.wrapping_mul(self.value));
        conditional_subtract(conditional_subtract(rest, 2 * self.value), self.value)
    }

    /// x mod q for signed x of any size.
    #[inline(always)]
    pub fn reduce_signed(self, x: i64) -> u64 {
        let sign = (x >> 63) as u64;
        let rest = self.reduce(x.unsigned_abs());
        conditional_subtract(
            ((rest ^ sign).wrapping_sub(sign)).wrapping_add(self.value & sign),
            self.value,
        )
    }

    /// The representative of x in (−q/2, q/2).
    #[inline(always)]
    pub fn to_centred(self, x: u64) -> i64 {
        let beyond = (((self.value >> 1).wrapping_sub(x) as i64) >> 63) as u64;
        x.wrapping_sub(self.value & beyond) as i64
    }

    /// Prepares a factor for [`Modulus::mul_shoup`].
    pub fn shoup_factor(self, value: u64) -> ShoupFactor {
        let quotient = ((u128::from(value) << 64) / u128::from(self.value)) as u64;
        ShoupFactor { value, quotient }
    }

    /// x · factor mod q for any x.
    #[inline(always)]
    pub fn mul_shoup(self, x: u64, factor: ShoupFactor) -> u64 {
        conditional_subtract(self.mul_shoup_lazy(x, factor), self.value)
    }

    /// x · factor mod q for any x, in [0, 2q).
    #[inline(always)]
    pub(crate) fn mul_shoup_lazy(self, x: u64, factor: ShoupFactor) -> u64 {
        let quotient = high_word_of_product(x, factor.quotient);
        x.wrapping_mul(factor.value).wrapping_sub(quotient.wrapping_mul(self.value))
    }

    /// base^exponent mod q. The time depends on the exponent.
    pub fn pow(self, base: u64, mut exponent: u64) -> u64 {
        let (mut square, mut result) = (base, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = self.mul(result, square);
            }
            square = self.mul(square, square);
            exponent >>= 1;
        }
        result
    }

    /// x^−1 mod q; 0 for 0.
    pub fn inverse(self, x: u64) -> u64 {
        self.pow(x, self.value - 2)
    }

    /// The least primitive root of unity of `order`, a power of two that divides q − 1.
    pub(crate) fn primitive_root(self, order: u64) -> Option<u64> {
        if !order.is_power_of_two() || order < 2 || !(self.value - 1).is_multiple_of(order) {
            return None;
        }
        let root = (2..self.value)
            .map(|x| self.pow(x, (self.value - 1) / order))
            .find(|&root| self.pow(root, order / 2) == self.value - 1)?;
        let square = self.mul(root, root);
        let odd_powers = std::iter::successors(Some(root), |&x| Some(self.mul(x, square)));
        odd_powers.take(order as usize / 2).min()
    }
}

/// x − q if x >= q, else x, without a branch; for x below 2q.
#[inline(always)]
pub(crate) fn conditional_subtract(x: u64, q: u64) -> u64 {
    x.min(x.wrapping_sub(q))
}

#[inline(always)]
fn high_word_of_product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// Returns whether `n` is prime: Miller-Rabin with the twelve least primes as bases, which is exact
/// for every 64-bit number (Sorenson and Webster, 2015).
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    if let Some(base) = BASES.iter().find(|&&base| n.is_multiple_of(base)) {
        return n == *base;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    let mul = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) % u128::from(n)) as u64;
    BASES.iter().all(|&base| {
        let (mut x, mut square, mut exponent) = (1, base, odd);
        while exponent > 0 {
            if exponent & 1 == 1 {
                x = mul(x, square);
            }
            square = mul(square, square);
            exponent >>= 1;
        }
        if x == 1 || x == n - 1 {
            return true;
        }
        (1..twos).any(|_| {
            x = mul(x, x);
            x == n - 1
        })
    })
}

/// The `count` greatest primes below 2^`bits` that are 1 mod 2n, greatest first; fewer if there
/// are not enough. `bits` is at most 61.
pub fn ntt_primes_below(bits: u32, n: usize, count: usize) -> Vec<u64> {
    let step = 2 * n as u64;
    let bits = bits.min(MODULUS_BITS_MAX);
    let first = (1u64 << bits).saturating_sub(step - 1);
    std::iter::successors(Some(first), |&x| x.checked_sub(step).filter(|&x| x > step))
        .filter(|&x| is_prime(x))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_told_from_composites() {
        let sieve =
            |n: u64| n > 1 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        for n in 0..5000 {
            assert_eq!(is_prime(n), sieve(n), "{n}");
        }
        // Strong pseudoprimes to many bases, Carmichael numbers, and the ends of the range.
        for n in [3_215_031_751, 3_825_123_056_546_413_051, 561, 318_665_857_834_031_151] {
            assert!(!is_prime(n), "{n}");
        }
        assert!(is_prime((1 << 61) - 1) && is_prime(18_446_744_073_709_551_557));
        assert!(!is_prime(u64::MAX));
    }

    #[test]
    fn only_odd_primes_below_two_to_the_61_are_moduli() {
        for value in [0, 1, 2, 9, 1 << 50, (1 << 61) + 21, u64::MAX] {
            assert_eq!(Modulus::new(value), Err(RlweError::NotAModulus { got: value }));
        }
        assert!(Modulus::new((1 << 61) - 1).is_ok() && Modulus::new(3).is_ok());
    }

    #[test]
    fn arithmetic_agrees_with_wide_division() {
        let primes = [3, 5, 17, 12289, 33_550_337, (1 << 50) - 27, (1 << 60) - 93, (1 << 61) - 1];
        for q in primes {
            let modulus = Modulus::new(q).unwrap();
            let wide = u128::from(q);
            let values = [0, 1, 2, q / 2, q / 2 + 1, q - 2, q - 1, 0x9e37_79b9_7f4a_7c15 % q];
            for a in values {
                assert_eq!(modulus.sub(0, a), (q - a) % q);
                assert_eq!((i128::from(modulus.to_centred(a))).rem_euclid(q.into()), a.into());
                assert!(modulus.to_centred(a).unsigned_abs() <= q / 2);
                assert!(a == 0 || modulus.mul(modulus.inverse(a), a) == 1);
                for b in values {
                    let product = u128::from(a) * u128::from(b);
                    assert_eq!(u128::from(modulus.add(a, b)), u128::from(a + b) % wide);
                    assert_eq!(modulus.sub(a, b), modulus.add(a, modulus.sub(0, b)));
                    assert_eq!(u128::from(modulus.mul(a, b)), product % wide);
                    assert_eq!(modulus.mul_shoup(a, modulus.shoup_factor(b)), modulus.mul(a, b));
                    let sum = modulus.mul_add(a, b, q - 1);
                    assert_eq!(u128::from(sum), (product + wide - 1) % wide);
                }
            }
            for x in [0, 1, -1, i64::MIN, i64::MAX, -(q as i64), q as i64 * 3 / 2] {
                let wanted = i128::from(x).rem_euclid(q.into());
                assert_eq!(i128::from(modulus.reduce_signed(x)), wanted, "{x} mod {q}");
            }
            for x in [u64::MAX, q, 2 * q - 1, 0] {
                assert_eq!(modulus.reduce(x), x % q);
                let lazy = modulus.mul_shoup_lazy(x, modulus.shoup_factor(q - 1));
                assert!(lazy < 2 * q && lazy % q == modulus.mul(x % q, q - 1));
            }
        }
    }

    #[test]
    fn primes_for_transforms_are_one_mod_2n_and_have_roots() {
        for (bits, n) in [(25, 1024), (50, 4096), (60, 16384), (40, 32768)] {
            let primes = ntt_primes_below(bits, n, 2);
            assert_eq!(primes.len(), 2);
            for prime in primes {
                assert!(prime < 1 << bits && prime % (2 * n as u64) == 1);
                let modulus = Modulus::new(prime).unwrap();
                let root = modulus.primitive_root(2 * n as u64).unwrap();
                assert_eq!(modulus.pow(root, n as u64), prime - 1);
            }
        }
    }
}

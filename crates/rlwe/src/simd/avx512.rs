//! Pointwise loops with `vpmadd52`, for primes below 2^50.

use std::{arch::x86_64::*, mem};

use super::encoding::EncodingConstants;
use crate::modulus::{Modulus, ShoupFactor};

type Vector = __m512i;

/// A modulus in every lane, with the constants of Barrett's reduction of a product of 52-bit
/// halves.
#[derive(Clone, Copy)]
pub(crate) struct ModulusVector {
    pub(crate) q: Vector,
    two_q: Vector,
    minus_q: Vector,
    low: Vector,
    /// floor(2^(51 + bits) / q).
    ratio: Vector,
    /// bits − 1 and 53 − bits.
    down: __m128i,
    up: __m128i,
}

impl ModulusVector {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn new(q: Modulus) -> ModulusVector {
        let splat = |x: u64| _mm512_set1_epi64(x as i64);
        let count = |x: u32| _mm_set_epi64x(0, i64::from(x));
        ModulusVector {
            q: splat(q.value()),
            two_q: splat(2 * q.value()),
            minus_q: splat((1 << 52) - q.value()),
            low: splat((1 << 52) - 1),
            ratio: splat(q.barrett_ratio() >> 12),
            down: count(q.bits() - 1),
            up: count(53 - q.bits()),
        }
    }

    /// high·2^52 + low mod q, for a value below 2^(51 + bits) with low below 2^52. The
    /// reduction is that of [`Modulus::reduce_wide`] with 52 in place of 64.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn reduce(&self, high: Vector, low: Vector) -> Vector {
        let upper = _mm512_sll_epi64(high, self.up);
        let c = _mm512_or_si512(upper, _mm512_srl_epi64(low, self.down));
        let quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), c, self.ratio);
        let rest = _mm512_and_si512(_mm512_madd52lo_epu64(low, quotient, self.minus_q), self.low);
        self.conditional_subtract(self.conditional_subtract_two_q(rest))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn multiply(&self, a: Vector, b: Vector) -> Vector {
        let zero = _mm512_setzero_si512();
        self.reduce(_mm512_madd52hi_epu64(zero, a, b), _mm512_madd52lo_epu64(zero, a, b))
    }

    /// x·factor mod q for x below 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(crate) fn multiply_shoup(&self, x: Vector, factor: FactorVector) -> Vector {
        let zero = _mm512_setzero_si512();
        let quotient = _mm512_madd52hi_epu64(zero, x, factor.quotient);
        let product = _mm512_madd52lo_epu64(zero, x, factor.value);
        let rest = _mm512_madd52lo_epu64(product, quotient, self.minus_q);
        self.conditional_subtract(_mm512_and_si512(rest, self.low))
    }

    /// a + b mod q.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn add(&self, a: Vector, b: Vector) -> Vector {
        self.conditional_subtract(_mm512_add_epi64(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sub(&self, a: Vector, b: Vector) -> Vector {
        self.conditional_subtract(_mm512_sub_epi64(_mm512_add_epi64(a, self.q), b))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn conditional_subtract(&self, x: Vector) -> Vector {
        _mm512_min_epu64(x, _mm512_sub_epi64(x, self.q))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn conditional_subtract_two_q(&self, x: Vector) -> Vector {
        _mm512_min_epu64(x, _mm512_sub_epi64(x, self.two_q))
    }
}

/// A factor in every lane, with its quotient of 52 bits.
#[derive(Clone, Copy)]
pub(crate) struct FactorVector {
    value: Vector,
    quotient: Vector,
}

impl FactorVector {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn new(factor: ShoupFactor) -> FactorVector {
        let splat = |x: u64| _mm512_set1_epi64(x as i64);
        FactorVector { value: splat(factor.value), quotient: splat(factor.quotient >> 12) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load(from: &[u64; 8]) -> Vector {
    // SAFETY: both are 64 bytes of integers, and every pattern of bits is a value of either.
    unsafe { mem::transmute::<[u64; 8], Vector>(*from) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store(to: &mut [u64; 8], value: Vector) {
    // SAFETY: as in `load`.
    *to = unsafe { mem::transmute::<Vector, [u64; 8]>(value) };
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn multiply(q: Modulus, x: &mut [u64], y: &[u64]) {
    let q = ModulusVector::new(q);
    for (x, y) in x.as_chunks_mut().0.iter_mut().zip(y.as_chunks().0) {
        store(x, q.multiply(load(x), load(y)));
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_product(q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    let q = ModulusVector::new(q);
    let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
    for (x, (a, b)) in x.as_chunks_mut().0.iter_mut().zip(pairs) {
        store(x, q.add(load(x), q.multiply(load(a), load(b))));
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn sub_product(q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    let q = ModulusVector::new(q);
    let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
    for (x, (a, b)) in x.as_chunks_mut().0.iter_mut().zip(pairs) {
        store(x, q.sub(load(x), q.multiply(load(a), load(b))));
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn scale(q: Modulus, x: &mut [u64], factor: ShoupFactor) {
    let (q, factor) = (ModulusVector::new(q), FactorVector::new(factor));
    for x in x.as_chunks_mut().0 {
        store(x, q.multiply_shoup(load(x), factor));
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn add_encoded(p: Modulus, x: &mut [u64], messages: &[u64], e: &EncodingConstants) {
    let splat = |x: u64| _mm512_set1_epi64(x as i64);
    let (q, inverse) = (ModulusVector::new(p), FactorVector::new(e.inverse));
    let (q_mod_t, half, mask) = (splat(e.q_mod_t), splat(e.half), splat(e.mask));
    let top = _mm512_add_epi64(q.q, half);
    for (x, messages) in x.as_chunks_mut().0.iter_mut().zip(messages.as_chunks().0) {
        let product = _mm512_mullo_epi64(load(messages), q_mod_t);
        let rest = _mm512_and_si512(_mm512_add_epi64(product, half), mask);
        let encoded = q.multiply_shoup(_mm512_sub_epi64(top, rest), inverse);
        store(x, q.add(load(x), encoded));
    }
}

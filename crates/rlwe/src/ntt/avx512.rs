//! Eight butterflies at a time. Two ways to multiply, one shape: `ifma` for primes below 2^50,
//! whose lazy values below 4q fit the 52 bits of `vpmadd52`, and `wide` for primes below 2^61.
//!
//! Stages go in pairs, so that a value is loaded and stored once for two of them. The three stages
//! whose halves are shorter than a register work on sixteen values in two registers: each ends in
//! the shuffle that puts the next stage's pairs side by side.

#![allow(unsafe_code)] // Intrinsics; each block says why it is sound.

use std::{arch::x86_64::*, mem};

use super::{
    path::Path,
    stages::{Roots, Stages},
};
use crate::modulus::Modulus;

type Vector = __m512i;

pub(super) fn forward(table: &Stages, values: &mut [u64]) {
    assert!(table.path.is_here(), "a table of a path that this machine does not have");
    match table.path {
        // SAFETY: the assertion above saw the features.
        Path::Ifma => unsafe { ifma::forward(table, values) },
        // SAFETY: as above.
        _ => unsafe { wide::forward(table, values) },
    }
}

pub(super) fn inverse(table: &Stages, values: &mut [u64]) {
    assert!(table.path.is_here(), "a table of a path that this machine does not have");
    match table.path {
        // SAFETY: the assertion above saw the features.
        Path::Ifma => unsafe { ifma::inverse(table, values) },
        // SAFETY: as above.
        _ => unsafe { wide::inverse(table, values) },
    }
}

/// The constants of the modulus that every butterfly needs.
#[derive(Clone, Copy)]
struct Constants {
    q: Vector,
    two_q: Vector,
    /// 2^52 − q and 2^52 − 1, for `ifma`.
    minus_q: Vector,
    low: Vector,
}

/// A root in every lane, or a root for each lane.
#[derive(Clone, Copy)]
struct Turn {
    value: Vector,
    quotient: Vector,
}

#[inline]
#[target_feature(enable = "avx512f")]
fn constants(q: Modulus) -> Constants {
    let splat = |x: u64| _mm512_set1_epi64(x as i64);
    let q = q.value();
    Constants {
        q: splat(q),
        two_q: splat(2 * q),
        minus_q: splat((1u64 << 52).wrapping_sub(q)),
        low: splat((1 << 52) - 1),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u64; 8]) -> Vector {
    // SAFETY: both are 64 bytes of integers, and every pattern of bits is a value of either.
    unsafe { mem::transmute::<[u64; 8], Vector>(*from) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u64; 8], value: Vector) {
    // SAFETY: as in `load`.
    *to = unsafe { mem::transmute::<Vector, [u64; 8]>(value) };
}

/// x − q where x >= q.
#[inline]
#[target_feature(enable = "avx512f")]
fn subtract_once(x: Vector, q: Vector) -> Vector {
    _mm512_min_epu64(x, _mm512_sub_epi64(x, q))
}

/// The root at `index` in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn splat(roots: &Roots, index: usize) -> Turn {
    Turn {
        value: _mm512_set1_epi64(roots.values[index] as i64),
        quotient: _mm512_set1_epi64(roots.quotients[index] as i64),
    }
}

/// Two roots, each in four neighbouring lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn two(roots: &Roots, first: usize, lanes: Vector) -> Turn {
    let spread = |all: &[u64]| {
        let pair: [u64; 2] = all.as_chunks().0[first / 2];
        // SAFETY: as in `load`, of 16 bytes.
        let pair = unsafe { mem::transmute::<[u64; 2], __m128i>(pair) };
        _mm512_permutexvar_epi64(lanes, _mm512_castsi128_si512(pair))
    };
    Turn { value: spread(&roots.values), quotient: spread(&roots.quotients) }
}

/// Four roots, each in two neighbouring lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn four(roots: &Roots, first: usize, lanes: Vector) -> Turn {
    let spread = |all: &[u64]| {
        let quad: [u64; 4] = all.as_chunks().0[first / 4];
        // SAFETY: as in `load`, of 32 bytes.
        let quad = unsafe { mem::transmute::<[u64; 4], __m256i>(quad) };
        _mm512_permutexvar_epi64(lanes, _mm512_castsi256_si512(quad))
    };
    Turn { value: spread(&roots.values), quotient: spread(&roots.quotients) }
}

/// Eight roots, one in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn eight(roots: &Roots, first: usize) -> Turn {
    let at = |all: &[u64]| load(&all.as_chunks().0[first / 8]);
    Turn { value: at(&roots.values), quotient: at(&roots.quotients) }
}

/// x·turn mod q in [0, 2q) for x below 2^52: Shoup's product with halves of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply_ifma(x: Vector, turn: Turn, c: &Constants) -> Vector {
    let zero = _mm512_setzero_si512();
    let quotient = _mm512_madd52hi_epu64(zero, x, turn.quotient);
    let product = _mm512_madd52lo_epu64(zero, x, turn.value);
    _mm512_and_si512(_mm512_madd52lo_epu64(product, quotient, c.minus_q), c.low)
}

/// x·turn mod q in [0, 2q) for x below 2^63: Shoup's product, with the upper half of 64 by 64 bits
/// put together from 32-bit products. Three carries are left out, each worth less than one: the
/// quotient is at most two too small, the rest below 1.5q + 2q.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn multiply_wide(x: Vector, turn: Turn, c: &Constants) -> Vector {
    let (x_high, turn_high) = (_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(turn.quotient));
    let low_high = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x, turn_high));
    let high_low = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x_high, turn.quotient));
    let high_high = _mm512_mul_epu32(x_high, turn_high);
    let quotient = _mm512_add_epi64(high_high, _mm512_add_epi64(low_high, high_low));
    let product = _mm512_mullo_epi64(x, turn.value);
    subtract_once(_mm512_sub_epi64(product, _mm512_mullo_epi64(quotient, c.q)), c.two_q)
}

/// Indices of lanes in two registers side by side: the places of the pairs of halves of 4, 2 and 1.
/// The second register's lanes are 8 to 15.
struct Lanes {
    first_quads: Vector,
    second_quads: Vector,
    first_pairs: Vector,
    second_pairs: Vector,
    even: Vector,
    odd: Vector,
    lower: Vector,
    upper: Vector,
    by_four: Vector,
    by_two: Vector,
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes() -> Lanes {
    Lanes {
        first_quads: _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11),
        second_quads: _mm512_setr_epi64(4, 5, 6, 7, 12, 13, 14, 15),
        first_pairs: _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
        second_pairs: _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15),
        even: _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14),
        odd: _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15),
        lower: _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
        upper: _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15),
        by_four: _mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1),
        by_two: _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
    }
}

macro_rules! transforms {
    ($module:ident, $features:literal, $multiply:ident) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) fn forward(table: &Stages, values: &mut [u64]) {
                let (roots, c) = (&table.forward, constants(table.modulus));
                let (vectors, _) = values.as_chunks_mut::<8>();
                // The stages whose halves are whole registers: halves of n/2 down to 8 values.
                let (mut half, mut groups) = (vectors.len() / 2, 1);
                if half.trailing_zeros().is_multiple_of(2) {
                    for (group, block) in vectors.chunks_exact_mut(2 * half).enumerate() {
                        let turn = splat(roots, groups + group);
                        let (left, right) = block.split_at_mut(half);
                        for (x, y) in left.iter_mut().zip(right) {
                            let (a, b) = butterfly(load(x), load(y), turn, &c);
                            store(x, a);
                            store(y, b);
                        }
                    }
                    (half, groups) = (half / 2, 2);
                }
                while half > 0 {
                    for (group, block) in vectors.chunks_exact_mut(2 * half).enumerate() {
                        forward_pair(roots, groups + group, block, &c);
                    }
                    (half, groups) = (half / 4, groups * 4);
                }
                forward_short(roots, vectors, &c);
            }

            /// Computes two stages of the group `at` of the first stage.
            #[inline]
            #[target_feature(enable = $features)]
            fn forward_pair(roots: &Roots, at: usize, block: &mut [[u64; 8]], c: &Constants) {
                let first = splat(roots, at);
                let (second, third) = (splat(roots, 2 * at), splat(roots, 2 * at + 1));
                for (x, y, z, w) in quarters(block) {
                    let (a, d) = butterfly(load(x), load(z), first, c);
                    let (b, e) = butterfly(load(y), load(w), first, c);
                    let (a, b) = butterfly(a, b, second, c);
                    let (d, e) = butterfly(d, e, third, c);
                    store(x, a);
                    store(y, b);
                    store(z, d);
                    store(w, e);
                }
            }

            /// Computes the stages of halves 4, 2 and 1, and the last reduction.
            #[inline]
            #[target_feature(enable = $features)]
            fn forward_short(roots: &Roots, vectors: &mut [[u64; 8]], c: &Constants) {
                let (count, l) = (vectors.len(), lanes());
                for (index, pair) in vectors.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let [low, high] = pair;
                    let (a, b) = (load(low), load(high));
                    let x = _mm512_permutex2var_epi64(a, l.first_quads, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_quads, b);
                    let turn = two(roots, count + 2 * index, l.by_four);
                    let (a, b) = butterfly(x, y, turn, c);
                    let x = _mm512_permutex2var_epi64(a, l.first_pairs, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_pairs, b);
                    let turn = four(roots, 2 * count + 4 * index, l.by_two);
                    let (a, b) = butterfly(x, y, turn, c);
                    let (x, y) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
                    let turn = eight(roots, 4 * count + 8 * index);
                    let (a, b) = butterfly(x, y, turn, c);
                    let (a, b) = (
                        subtract_once(subtract_once(a, c.two_q), c.q),
                        subtract_once(subtract_once(b, c.two_q), c.q),
                    );
                    store(low, _mm512_permutex2var_epi64(a, l.lower, b));
                    store(high, _mm512_permutex2var_epi64(a, l.upper, b));
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn inverse(table: &Stages, values: &mut [u64]) {
                let (roots, c) = (&table.inverse, constants(table.modulus));
                let (vectors, _) = values.as_chunks_mut::<8>();
                inverse_short(roots, vectors, &c);
                let (mut half, mut groups) = (1, vectors.len() / 2);
                // All stages but the last, whose one group multiplies by n^−1 as well.
                if groups.trailing_zeros() % 2 == 1 {
                    for (group, block) in vectors.chunks_exact_mut(2 * half).enumerate() {
                        let turn = splat(roots, groups + group);
                        let (left, right) = block.split_at_mut(half);
                        for (x, y) in left.iter_mut().zip(right) {
                            let (a, b) = inverse_butterfly(load(x), load(y), turn, &c);
                            store(x, a);
                            store(y, b);
                        }
                    }
                    (half, groups) = (2, groups / 2);
                }
                while groups > 1 {
                    for (group, block) in vectors.chunks_exact_mut(4 * half).enumerate() {
                        inverse_pair(roots, groups / 2 + group, block, &c);
                    }
                    (half, groups) = (half * 4, groups / 4);
                }
                inverse_last(table, vectors, &c);
            }

            /// Computes two stages of the group `at` of the second stage.
            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_pair(roots: &Roots, at: usize, block: &mut [[u64; 8]], c: &Constants) {
                let last = splat(roots, at);
                let (first, second) = (splat(roots, 2 * at), splat(roots, 2 * at + 1));
                for (x, y, z, w) in quarters(block) {
                    let (a, b) = inverse_butterfly(load(x), load(y), first, c);
                    let (d, e) = inverse_butterfly(load(z), load(w), second, c);
                    let (a, d) = inverse_butterfly(a, d, last, c);
                    let (b, e) = inverse_butterfly(b, e, last, c);
                    store(x, a);
                    store(y, b);
                    store(z, d);
                    store(w, e);
                }
            }

            /// Computes the stages of halves 1, 2 and 4.
            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_short(roots: &Roots, vectors: &mut [[u64; 8]], c: &Constants) {
                let (count, l) = (vectors.len(), lanes());
                for (index, pair) in vectors.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let [low, high] = pair;
                    let (a, b) = (load(low), load(high));
                    let x = _mm512_permutex2var_epi64(a, l.even, b);
                    let y = _mm512_permutex2var_epi64(a, l.odd, b);
                    let turn = eight(roots, 4 * count + 8 * index);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    let (x, y) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
                    let turn = four(roots, 2 * count + 4 * index, l.by_two);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    let x = _mm512_permutex2var_epi64(a, l.first_pairs, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_pairs, b);
                    let turn = two(roots, count + 2 * index, l.by_four);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    store(low, _mm512_permutex2var_epi64(a, l.first_quads, b));
                    store(high, _mm512_permutex2var_epi64(a, l.second_quads, b));
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_last(table: &Stages, vectors: &mut [[u64; 8]], c: &Constants) {
                let factor = |index: usize| Turn {
                    value: _mm512_set1_epi64(table.scale[index].value as i64),
                    quotient: _mm512_set1_epi64(table.scale[index].quotient as i64),
                };
                let (scale, turn) = (factor(0), factor(1));
                let (left, right) = vectors.split_at_mut(vectors.len() / 2);
                for (x, y) in left.iter_mut().zip(right) {
                    let (a, b) = (load(x), load(y));
                    let sum = _mm512_add_epi64(a, b);
                    let difference = _mm512_sub_epi64(_mm512_add_epi64(a, c.two_q), b);
                    store(x, subtract_once($multiply(sum, scale, c), c.q));
                    store(y, subtract_once($multiply(difference, turn, c), c.q));
                }
            }

            /// (x + turn·y, x − turn·y): values below 4q to values below 4q.
            #[inline]
            #[target_feature(enable = $features)]
            fn butterfly(x: Vector, y: Vector, turn: Turn, c: &Constants) -> (Vector, Vector) {
                let (base, turned) = (subtract_once(x, c.two_q), $multiply(y, turn, c));
                let other = _mm512_sub_epi64(_mm512_add_epi64(base, c.two_q), turned);
                (_mm512_add_epi64(base, turned), other)
            }

            /// (x + y, turn·(x − y)): values below 2q to values below 2q.
            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_butterfly(
                x: Vector,
                y: Vector,
                turn: Turn,
                c: &Constants,
            ) -> (Vector, Vector) {
                let difference = _mm512_sub_epi64(_mm512_add_epi64(x, c.two_q), y);
                (subtract_once(_mm512_add_epi64(x, y), c.two_q), $multiply(difference, turn, c))
            }
        }
    };
}

transforms!(ifma, "avx512f,avx512dq,avx512ifma", multiply_ifma);
transforms!(wide, "avx512f,avx512dq", multiply_wide);

type Registers = [u64; 8];

/// The registers that stand at the same place of a block's four quarters.
#[inline(always)]
fn quarters(
    block: &mut [Registers],
) -> impl Iterator<Item = (&mut Registers, &mut Registers, &mut Registers, &mut Registers)> {
    let (left, right) = block.split_at_mut(block.len() / 2);
    let (x, y) = left.split_at_mut(left.len() / 2);
    let (z, w) = right.split_at_mut(right.len() / 2);
    x.iter_mut().zip(y).zip(z.iter_mut().zip(w)).map(|((x, y), (z, w))| (x, y, z, w))
}

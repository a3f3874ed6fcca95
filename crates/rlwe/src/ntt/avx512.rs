//! Transforms with eight butterflies at a time, in two modules that differ only in how they
//! multiply: `ifma` for primes below 2^50, whose lazy values below 4q fit the 52 bits of `vpmadd52`,
//! and `wide` for primes below 2^61.
//!
//! Stages are computed in pairs, so that a value is loaded and stored once for two of them. The
//! three stages whose halves are shorter than a register work on sixteen values in two registers:
//! each ends with the shuffle that aligns the pairs of the next stage.

#![allow(unsafe_code)] // Intrinsics; each block states why it is sound.

use std::{arch::x86_64::*, mem};

use super::{
    path::NttPath,
    stages::{RootPowers, StageConstants},
};
use crate::modulus::Modulus;

type Vector = __m512i;

pub(super) fn forward(table: &StageConstants, values: &mut [u64]) {
    assert!(table.path.is_supported(), "this machine does not support the path of the table");
    match table.path {
        // SAFETY: the assertion above checked for the features.
        NttPath::Ifma => unsafe { ifma::forward(table, values) },
        // SAFETY: as above.
        _ => unsafe { wide::forward(table, values) },
    }
}

pub(super) fn inverse(table: &StageConstants, values: &mut [u64]) {
    assert!(table.path.is_supported(), "this machine does not support the path of the table");
    match table.path {
        // SAFETY: the assertion above checked for the features.
        NttPath::Ifma => unsafe { ifma::inverse(table, values) },
        // SAFETY: as above.
        _ => unsafe { wide::inverse(table, values) },
    }
}

/// The constants of the modulus that every butterfly needs.
#[derive(Clone, Copy)]
struct ModulusConstants {
    q: Vector,
    two_q: Vector,
    /// 2^52 − q and 2^52 − 1, for `ifma`.
    minus_q: Vector,
    low: Vector,
}

/// A root in every lane, or a root for each lane.
#[derive(Clone, Copy)]
struct RootVector {
    value: Vector,
    quotient: Vector,
}

#[inline]
#[target_feature(enable = "avx512f")]
fn modulus_constants(q: Modulus) -> ModulusConstants {
    let splat = |x: u64| _mm512_set1_epi64(x as i64);
    let q = q.value();
    ModulusConstants {
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

/// x − q if x >= q, else x.
#[inline]
#[target_feature(enable = "avx512f")]
fn conditional_subtract(x: Vector, q: Vector) -> Vector {
    _mm512_min_epu64(x, _mm512_sub_epi64(x, q))
}

/// The root at `index` in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast_root(roots: &RootPowers, index: usize) -> RootVector {
    RootVector {
        value: _mm512_set1_epi64(roots.values[index] as i64),
        quotient: _mm512_set1_epi64(roots.quotients[index] as i64),
    }
}

/// Two roots, each in four neighbouring lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn two_roots(roots: &RootPowers, first: usize, lanes: Vector) -> RootVector {
    let spread = |all: &[u64]| {
        let pair: [u64; 2] = all.as_chunks().0[first / 2];
        // SAFETY: as in `load`, of 16 bytes.
        let pair = unsafe { mem::transmute::<[u64; 2], __m128i>(pair) };
        _mm512_permutexvar_epi64(lanes, _mm512_castsi128_si512(pair))
    };
    RootVector { value: spread(&roots.values), quotient: spread(&roots.quotients) }
}

/// Four roots, each in two neighbouring lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn four_roots(roots: &RootPowers, first: usize, lanes: Vector) -> RootVector {
    let spread = |all: &[u64]| {
        let quad: [u64; 4] = all.as_chunks().0[first / 4];
        // SAFETY: as in `load`, of 32 bytes.
        let quad = unsafe { mem::transmute::<[u64; 4], __m256i>(quad) };
        _mm512_permutexvar_epi64(lanes, _mm512_castsi256_si512(quad))
    };
    RootVector { value: spread(&roots.values), quotient: spread(&roots.quotients) }
}

/// Eight roots, one in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn eight_roots(roots: &RootPowers, first: usize) -> RootVector {
    let at = |all: &[u64]| load(&all.as_chunks().0[first / 8]);
    RootVector { value: at(&roots.values), quotient: at(&roots.quotients) }
}

/// x·turn mod q in [0, 2q) for x below 2^52: ShoupFactor's product with halves of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply_ifma(x: Vector, turn: RootVector, c: &ModulusConstants) -> Vector {
    let zero = _mm512_setzero_si512();
    let quotient = _mm512_madd52hi_epu64(zero, x, turn.quotient);
    let product = _mm512_madd52lo_epu64(zero, x, turn.value);
    _mm512_and_si512(_mm512_madd52lo_epu64(product, quotient, c.minus_q), c.low)
}

/// x·turn mod q in [0, 2q) for x below 2^63: Shoup's product, with the upper half of 64 by 64 bits
/// computed from 32-bit products. Three carries of less than one each are omitted, so the quotient
/// is at most two too small and the remainder is below 1.5q + 2q.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn multiply_wide(x: Vector, turn: RootVector, c: &ModulusConstants) -> Vector {
    let (x_high, turn_high) = (_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(turn.quotient));
    let low_high = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x, turn_high));
    let high_low = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x_high, turn.quotient));
    let high_high = _mm512_mul_epu32(x_high, turn_high);
    let quotient = _mm512_add_epi64(high_high, _mm512_add_epi64(low_high, high_low));
    let product = _mm512_mullo_epi64(x, turn.value);
    conditional_subtract(_mm512_sub_epi64(product, _mm512_mullo_epi64(quotient, c.q)), c.two_q)
}

/// Indices of lanes in two registers, for the butterfly pairs of the stages with halves of 4, 2
/// and 1. The first register has lanes 0 to 7, the second 8 to 15.
struct LaneIndices {
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
fn lane_indices() -> LaneIndices {
    LaneIndices {
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
            pub(super) fn forward(table: &StageConstants, values: &mut [u64]) {
                let (roots, c) = (&table.forward, modulus_constants(table.modulus));
                let (vectors, _) = values.as_chunks_mut::<8>();
                // The stages whose halves are whole registers: halves of n/2 down to 8 values.
                let (mut half, mut groups) = (vectors.len() / 2, 1);
                if half.trailing_zeros().is_multiple_of(2) {
                    for (group, block) in vectors.chunks_exact_mut(2 * half).enumerate() {
                        let turn = broadcast_root(roots, groups + group);
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
                        forward_stage_pair(roots, groups + group, block, &c);
                    }
                    (half, groups) = (half / 4, groups * 4);
                }
                forward_last_stages(roots, vectors, &c);
            }

            /// Computes two stages for group `at` of the first of them.
            #[inline]
            #[target_feature(enable = $features)]
            fn forward_stage_pair(
                roots: &RootPowers,
                at: usize,
                block: &mut [[u64; 8]],
                c: &ModulusConstants,
            ) {
                let first = broadcast_root(roots, at);
                let (second, third) =
                    (broadcast_root(roots, 2 * at), broadcast_root(roots, 2 * at + 1));
                for (x, y, z, w) in zip_quarters(block) {
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
            fn forward_last_stages(
                roots: &RootPowers,
                vectors: &mut [[u64; 8]],
                c: &ModulusConstants,
            ) {
                let (count, l) = (vectors.len(), lane_indices());
                for (index, pair) in vectors.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let [low, high] = pair;
                    let (a, b) = (load(low), load(high));
                    let x = _mm512_permutex2var_epi64(a, l.first_quads, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_quads, b);
                    let turn = two_roots(roots, count + 2 * index, l.by_four);
                    let (a, b) = butterfly(x, y, turn, c);
                    let x = _mm512_permutex2var_epi64(a, l.first_pairs, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_pairs, b);
                    let turn = four_roots(roots, 2 * count + 4 * index, l.by_two);
                    let (a, b) = butterfly(x, y, turn, c);
                    let (x, y) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
                    let turn = eight_roots(roots, 4 * count + 8 * index);
                    let (a, b) = butterfly(x, y, turn, c);
                    let (a, b) = (
                        conditional_subtract(conditional_subtract(a, c.two_q), c.q),
                        conditional_subtract(conditional_subtract(b, c.two_q), c.q),
                    );
                    store(low, _mm512_permutex2var_epi64(a, l.lower, b));
                    store(high, _mm512_permutex2var_epi64(a, l.upper, b));
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn inverse(table: &StageConstants, values: &mut [u64]) {
                let (roots, c) = (&table.inverse, modulus_constants(table.modulus));
                let (vectors, _) = values.as_chunks_mut::<8>();
                inverse_first_stages(roots, vectors, &c);
                let (mut half, mut groups) = (1, vectors.len() / 2);
                // All stages but the last, which also multiplies by n^−1.
                if groups.trailing_zeros() % 2 == 1 {
                    for (group, block) in vectors.chunks_exact_mut(2 * half).enumerate() {
                        let turn = broadcast_root(roots, groups + group);
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
                        inverse_stage_pair(roots, groups / 2 + group, block, &c);
                    }
                    (half, groups) = (half * 4, groups / 4);
                }
                inverse_last_stage(table, vectors, &c);
            }

            /// Computes two stages for group `at` of the second of them.
            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_stage_pair(
                roots: &RootPowers,
                at: usize,
                block: &mut [[u64; 8]],
                c: &ModulusConstants,
            ) {
                let last = broadcast_root(roots, at);
                let (first, second) =
                    (broadcast_root(roots, 2 * at), broadcast_root(roots, 2 * at + 1));
                for (x, y, z, w) in zip_quarters(block) {
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
            fn inverse_first_stages(
                roots: &RootPowers,
                vectors: &mut [[u64; 8]],
                c: &ModulusConstants,
            ) {
                let (count, l) = (vectors.len(), lane_indices());
                for (index, pair) in vectors.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let [low, high] = pair;
                    let (a, b) = (load(low), load(high));
                    let x = _mm512_permutex2var_epi64(a, l.even, b);
                    let y = _mm512_permutex2var_epi64(a, l.odd, b);
                    let turn = eight_roots(roots, 4 * count + 8 * index);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    let (x, y) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
                    let turn = four_roots(roots, 2 * count + 4 * index, l.by_two);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    let x = _mm512_permutex2var_epi64(a, l.first_pairs, b);
                    let y = _mm512_permutex2var_epi64(a, l.second_pairs, b);
                    let turn = two_roots(roots, count + 2 * index, l.by_four);
                    let (a, b) = inverse_butterfly(x, y, turn, c);
                    store(low, _mm512_permutex2var_epi64(a, l.first_quads, b));
                    store(high, _mm512_permutex2var_epi64(a, l.second_quads, b));
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_last_stage(
                table: &StageConstants,
                vectors: &mut [[u64; 8]],
                c: &ModulusConstants,
            ) {
                let factor = |index: usize| RootVector {
                    value: _mm512_set1_epi64(table.scale[index].value as i64),
                    quotient: _mm512_set1_epi64(table.scale[index].quotient as i64),
                };
                let (scale, turn) = (factor(0), factor(1));
                let (left, right) = vectors.split_at_mut(vectors.len() / 2);
                for (x, y) in left.iter_mut().zip(right) {
                    let (a, b) = (load(x), load(y));
                    let sum = _mm512_add_epi64(a, b);
                    let difference = _mm512_sub_epi64(_mm512_add_epi64(a, c.two_q), b);
                    store(x, conditional_subtract($multiply(sum, scale, c), c.q));
                    store(y, conditional_subtract($multiply(difference, turn, c), c.q));
                }
            }

            /// (x + turn·y, x − turn·y): values below 4q to values below 4q.
            #[inline]
            #[target_feature(enable = $features)]
            fn butterfly(
                x: Vector,
                y: Vector,
                turn: RootVector,
                c: &ModulusConstants,
            ) -> (Vector, Vector) {
                let (base, turned) = (conditional_subtract(x, c.two_q), $multiply(y, turn, c));
                let other = _mm512_sub_epi64(_mm512_add_epi64(base, c.two_q), turned);
                (_mm512_add_epi64(base, turned), other)
            }

            /// (x + y, turn·(x − y)): values below 2q to values below 2q.
            #[inline]
            #[target_feature(enable = $features)]
            fn inverse_butterfly(
                x: Vector,
                y: Vector,
                turn: RootVector,
                c: &ModulusConstants,
            ) -> (Vector, Vector) {
                let difference = _mm512_sub_epi64(_mm512_add_epi64(x, c.two_q), y);
                (
                    conditional_subtract(_mm512_add_epi64(x, y), c.two_q),
                    $multiply(difference, turn, c),
                )
            }
        }
    };
}

transforms!(ifma, "avx512f,avx512dq,avx512ifma", multiply_ifma);
transforms!(wide, "avx512f,avx512dq", multiply_wide);

type RegisterWords = [u64; 8];

/// Iterates over the four quarters of a block together: the registers with the same index in each.
#[inline(always)]
fn zip_quarters(
    block: &mut [RegisterWords],
) -> impl Iterator<Item = (&mut RegisterWords, &mut RegisterWords, &mut RegisterWords, &mut RegisterWords)>
{
    let (left, right) = block.split_at_mut(block.len() / 2);
    let (x, y) = left.split_at_mut(left.len() / 2);
    let (z, w) = right.split_at_mut(right.len() / 2);
    x.iter_mut().zip(y).zip(z.iter_mut().zip(w)).map(|((x, y), (z, w))| (x, y, z, w))
}

//! Products of matrices and vectors in registers of 256 and 512 bits.
//!
//! For 32 x 1536 the floor is 3 digits x 32 rows x 48 lanes = 4,608 instructions `vpdpwssd`: about
//! 2,300 cycles if two start in a cycle (Zen 4 and later), 4,600 if one does (Ice Lake). AVX2 needs
//! 9,216 `vpmaddwd` and as many additions. Products of 32 x 32 bits (`vpmuldq`) or
//! 52 bits (IFMA) take one instruction for 8 entries and four or eight bytes for an entry of A.
//! Measured on one core of an AMD server, with the split into digits, least of 2,000: 1.2 µs with
//! AVX-512, 2.2 µs with AVX2, 50 µs portable (opt-level 2).
#![allow(unsafe_code)] // Intrinsics behind run-time detection.

use std::arch::x86_64::*;

use super::{
    lane::{DIGIT_BITS, DIGITS, Lane},
    portable,
};

/// The number of lanes after which 32-bit sums are widened. A lane adds at most four products of
/// (2^12 - 1)(2^11 - 1) to a sum (with 256 bits; two with 512), and 64 times that is below 2^31.
const WIDEN_EVERY: usize = 64;

/// The number of rows for which the digits are loaded once: 4 x 3 sums fit into 32 registers.
pub(super) const AVX512_ROWS: usize = 4;

/// The number of rows for which the digits are loaded once: 2 x 3 sums fit into 16 registers.
pub(super) const AVX2_ROWS: usize = 2;

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

pub(super) fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

pub(super) fn split_digits_avx2(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
    #[target_feature(enable = "avx2")]
    fn split_digits(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
        portable::split_digits(vector, digits);
    }
    assert!(has_avx2());
    // SAFETY: the line above checked for the instructions.
    unsafe { split_digits(vector, digits) }
}

pub(super) fn split_digits_avx512(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
    #[target_feature(enable = "avx512f,avx512bw")]
    fn split_digits(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
        portable::split_digits(vector, digits);
    }
    assert!(has_avx512_vnni());
    // SAFETY: the line above checked for the instructions.
    unsafe { split_digits(vector, digits) }
}

pub(super) fn multiply_block_avx2(rows: &[Lane], digits: &[[Lane; DIGITS]], products: &mut [u64]) {
    assert!(has_avx2());
    let lanes = digits.len();
    if products.len() == AVX2_ROWS {
        let rows = [&rows[..lanes], &rows[lanes..2 * lanes]];
        // SAFETY: the assertion checked for the instructions.
        products.copy_from_slice(&unsafe { row_products_avx2(rows, digits) });
        return;
    }
    for (row, product) in rows.chunks_exact(lanes).zip(products) {
        // SAFETY: as above.
        [*product] = unsafe { row_products_avx2([row], digits) };
    }
}

pub(super) fn multiply_block_avx512(
    rows: &[Lane],
    digits: &[[Lane; DIGITS]],
    products: &mut [u64],
) {
    assert!(has_avx512_vnni());
    let lanes = digits.len();
    if products.len() == AVX512_ROWS {
        let row = |index: usize| &rows[index * lanes..][..lanes];
        // SAFETY: the assertion checked for the instructions.
        let found = unsafe { row_products_avx512([row(0), row(1), row(2), row(3)], digits) };
        products.copy_from_slice(&found);
        return;
    }
    for (row, product) in rows.chunks_exact(lanes).zip(products) {
        // SAFETY: as above.
        [*product] = unsafe { row_products_avx512([row], digits) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn row_products_avx512<const R: usize>(rows: [&[Lane]; R], digits: &[[Lane; DIGITS]]) -> [u64; R] {
    let mut products = [0u64; R];
    for (first, digits) in digits.chunks(WIDEN_EVERY).enumerate() {
        let rows = rows.map(|row| &row[first * WIDEN_EVERY..][..digits.len()]);
        let mut sums = [[_mm512_setzero_si512(); DIGITS]; R];
        for (at, digits) in digits.iter().enumerate() {
            let digits = [load512(&digits[0]), load512(&digits[1]), load512(&digits[2])];
            for (row, sums) in rows.iter().zip(&mut sums) {
                let entries = load512(&row[at]);
                for (sum, digit) in sums.iter_mut().zip(digits) {
                    *sum = _mm512_dpwssd_epi32(*sum, entries, digit);
                }
            }
        }
        for (product, sums) in products.iter_mut().zip(&sums) {
            *product = product.wrapping_add(sum_digits_avx512(sums));
        }
    }
    products
}

/// The total of the 32-bit sums, each digit with its weight, computed in 64-bit lanes.
#[target_feature(enable = "avx512f")]
fn sum_digits_avx512(sums: &[__m512i; DIGITS]) -> u64 {
    let widen = |sum: __m512i| {
        let high = _mm512_extracti64x4_epi64::<1>(sum);
        _mm512_add_epi64(
            _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum)),
            _mm512_cvtepi32_epi64(high),
        )
    };
    let first = _mm512_slli_epi64::<DIGIT_BITS>(widen(sums[1]));
    let second = _mm512_slli_epi64::<{ 2 * DIGIT_BITS }>(widen(sums[2]));
    let all = _mm512_add_epi64(widen(sums[0]), _mm512_add_epi64(first, second));
    _mm512_reduce_add_epi64(all) as u64
}

#[target_feature(enable = "avx2")]
fn row_products_avx2<const R: usize>(rows: [&[Lane]; R], digits: &[[Lane; DIGITS]]) -> [u64; R] {
    let mut products = [0u64; R];
    for (first, digits) in digits.chunks(WIDEN_EVERY).enumerate() {
        let rows = rows.map(|row| &row[first * WIDEN_EVERY..][..digits.len()]);
        let mut sums = [[_mm256_setzero_si256(); DIGITS]; R];
        for (at, digits) in digits.iter().enumerate() {
            for half in 0..2 {
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let entries = load256(&row[at], half);
                    for (sum, digit) in sums.iter_mut().zip(digits) {
                        let pairs = _mm256_madd_epi16(entries, load256(digit, half));
                        *sum = _mm256_add_epi32(*sum, pairs);
                    }
                }
            }
        }
        for (product, sums) in products.iter_mut().zip(&sums) {
            for (digit, sum) in sums.iter().enumerate() {
                let weighted = sum_lanes_avx2(*sum) << (DIGIT_BITS * digit as u32);
                *product = product.wrapping_add(weighted);
            }
        }
    }
    products
}

#[target_feature(enable = "avx2")]
fn sum_lanes_avx2(sum: __m256i) -> u64 {
    let wide = _mm256_add_epi64(
        _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum)),
        _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(sum)),
    );
    let pair = _mm_add_epi64(_mm256_castsi256_si128(wide), _mm256_extracti128_si256::<1>(wide));
    (_mm_cvtsi128_si64(pair)).wrapping_add(_mm_extract_epi64::<1>(pair)) as u64
}

#[target_feature(enable = "avx512f")]
fn load512(lane: &Lane) -> __m512i {
    // SAFETY: a lane has 64 bytes and is aligned to 64 bytes.
    unsafe { _mm512_load_si512(lane.0.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn load256(lane: &Lane, half: usize) -> __m256i {
    let part = &lane.0[half * 16..][..16];
    // SAFETY: half a lane has 32 bytes and is aligned to 32 bytes.
    unsafe { _mm256_load_si256(part.as_ptr().cast()) }
}

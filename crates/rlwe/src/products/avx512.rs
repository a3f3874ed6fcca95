//! Scalar products on AVX-512 without `vpmadd52`. Each value is split into its lower 31 bits and an
//! upper part of up to 30. Products of a part with a 16-bit weight have at most 46 bits, so the sum
//! of a block of them fits a word.

#![allow(unsafe_code)] // Intrinsics; each block states why it is sound.

use std::arch::x86_64::*;

use super::{
    row_groups::{ROWS, group_weights},
    tile::{BLOCK, TILE},
};
use crate::{
    modulus::Modulus,
    simd::avx512::{load, store},
};

/// The number of bits of the lower part.
const CUT: u32 = 31;

/// Computes what [`super::multiply_portable`] does. The caller has checked that the machine supports
/// [`crate::NttPath::Avx512`].
pub(super) fn multiply(
    q: Modulus,
    block: &[u64],
    weights: &[i16],
    count: usize,
    sums: &mut [&mut [u64]],
) {
    let grouped = group_weights(weights, sums.len(), count, i64::from);
    // A multiple of q that makes every sum positive.
    let offset = i128::from(q.value()) << 23;
    for (tile, terms) in block.chunks_exact(BLOCK * TILE).enumerate() {
        let terms = &terms.as_chunks::<TILE>().0[..count];
        for (group, weights) in grouped.chunks_exact(count).enumerate() {
            // SAFETY: a table has this path only if the machine has the path's features.
            let wide = unsafe { row_group_sums(terms, weights) };
            let first = group * ROWS;
            for (row, [low, high]) in sums[first..].iter_mut().zip(&wide) {
                let at = &mut row[tile * TILE..][..TILE];
                for (x, (&low, &high)) in at.iter_mut().zip(low.iter().zip(high)) {
                    let upper = i128::from(high as i64) << CUT;
                    let sum = offset.wrapping_add(upper).wrapping_add((low as i64).into());
                    *x = q.add(*x, q.reduce_wide(sum as u128));
                }
            }
        }
    }
}

/// The sums of the lower and of the upper parts for each row, as signed words.
#[target_feature(enable = "avx512f")]
fn row_group_sums(terms: &[[u64; TILE]], weights: &[[i64; ROWS]]) -> [[[u64; TILE]; 2]; ROWS] {
    let mut wide = [[[_mm512_setzero_si512(); 2]; 2]; ROWS];
    let mask = _mm512_set1_epi64((1 << CUT) - 1);
    for (term, weights) in terms.iter().zip(weights) {
        let [first, second] = term.as_chunks::<8>().0 else { break };
        let halves = [load(first), load(second)];
        let parts = halves.map(|x| [_mm512_and_si512(x, mask), _mm512_srli_epi64::<CUT>(x)]);
        for ([lower, upper], &weight) in wide.iter_mut().zip(weights) {
            let weight = _mm512_set1_epi64(weight);
            for ((lower, upper), [low, high]) in lower.iter_mut().zip(upper).zip(parts) {
                *lower = _mm512_add_epi64(*lower, _mm512_mul_epi32(low, weight));
                *upper = _mm512_add_epi64(*upper, _mm512_mul_epi32(high, weight));
            }
        }
    }
    let mut out = [[[0; TILE]; 2]; ROWS];
    for (out, sums) in out.iter_mut().flatten().zip(wide.iter().flatten()) {
        let (halves, _) = out.as_chunks_mut::<8>();
        halves.iter_mut().zip(sums).for_each(|(half, &sum)| store(half, sum));
    }
    out
}

//! Scalar products with `vpmadd52`: four rows by sixteen coefficients at a time, with separate
//! sums of the lower and the upper 52 bits of the products, and one reduction for the block.

#![allow(unsafe_code)] // Intrinsics; each block states why it is sound.

use std::arch::x86_64::*;

use super::{
    row_groups::{ROWS, group_weights},
    tile::{BLOCK, TILE},
};
use crate::{
    modulus::Modulus,
    simd::avx512::{FactorVector, ModulusVector, load, store},
};

/// Computes what [`super::multiply_portable`] does. The caller has checked that the machine supports
/// [`crate::NttPath::Ifma`].
pub(super) fn multiply(
    q: Modulus,
    block: &[u64],
    weights: &[i16],
    count: usize,
    sums: &mut [&mut [u64]],
) {
    let lifted = group_weights(weights, sums.len(), count, |w| q.reduce_signed(w.into()));
    // SAFETY: a table has this path only if the machine has the path's features.
    unsafe { multiply_tiles(q, block, &lifted, count, sums) };
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply_tiles(
    q: Modulus,
    block: &[u64],
    weights: &[[u64; ROWS]],
    count: usize,
    sums: &mut [&mut [u64]],
) {
    let fold = SumReduction::new(q);
    for (tile, terms) in block.chunks_exact(BLOCK * TILE).enumerate() {
        let terms = &terms.as_chunks::<TILE>().0[..count];
        for (group, weights) in weights.chunks_exact(count).enumerate() {
            let wide = row_group_sums(terms, weights);
            let first = group * ROWS;
            for (row, wide) in sums[first..].iter_mut().zip(&wide) {
                let at = row[tile * TILE..][..TILE].as_chunks_mut::<8>().0;
                for (at, &[low, high]) in at.iter_mut().zip(wide) {
                    store(at, fold.add_reduced_sums(load(at), low, high));
                }
            }
        }
    }
}

/// The sums of the lower and of the upper 52 bits, for each row and each half of a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn row_group_sums(terms: &[[u64; TILE]], weights: &[[u64; ROWS]]) -> [[[__m512i; 2]; 2]; ROWS] {
    let mut wide = [[[_mm512_setzero_si512(); 2]; 2]; ROWS];
    for (term, weights) in terms.iter().zip(weights) {
        let [first, second] = term.as_chunks::<8>().0 else { break };
        let halves = [load(first), load(second)];
        for (sums, &weight) in wide.iter_mut().zip(weights) {
            let weight = _mm512_set1_epi64(weight as i64);
            for ([low, high], half) in sums.iter_mut().zip(halves) {
                *low = _mm512_madd52lo_epu64(*low, half, weight);
                *high = _mm512_madd52hi_epu64(*high, half, weight);
            }
        }
    }
    wide
}

/// Adds the two sums of up to 128 products to a reduced value. Lower sums are below 2^59, upper
/// ones below 2^55.
struct SumReduction {
    q: ModulusVector,
    /// `shift` is 2^52 mod q and `one` is 1.
    shift: FactorVector,
    one: FactorVector,
    low: __m512i,
}

impl SumReduction {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(q: Modulus) -> SumReduction {
        let low = (1u64 << 52) - 1;
        SumReduction {
            q: ModulusVector::new(q),
            shift: FactorVector::new(q.shoup_factor(q.reduce(1 << 52))),
            one: FactorVector::new(q.shoup_factor(1)),
            low: _mm512_set1_epi64(low as i64),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add_reduced_sums(&self, value: __m512i, low: __m512i, high: __m512i) -> __m512i {
        // high·2^52 + low = (upper·2^52 + middle)·2^52 + rest, with upper below 2^4.
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let rest = _mm512_and_si512(low, self.low);
        let (middle, upper) = (_mm512_and_si512(high, self.low), _mm512_srli_epi64::<52>(high));
        let upper = self.q.multiply_shoup(upper, self.shift);
        let high = self.q.add(upper, self.q.multiply_shoup(middle, self.one));
        let high = self.q.multiply_shoup(high, self.shift);
        let rest = self.q.multiply_shoup(rest, self.one);
        self.q.add(value, self.q.add(high, rest))
    }
}

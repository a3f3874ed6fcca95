//! Products of matrices and vectors without intrinsics.

use super::lane::{DIGIT_BITS, DIGITS, LANE, Lane};

const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;

#[inline(always)]
pub(super) fn split_digits(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
    for (part, lanes) in vector.chunks(LANE).zip(digits) {
        for (digit, lane) in lanes.iter_mut().enumerate() {
            let shift = DIGIT_BITS * digit as u32;
            for (to, value) in lane.0.iter_mut().zip(part) {
                *to = (value >> shift & DIGIT_MASK) as i16;
            }
            lane.0[part.len()..].fill(0);
        }
    }
}

pub(super) fn multiply_block(rows: &[Lane], digits: &[[Lane; DIGITS]], products: &mut [u64]) {
    for (row, product) in rows.chunks_exact(digits.len()).zip(products) {
        let mut sums = [0i64; DIGITS];
        for (entries, digits) in row.iter().zip(digits) {
            for (sum, digit) in sums.iter_mut().zip(digits) {
                *sum += i64::from(lane_product(entries, digit));
            }
        }
        *product = sums.iter().enumerate().fold(0, |all, (digit, sum)| {
            all.wrapping_add((*sum as u64) << (DIGIT_BITS * digit as u32))
        });
    }
}

/// The product of two lanes: 32 products of (2^12 - 1)(2^11 - 1) sum to less than 2^31. Compilers
/// turn this form into the instruction that multiplies and adds pairs (`pmaddwd` on every x86-64).
#[inline(always)]
fn lane_product(entries: &Lane, digits: &Lane) -> i32 {
    entries.0.iter().zip(&digits.0).map(|(a, y)| i32::from(*a) * i32::from(*y)).sum()
}

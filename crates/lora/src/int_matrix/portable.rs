use super::{DIGIT_BITS, DIGITS, LANE, Lane, WIDEN_EVERY};

const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;

#[inline(always)]
pub(super) fn split(vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
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

pub(super) fn block(rows: &[Lane], digits: &[[Lane; DIGITS]], products: &mut [u64]) {
    for (row, product) in rows.chunks_exact(digits.len()).zip(products) {
        *product = row
            .chunks(WIDEN_EVERY)
            .zip(digits.chunks(WIDEN_EVERY))
            .map(|(row, digits)| part(row, digits))
            .fold(0, u64::wrapping_add);
    }
}

/// At most [`WIDEN_EVERY`] lanes: no sum of two products at a time leaves 32 bits.
fn part(row: &[Lane], digits: &[[Lane; DIGITS]]) -> u64 {
    let mut sums = [[0i32; LANE]; DIGITS];
    for (entries, digits) in row.iter().zip(digits) {
        for (sum, digit) in sums.iter_mut().zip(digits) {
            for ((sum, entry), digit) in sum.iter_mut().zip(entries.0).zip(digit.0) {
                *sum += i32::from(entry) * i32::from(digit);
            }
        }
    }
    let total = |sums: &[i32; LANE]| sums.iter().map(|sum| i64::from(*sum)).sum::<i64>() as u64;
    sums.iter()
        .enumerate()
        .fold(0, |all, (digit, sums)| all.wrapping_add(total(sums) << (DIGIT_BITS * digit as u32)))
}

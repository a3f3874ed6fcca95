//! The loops of quantisation without intrinsics, which are compiled for several register widths.

/// The partial sums of a sum of squares: as many as a thread block of the GPU kernel has threads.
pub(super) const LANES: usize = 256;
/// The partial sums that stay in registers at a time: as many as a warp has threads.
const GROUP: usize = 32;

/// Computes the sum of squares and the greatest magnitude.
///
/// Entry `i` is added to partial sum `i % LANES`, in order of `i`. The partial sums are then added
/// in a fixed tree: within each group of 32 those at distance 16, 8, 4, 2 and 1, then the totals of
/// the groups at distance 4, 2 and 1. The result depends neither on the register width nor on the
/// device (`lane_sum` of the CUDA kernels).
#[inline(always)]
pub(super) fn square_sum_and_max(real: &[f32]) -> (f64, f32) {
    let mut totals = [0f64; LANES / GROUP];
    let mut greatest = [0f32; GROUP];
    let (blocks, rest) = real.as_chunks::<LANES>();
    for (group, total) in totals.iter_mut().enumerate() {
        let mut squares = [0f64; GROUP];
        let whole = blocks.iter().map(|block| &block.as_chunks::<GROUP>().0[group]);
        for chunk in whole {
            for lane in 0..GROUP {
                let value = chunk[lane].abs();
                squares[lane] += f64::from(value) * f64::from(value);
                greatest[lane] = if value > greatest[lane] { value } else { greatest[lane] };
            }
        }
        let rest = rest.get(group * GROUP..).unwrap_or_default();
        for (lane, value) in rest.iter().take(GROUP).enumerate() {
            squares[lane] += f64::from(*value) * f64::from(*value);
            greatest[lane] = greatest[lane].max(value.abs());
        }
        *total = tree_sum(&mut squares);
    }
    (tree_sum(&mut totals), greatest.iter().fold(0.0, |all, lane| all.max(*lane)))
}

/// Adds the upper half of the values to the lower half until one is left.
#[inline(always)]
fn tree_sum<const COUNT: usize>(values: &mut [f64; COUNT]) -> f64 {
    let mut distance = COUNT / 2;
    while distance > 0 {
        for lane in 0..distance {
            values[lane] += values[lane + distance];
        }
        distance /= 2;
    }
    values[0]
}

/// Rounds `real · factor` to the nearest integers and returns the sum of their squares. The
/// products are within 16 bits, so after adding 1.5 · 2^52 the lowest bits are the integer. SSE2 has
/// no rounding instruction.
#[inline(always)]
pub(super) fn round_to_i16(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    for (to, value) in values.iter_mut().zip(real) {
        *to = (f64::from(*value) * factor + MAGIC).to_bits() as i16;
    }
    sum_of_squares(values)
}

#[inline(always)]
pub(super) fn sum_of_squares(values: &[i16]) -> u64 {
    // Four squares of 15 bits stay below 2^32.
    let quad = |quad: &[i16; 4]| -> u64 {
        let square = |value: i16| (i32::from(value) * i32::from(value)) as u32;
        u64::from(square(quad[0]) + square(quad[1]) + square(quad[2]) + square(quad[3]))
    };
    let (quads, rest) = values.as_chunks::<4>();
    let rest = rest.iter().map(|value| (i32::from(*value) * i32::from(*value)) as u64);
    quads.iter().map(quad).sum::<u64>() + rest.sum::<u64>()
}

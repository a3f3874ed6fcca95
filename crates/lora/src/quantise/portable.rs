//! The loops of quantisation without intrinsics, which are compiled for several register widths.

/// Computes the sum of squares and the greatest magnitude, in eight lanes that a compiler can
/// vectorise. The results do not depend on the register width.
#[inline(always)]
pub(super) fn square_sum_and_max(real: &[f32]) -> (f64, f32) {
    const LANES: usize = 8;
    let mut squares = [0f64; LANES];
    let mut greatest = [0f32; LANES];
    let (chunks, rest) = real.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane].abs();
            squares[lane] += f64::from(value) * f64::from(value);
            greatest[lane] = if value > greatest[lane] { value } else { greatest[lane] };
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        squares[lane] += f64::from(*value) * f64::from(*value);
        greatest[lane] = greatest[lane].max(value.abs());
    }
    (squares.iter().sum(), greatest.iter().fold(0.0, |all, lane| all.max(*lane)))
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
    integer_square(values)
}

#[inline(always)]
pub(super) fn integer_square(values: &[i16]) -> u64 {
    // Four squares of 15 bits stay below 2^32.
    let quad = |quad: &[i16; 4]| -> u64 {
        let square = |value: i16| (i32::from(value) * i32::from(value)) as u32;
        u64::from(square(quad[0]) + square(quad[1]) + square(quad[2]) + square(quad[3]))
    };
    let (quads, rest) = values.as_chunks::<4>();
    let rest = rest.iter().map(|value| (i32::from(*value) * i32::from(*value)) as u64);
    quads.iter().map(quad).sum::<u64>() + rest.sum::<u64>()
}

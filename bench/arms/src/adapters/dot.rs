//! Scalar products by wide registers, and the floor of one.

use std::time::Instant;

/// Sums that run side by side, so that the compiler can use wide registers.
const LANES: usize = 16;

pub(crate) fn dot_product(row: &[f32], vector: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (rows, vectors) = (row.chunks_exact(LANES), vector.chunks_exact(LANES));
    let rest = rows.remainder().iter().zip(vectors.remainder()).map(|(a, x)| a * x).sum::<f32>();
    for (row, vector) in rows.zip(vectors) {
        for ((sum, a), x) in sums.iter_mut().zip(row).zip(vector) {
            *sum += a * x;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The shortest time, in ms, of a copy of these values by this thread.
pub(crate) fn measure_copy_ms<T: Copy + Default>(values: &[T]) -> f64 {
    const COPIES: usize = 200;
    let mut to = vec![T::default(); values.len()];
    let copy = || {
        let began = Instant::now();
        to.copy_from_slice(std::hint::black_box(values));
        std::hint::black_box(&mut to);
        began.elapsed().as_secs_f64() * 1e3
    };
    std::iter::repeat_with(copy).take(COPIES).fold(f64::INFINITY, f64::min)
}

//! Weights in the order in which the vector kernels read them.

/// The number of rows that a kernel computes at a time: their sixteen sums fill half of the
/// registers.
pub(super) const ROWS: usize = 4;

/// Reorders the weights so that those of [`ROWS`] rows are contiguous: `count` columns of the first
/// rows, then those of the next rows. Missing rows have weight 0.
pub(super) fn group_weights<T: Copy + Default>(
    weights: &[i16],
    rows: usize,
    count: usize,
    convert: impl Fn(i16) -> T,
) -> Vec<[T; ROWS]> {
    let mut grouped = vec![[T::default(); ROWS]; rows.div_ceil(ROWS) * count];
    for (j, column) in weights.chunks_exact(rows).enumerate() {
        for (group, part) in column.chunks(ROWS).enumerate() {
            let four = &mut grouped[group * count + j];
            four.iter_mut().zip(part).for_each(|(x, &w)| *x = convert(w));
        }
    }
    grouped
}

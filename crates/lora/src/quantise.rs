//! Rounding of real numbers to integers, and the bound under which no product of them wraps.

use crate::{
    adapter::Matrix,
    int_matrix::{ENTRY_MAX, IntMatrix, IntMatrixError},
};

mod portable;
#[cfg(target_arch = "x86_64")]
mod simd;

/// The greatest magnitude of an entry of a vector: signed 16 bits without the lowest value.
pub const VECTOR_MAX: i16 = i16::MAX;

/// The norm limit of a matrix of zeroes, above the norm of any 16-bit vector that a frame can hold.
const NORM_LIMIT_MAX: u64 = 1 << 40;

/// The greatest relative error that rounding a vector may add, 2^-10: the error that is
/// allowed for the adapted logits in all.
const ROUNDING_ERROR_MAX: f64 = 1.0 / 1024.0;

/// Real rows as integers: `real[i][j] ≈ scales[i] · matrix[i][j]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuantisedRows {
    /// The integer entries, each of at most [`ENTRY_MAX`].
    pub matrix: IntMatrix,
    /// The scales of the rows, each above 0.
    pub scales: Vec<f64>,
}

/// A real vector as integers: `real[j] ≈ scale · values[j]`.
#[derive(Clone, PartialEq)]
pub struct QuantisedVector {
    /// The integer entries, each of at most [`VECTOR_MAX`].
    pub values: Vec<i16>,
    /// The scale, above 0.
    pub scale: f64,
}

/// The reason why a matrix or a vector was not quantised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantiseError {
    /// An entry is infinite or not a number.
    #[error("entry {at} is not finite")]
    NotFinite {
        /// The index of the entry, row after row.
        at: usize,
    },
    /// The norm limit of the adapter leaves too few bits for this vector.
    #[error(
        "vector: rounding to the norm limit {norm_limit} adds a relative error of {error:.1e}, wanted \
         at most {ROUNDING_ERROR_MAX:.1e}"
    )]
    TooCoarse {
        /// The greatest norm of the integers.
        norm_limit: u64,
        /// The relative error in the Euclidean norm; infinite if every entry would become 0.
        error: f64,
    },
    /// The row bound of the parameter set is below one entry.
    #[error("row bound: wanted at least 1, got 0")]
    RowBound,
    /// The entries do not make a matrix.
    #[error(transparent)]
    Matrix(#[from] IntMatrixError),
}

/// Rounds each row with a scale of its own. A row whose magnitudes would sum to more than
/// `row_l1_max` (the noise bound of the parameter set) gets a greater scale.
///
/// # Errors
/// If an entry is not finite, or there are no entries.
pub(crate) fn quantise_rows(
    real: &Matrix,
    entry_max: i16,
    row_l1_max: u64,
) -> Result<QuantisedRows, QuantiseError> {
    let rows: Vec<Vec<f64>> = (0..real.rows).map(|row| to_f64(real.row(row))).collect();
    let entry_max = entry_max.min(ENTRY_MAX);
    let mut entries = Vec::with_capacity(real.values.len());
    let mut scales = Vec::with_capacity(real.rows);
    for row in &rows {
        let scale = least_scale(&[row], entry_max, row_l1_max, entries.len())?;
        entries.extend(row.iter().map(|value| (value / scale).round() as i16));
        scales.push(scale);
    }
    Ok(QuantisedRows { matrix: IntMatrix::new(real.rows, real.columns, &entries)?, scales })
}

/// Rounds all rows with one scale, which reveals nothing about a single row. It is used for the
/// product `B · A`.
///
/// # Errors
/// As [`quantise_rows`].
pub(crate) fn quantise_with_one_scale(
    rows: usize,
    columns: usize,
    real: &[f64],
    entry_max: i16,
    row_l1_max: u64,
) -> Result<QuantisedRows, QuantiseError> {
    if rows.checked_mul(columns) != Some(real.len()) || real.is_empty() {
        let entries = real.len();
        return Err(IntMatrixError::Shape { rows, columns, entries }.into());
    }
    let parts: Vec<&[f64]> = real.chunks_exact(columns).collect();
    let scale = least_scale(&parts, entry_max.min(ENTRY_MAX), row_l1_max, 0)?;
    let entries: Vec<i16> = real.iter().map(|value| (value / scale).round() as i16).collect();
    Ok(QuantisedRows {
        matrix: IntMatrix::new(rows, columns, &entries)?,
        scales: vec![scale; rows],
    })
}

/// The greatest Euclidean norm of an integer vector `x` for which `|row · x| + headroom < 2^(bits -
/// 1)` holds for every row (Cauchy-Schwarz); 0 if there is no such norm.
pub fn norm_limit(matrix: &IntMatrix, bits: u32, headroom: u64) -> u64 {
    let room = ((1u64 << (bits - 1)) - 1).saturating_sub(headroom);
    let square = u128::from(room).pow(2);
    match u128::from(matrix.row_square_max()) {
        0 => NORM_LIMIT_MAX,
        row => ((square / row).isqrt() as u64).min(NORM_LIMIT_MAX),
    }
}

/// Rounds a vector to 16 bits so that the Euclidean norm of the integers is at most `norm_limit`.
/// Then products with the matrix of this limit cannot wrap.
///
/// # Errors
/// If an entry is not finite, or the limit leaves a relative error above 2^-10.
pub fn quantise_vector(real: &[f32], norm_limit: u64) -> Result<QuantisedVector, QuantiseError> {
    let (square, greatest) = square_sum_and_max(real);
    if !square.is_finite() {
        let at = real.iter().position(|value| !value.is_finite()).unwrap_or_default();
        return Err(QuantiseError::NotFinite { at });
    }
    if greatest == 0.0 {
        return Ok(QuantisedVector { values: vec![0; real.len()], scale: 1.0 });
    }
    // Rounding changes an entry by at most a half, and so the norm by at most half the square root
    // of the length.
    let room = norm_limit as f64 - (real.len() as f64).sqrt() / 2.0 - 1.0;
    if room < 1.0 {
        return Err(QuantiseError::TooCoarse { norm_limit, error: f64::INFINITY });
    }
    let scale = (f64::from(greatest) / f64::from(VECTOR_MAX)).max(square.sqrt() / room);
    let mut values = vec![0; real.len()];
    let norm_square = round_to_i16(real, 1.0 / scale, &mut values);
    if u128::from(norm_square) > u128::from(norm_limit).pow(2) {
        // The floating-point estimate has a margin of 1, but only this exact check guarantees the
        // bound.
        return Err(QuantiseError::TooCoarse { norm_limit, error: f64::INFINITY });
    }
    // The rounding error of an entry is at most half a unit, so most vectors need no exact check.
    let worst = real.len() as f64 / 4.0 / ROUNDING_ERROR_MAX.powi(2);
    if (norm_square as f64) < worst {
        let error = rounding_error(real, &values, scale, square);
        if error > ROUNDING_ERROR_MAX {
            return Err(QuantiseError::TooCoarse { norm_limit, error });
        }
    }
    Ok(QuantisedVector { values, scale })
}

impl std::fmt::Debug for QuantisedVector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "QuantisedVector of {} entries", self.values.len())
    }
}

/// The least scale under which entries stay within `entry_max` and rows within `row_l1_max`.
fn least_scale(
    rows: &[&[f64]],
    entry_max: i16,
    row_l1_max: u64,
    first: usize,
) -> Result<f64, QuantiseError> {
    let columns = rows.first().map_or(0, |row| row.len());
    let mut greatest = 0f64;
    for (index, row) in rows.iter().enumerate() {
        if let Some(at) = row.iter().position(|value| !value.is_finite()) {
            return Err(QuantiseError::NotFinite { at: first + index * columns + at });
        }
        greatest = row.iter().fold(greatest, |greatest, value| greatest.max(value.abs()));
    }
    if greatest == 0.0 {
        return Ok(1.0);
    }
    if row_l1_max == 0 {
        return Err(QuantiseError::RowBound);
    }
    let mut scale = greatest / f64::from(entry_max);
    let sum = |row: &[f64], scale: f64| -> u64 {
        row.iter().map(|value| (value / scale).round().abs() as u64).sum()
    };
    loop {
        let longest = rows.iter().map(|row| sum(row, scale)).max().unwrap_or(0);
        if longest <= row_l1_max {
            return Ok(scale);
        }
        // Rounding up can keep a row above the bound, so the scale grows by a little more than the
        // ratio.
        scale *= (longest as f64 / row_l1_max as f64) * (1.0 + 1.0 / 65536.0);
    }
}

fn to_f64(row: &[f32]) -> Vec<f64> {
    row.iter().map(|value| f64::from(*value)).collect()
}

/// The sum of squares and the greatest magnitude.
fn square_sum_and_max(real: &[f32]) -> (f64, f32) {
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = simd::square_sum_and_max(real) {
        return found;
    }
    portable::square_sum_and_max(real)
}

/// Rounds `real · factor` to the nearest integers and returns the sum of their squares.
fn round_to_i16(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(square) = simd::round_to_i16(real, factor, values) {
        return square;
    }
    portable::round_to_i16(real, factor, values)
}

fn rounding_error(real: &[f32], values: &[i16], scale: f64, square: f64) -> f64 {
    let errors = real.iter().zip(values);
    let sum: f64 = errors.map(|(x, v)| (f64::from(*x) - scale * f64::from(*v)).powi(2)).sum();
    (sum / square).sqrt()
}

#[cfg(test)]
mod tests {
    use confide_rlwe::Rng;

    use super::*;
    use crate::int_matrix::{DigitScratch, low_mask};

    const ROW_L1_MAX: u64 = 3_190_000;

    /// Draws a normal number as the sum of twelve uniform ones.
    fn normal(rng: &mut Rng) -> f64 {
        let mut bytes = [0; 48];
        rng.fill_bytes(&mut bytes);
        let words = bytes.chunks_exact(4);
        let uniform = |word: &[u8]| {
            f64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))) / 4_294_967_296.0
        };
        words.map(uniform).sum::<f64>() - 6.0
    }

    fn matrix(rng: &mut Rng, rows: usize, columns: usize) -> Matrix {
        let values = (0..rows * columns).map(|_| (normal(rng) * 0.02) as f32).collect();
        Matrix { rows, columns, values }
    }

    /// Draws activations like those of the study: eight channels are sixty times as large as the
    /// others.
    fn heavy_tailed(rng: &mut Rng, columns: usize) -> Vec<f32> {
        let factor = |at: usize| if at % (columns / 8) == 5 { 60.0 } else { 1.0 };
        (0..columns).map(|at| (normal(rng) * factor(at)) as f32).collect()
    }

    fn exact(matrix: &IntMatrix, values: &[i16]) -> Vec<i64> {
        let row =
            |row| matrix.row(row).zip(values).map(|(a, x)| i64::from(a) * i64::from(*x)).sum();
        (0..matrix.rows()).map(row).collect()
    }

    #[test]
    fn heavy_tailed_activations_lose_less_than_five_in_ten_thousand() {
        let (mut error, mut size) = (0f64, 0f64);
        for seed in 0..8 {
            let mut rng = Rng::from_seed([seed; 32]);
            let real = matrix(&mut rng, 32, 1536);
            let x = heavy_tailed(&mut rng, 1536);
            let a = quantise_rows(&real, ENTRY_MAX, ROW_L1_MAX).expect("finite");
            let x_int = quantise_vector(&x, norm_limit(&a.matrix, 33, 0)).expect("fits");
            for (row, product) in exact(&a.matrix, &x_int.values).into_iter().enumerate() {
                let wanted: f64 =
                    real.row(row).iter().zip(&x).map(|(a, x)| f64::from(*a) * f64::from(*x)).sum();
                let got = product as f64 * a.scales[row] * x_int.scale;
                error += (got - wanted).powi(2);
                size += wanted.powi(2);
            }
        }
        let relative = (error / size).sqrt();
        assert!(relative < 5e-4, "relative error {relative:.2e}");
    }

    #[test]
    fn no_product_under_the_norm_limit_wraps() {
        let mut rng = Rng::from_seed([1; 32]);
        for (columns, bits) in [(1, 33), (64, 20), (1536, 33), (8960, 33)] {
            // The worst vector: a multiple of the longest row.
            let entries: Vec<i16> = (0..columns).map(|at| ENTRY_MAX - (at % 7) as i16).collect();
            let a = IntMatrix::new(1, columns, &entries).expect("fits");
            let limit = norm_limit(&a, bits, 0);
            let along: Vec<f32> = entries.iter().map(|entry| f32::from(*entry)).collect();
            let Ok(x) = quantise_vector(&along, limit) else { continue };
            let product = exact(&a, &x.values)[0];
            assert!(product.unsigned_abs() < 1 << (bits - 1), "{columns} columns, {bits} bits");
            let words: Vec<u64> =
                x.values.iter().map(|v| i64::from(*v) as u64 & low_mask(bits)).collect();
            let mut wrapped = [0];
            a.multiply_vectors(&[&words], bits, &mut DigitScratch::default(), &mut wrapped);
            assert_eq!(wrapped[0], product as u64 & low_mask(bits));
            let x = quantise_vector(&heavy_tailed(&mut rng, 1536), limit);
            assert!(
                x.is_err()
                    || portable::sum_of_squares(&x.expect("is a vector").values) <= limit.pow(2)
            );
        }
    }

    #[test]
    fn the_norm_limit_is_the_greatest_that_cauchy_schwarz_allows() {
        let a = IntMatrix::new(2, 2, &[3, 4, 0, 1]).expect("fits");
        // |row| = 5: 5 · limit <= 2^9 - 1.
        assert_eq!(norm_limit(&a, 10, 0), 102);
        assert_eq!(norm_limit(&a, 10, 11), 100);
        assert_eq!(norm_limit(&a, 10, 1 << 10), 0);
        let zero = IntMatrix::new(1, 2, &[0, 0]).expect("fits");
        assert_eq!(norm_limit(&zero, 33, 0), NORM_LIMIT_MAX);
    }

    #[test]
    fn a_row_beyond_the_noise_bound_gets_a_greater_scale() {
        let real =
            Matrix { rows: 2, columns: 4, values: vec![1.0, -1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0] };
        let a = quantise_rows(&real, ENTRY_MAX, 4000).expect("finite");
        assert!(a.matrix.row_l1(0) <= 4000 && a.matrix.row_l1(0) > 3990);
        assert_eq!(a.matrix.row_l1(1), 4000);
        assert!(
            (f64::from(a.matrix.row(0).next().expect("four")) * a.scales[0] - 1.0).abs() < 1e-3
        );
        let whole: Vec<f64> = real.values.iter().map(|value| f64::from(*value)).collect();
        let all = quantise_with_one_scale(2, 4, &whole, ENTRY_MAX, 4000).expect("finite");
        assert!(all.matrix.row_l1(0) <= 4000 && all.scales[0] == all.scales[1]);
        assert!(matches!(quantise_rows(&real, ENTRY_MAX, 0), Err(QuantiseError::RowBound)));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_name() {
        let limit = 1 << 20;
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let refused = quantise_vector(&[0.0, bad], limit);
            assert_eq!(refused, Err(QuantiseError::NotFinite { at: 1 }));
        }
        let ramp: Vec<f32> = (0..1536).map(|at| at as f32).collect();
        let coarse = quantise_vector(&ramp, 3000);
        assert!(matches!(coarse, Err(QuantiseError::TooCoarse { .. })), "{coarse:?}");
        assert!(matches!(quantise_vector(&[1.0], 0), Err(QuantiseError::TooCoarse { .. })));
        let real = Matrix { rows: 1, columns: 2, values: vec![0.0, f32::NAN] };
        assert_eq!(
            quantise_rows(&real, ENTRY_MAX, ROW_L1_MAX),
            Err(QuantiseError::NotFinite { at: 1 })
        );
    }

    #[test]
    fn every_path_rounds_alike() {
        let mut rng = Rng::from_seed([6; 32]);
        for length in [1, 7, 8, 33, 255, 256, 257, 1536, 8960] {
            let real = heavy_tailed(&mut rng, length.max(8));
            let real = &real[..length];
            assert_eq!(square_sum_and_max(real), portable::square_sum_and_max(real));
            let (mut fast, mut slow) = (vec![0; length], vec![0; length]);
            let squares = (
                round_to_i16(real, 100.0, &mut fast),
                portable::round_to_i16(real, 100.0, &mut slow),
            );
            assert_eq!((squares.0, fast), (squares.1, slow.clone()));
            let sum = slow.iter().map(|v| i64::from(*v).pow(2) as u64).sum::<u64>();
            assert_eq!(squares.0, sum);
        }
    }

    #[test]
    fn squares_are_summed_in_256_lanes_and_a_tree() {
        let mut rng = Rng::from_seed([7; 32]);
        for length in [8, 64, 300, 1536, 1700] {
            let real = heavy_tailed(&mut rng, length);
            let mut lanes = vec![0f64; 256];
            for (at, value) in real.iter().enumerate() {
                lanes[at % 256] += f64::from(*value) * f64::from(*value);
            }
            let mut sum = |first: usize, step: usize, count: usize| {
                let mut distance = count / 2;
                while distance > 0 {
                    for lane in 0..distance {
                        lanes[first + lane * step] += lanes[first + (lane + distance) * step];
                    }
                    distance /= 2;
                }
            };
            (0..8).for_each(|group| sum(group * 32, 1, 32));
            sum(0, 32, 8);
            let got = square_sum_and_max(&real).0;
            assert_eq!(got.to_bits(), lanes[0].to_bits(), "{length} entries");
        }
    }

    #[test]
    fn small_zero_and_huge_vectors_keep_their_direction() {
        let zero = quantise_vector(&[0.0; 3], 100).expect("fits");
        assert_eq!((zero.values, zero.scale), (vec![0; 3], 1.0));
        for size in [1e-45f32, 1e-30, 1.0, 3e38] {
            let x = quantise_vector(&[size, -size, 0.0], 1 << 20).expect("fits");
            assert_eq!(x.values, [VECTOR_MAX, -VECTOR_MAX, 0]);
        }
    }
}

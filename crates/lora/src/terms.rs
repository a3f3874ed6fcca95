//! The integer matrix of the projections that read one vector, and the terms that a key holder
//! receives.

use confide_rlwe::ParameterSet;

use crate::{
    adapter::{LoraPair, Matrix},
    factor::ScaledB,
    int_matrix::{ENTRY_MAX, IntMatrix, IntMatrixError, VECTOR_BITS_MAX},
    quantise::{QuantiseError, norm_limit, quantise_rows, quantise_with_one_scale},
    site::{LayerInput, Projection},
};

/// The greatest width of an input or output: twice that of the feed-forward part of a model of 70
/// billion parameters.
pub const WIDTH_MAX: usize = 1 << 16;

/// The greatest rank of a pair.
pub const RANK_MAX: usize = 1024;

/// The greatest number of projections that read one vector.
const PARTS_MAX: usize = 8;

/// The greatest noise on answers, in units of the integers: more noise would cover any answer.
const NOISE_SIGMA_MAX: f64 = (1u64 << 30) as f64;

/// The matrices that stay at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedMatrices {
    /// A stays. The key holder receives B times the scales of the adapter and of A's rows.
    A,
    /// The product `scale · B · A` stays, quantised with one scale for each projection.
    Ba,
}

/// The integer matrix that a host computes with, and its terms.
#[derive(Clone, Debug)]
pub struct QuantisedWeights {
    /// The rows of all projections, one projection after the other.
    pub matrix: IntMatrix,
    /// The terms that the key holder receives.
    pub terms: InputTerms,
}

/// The terms of one input: what a key holder has to know about the projections that read it.
///
/// They reveal the shapes, `norm_limit` (a bound on the norm of one row, rounded to integers) and,
/// under [`ProtectedMatrices::A`], B and the scales of A's rows; under [`ProtectedMatrices::Ba`] one scale for each
/// projection.
#[derive(Clone, Debug, PartialEq)]
pub struct InputTerms {
    /// The layer, from 0.
    pub layer: u32,
    /// The vector that the projections read.
    pub input: LayerInput,
    /// The width of the vector.
    pub columns: usize,
    /// The number of bits of a product, k: products are exact mod 2^k.
    pub bits: u32,
    /// The greatest Euclidean norm of an integer vector that may be sent.
    pub norm_limit: u64,
    /// The standard deviation of the noise on each answer, in units of the integers; 0 adds no
    /// noise.
    pub noise_sigma: f64,
    /// The greatest number of rows of a tile of the direct scheme ([`crate::direct::tile_outputs_max`]);
    /// this reveals a bound on the sum of magnitudes of a row, rounded to a fraction of the noise
    /// budget.
    pub outputs_max: usize,
    /// The projections, in the order of their rows.
    pub parts: Vec<ProjectionTerms>,
}

/// The limit to which entries are rounded, and the noise on answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightRounding {
    /// The greatest magnitude of an entry of the integer matrix.
    pub entry_max: i16,
    /// The standard deviation of the noise on answers, in units of the integers; 0 adds no noise.
    pub noise_sigma: f64,
}

/// One projection of an input, and its rows in the product.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectionTerms {
    /// The projection.
    pub projection: Projection,
    /// The number of the projection's rows in the product.
    pub rows: usize,
    /// The conversion of these rows to the delta.
    pub effect: OutputTransform,
}

/// The conversion of a product to the delta of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputTransform {
    /// The product is A·x, and the key holder multiplies it by B, which includes all scales.
    Factor(ScaledB),
    /// The product is the delta divided by this scale.
    Scale(f64),
}

/// The reason why projections cannot be quantised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// A projection is given twice, or is of another input or width.
    #[error("{projection} does not belong to this input: {reason}")]
    WrongProjection {
        /// The projection that does not fit.
        projection: Projection,
        /// The reason why it does not fit.
        reason: &'static str,
    },
    /// There are no projections, or too many.
    #[error("an input: wanted 1 to {PARTS_MAX} projections, got {0}")]
    ProjectionCount(usize),
    /// The noise is not a number from 0 to 2^30.
    #[error("noise on answers: wanted a standard deviation from 0 to 2^30, got {0}")]
    NoiseOutOfRange(f64),
    /// The entries cannot be rounded.
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
    /// The entries do not make a matrix.
    #[error(transparent)]
    Matrix(#[from] IntMatrixError),
}

impl ProtectedMatrices {
    /// All choices, in the order of their codes in messages.
    pub const ALL: [Self; 2] = [Self::A, Self::Ba];

    /// The name in options, logs and records.
    pub fn name(self) -> &'static str {
        match self {
            ProtectedMatrices::A => "a",
            ProtectedMatrices::Ba => "ba",
        }
    }
}

impl QuantisedWeights {
    /// Quantises the projections that read one vector, for the masked scheme and without noise.
    ///
    /// # Errors
    /// If shapes do not match or an entry is not finite.
    pub fn new(
        layer: u32,
        pairs: &[(Projection, &LoraPair)],
        protect: ProtectedMatrices,
        set: &ParameterSet,
    ) -> Result<Self, TermsError> {
        let rounding = WeightRounding { entry_max: ENTRY_MAX, noise_sigma: 0.0 };
        Self::with_rounding(layer, pairs, protect, set, rounding)
    }

    /// Quantises as [`QuantisedWeights::new`] does, with the greatest entries and the noise of `rounding`;
    /// the direct scheme uses the parameters that [`crate::direct::derive_parameters`] returns.
    ///
    /// # Errors
    /// As there, and if `noise_sigma` is not from 0 to 2^30.
    pub fn with_rounding(
        layer: u32,
        pairs: &[(Projection, &LoraPair)],
        protect: ProtectedMatrices,
        set: &ParameterSet,
        rounding: WeightRounding,
    ) -> Result<Self, TermsError> {
        let WeightRounding { entry_max, noise_sigma } = rounding;
        let [(first, pair), ..] = pairs else { return Err(TermsError::ProjectionCount(0)) };
        if pairs.len() > PARTS_MAX {
            return Err(TermsError::ProjectionCount(pairs.len()));
        }
        if !(0.0..=NOISE_SIGMA_MAX).contains(&noise_sigma) {
            return Err(TermsError::NoiseOutOfRange(noise_sigma));
        }
        let (input, columns) = (first.input(), pair.a.columns);
        let mut matrices = Vec::new();
        let mut parts = Vec::new();
        for (projection, pair) in pairs {
            check_pair(*projection, pair, input, columns)?;
            let (matrix, effect) = match protect {
                ProtectedMatrices::A => quantise_a(pair, entry_max, set.row_l1_max())?,
                ProtectedMatrices::Ba => quantise_ba(pair, entry_max, set.row_l1_max())?,
            };
            parts.push(ProjectionTerms { projection: *projection, rows: matrix.rows(), effect });
            matrices.push(matrix);
        }
        let matrix = IntMatrix::stack_rows(&matrices.iter().collect::<Vec<_>>())?;
        let bits = set.plaintext_bits().min(VECTOR_BITS_MAX);
        let norm_limit = norm_limit(&matrix, bits, noise_headroom(noise_sigma));
        let outputs_max = tile_outputs_max(&matrix, set);
        let terms =
            InputTerms { layer, input, columns, bits, norm_limit, noise_sigma, outputs_max, parts };
        Ok(QuantisedWeights { matrix, terms })
    }
}

impl InputTerms {
    /// The number of rows of all projections, which is the length of a product.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Converts products to deltas and adds them to the outputs of one projection. `products` has one
    /// product mod 2^k for each of the `scales`, which are those of the vectors, and `outputs` has as
    /// many outputs of the projection.
    ///
    /// Returns `false` if the terms do not have the projection.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn add_deltas(
        &self,
        projection: Projection,
        products: &[u64],
        scales: &[f64],
        outputs: &mut [f32],
    ) -> bool {
        let rows = self.rows();
        assert_eq!(products.len(), rows * scales.len(), "products");
        let mut first = 0;
        for part in &self.parts {
            if part.projection == projection {
                let of_part = products.chunks_exact(rows).map(|all| &all[first..][..part.rows]);
                self.add_projection_deltas(part, of_part, scales, outputs);
                return true;
            }
            first += part.rows;
        }
        false
    }

    fn add_projection_deltas<'a>(
        &self,
        part: &ProjectionTerms,
        products: impl Iterator<Item = &'a [u64]>,
        scales: &[f64],
        outputs: &mut [f32],
    ) {
        let real = products.zip(scales).flat_map(|(product, scale)| {
            product.iter().map(move |word| (sign_extend(*word, self.bits) as f64 * scale) as f32)
        });
        match &part.effect {
            OutputTransform::Factor(factor) => {
                factor.add_products(&real.collect::<Vec<f32>>(), outputs)
            }
            OutputTransform::Scale(all) => {
                assert_eq!(outputs.len(), part.rows * scales.len(), "outputs");
                for (output, value) in outputs.iter_mut().zip(real) {
                    *output += (f64::from(value) * all) as f32;
                }
            }
        }
    }
}

/// The integer of least magnitude that equals a word mod 2^bits.
pub(crate) fn sign_extend(word: u64, bits: u32) -> i64 {
    ((word << (64 - bits)) as i64) >> (64 - bits)
}

/// The greatest magnitude of the noise on an answer: it is clamped at eight standard
/// deviations and rounded.
pub fn noise_headroom(sigma: f64) -> u64 {
    match sigma {
        0.0 => 0,
        sigma => (8.0 * sigma).ceil() as u64 + 1,
    }
}

fn check_pair(
    projection: Projection,
    pair: &LoraPair,
    input: LayerInput,
    columns: usize,
) -> Result<(), TermsError> {
    let refused = |reason| Err(TermsError::WrongProjection { projection, reason });
    if projection.input() != input {
        return refused("it reads another vector");
    }
    if pair.a.columns != columns || pair.a.rows != pair.b.columns {
        return refused("widths do not fit together");
    }
    if columns > WIDTH_MAX || pair.b.rows > WIDTH_MAX || pair.a.rows > RANK_MAX {
        return refused("it is wider than the limits");
    }
    if columns == 0 || pair.b.rows == 0 || pair.a.rows == 0 {
        return refused("it is empty");
    }
    Ok(())
}

fn quantise_a(
    pair: &LoraPair,
    entry_max: i16,
    row_l1_max: u64,
) -> Result<(IntMatrix, OutputTransform), TermsError> {
    let a = quantise_rows(&pair.a, entry_max, row_l1_max)?;
    let entry = |output: usize, column: usize| {
        (f64::from(pair.b.row(output)[column]) * pair.scale * a.scales[column]) as f32
    };
    let factor = ScaledB::new(pair.b.rows, pair.b.columns, entry);
    Ok((a.matrix, OutputTransform::Factor(factor)))
}

fn quantise_ba(
    pair: &LoraPair,
    entry_max: i16,
    row_l1_max: u64,
) -> Result<(IntMatrix, OutputTransform), TermsError> {
    let merged = scaled_product(&pair.a, &pair.b, pair.scale);
    let whole =
        quantise_with_one_scale(pair.b.rows, pair.a.columns, &merged, entry_max, row_l1_max)?;
    Ok((whole.matrix, OutputTransform::Scale(whole.scales[0])))
}

/// `scale · B · A`, row after row.
fn scaled_product(a: &Matrix, b: &Matrix, scale: f64) -> Vec<f64> {
    let mut all = vec![0.0; b.rows * a.columns];
    for (output, sums) in all.chunks_exact_mut(a.columns).enumerate() {
        for (row, factor) in b.row(output).iter().enumerate() {
            let factor = f64::from(*factor) * scale;
            for (sum, entry) in sums.iter_mut().zip(a.row(row)) {
                *sum += factor * f64::from(*entry);
            }
        }
    }
    all
}

/// The greatest number of rows of a tile: the magnitudes of so many consecutive rows sum to at most
/// the set's `row_l1_max` everywhere in the matrix. 0 if a single row exceeds it.
pub fn tile_outputs_max(matrix: &IntMatrix, set: &ParameterSet) -> usize {
    let rows: Vec<u64> = (0..matrix.rows()).map(|row| matrix.row_l1(row)).collect();
    let fits = |count: &usize| {
        rows.windows(*count).all(|window| window.iter().sum::<u64>() <= set.row_l1_max())
    };
    (1..=rows.len()).take_while(fits).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(rank: usize, columns: usize, width: usize) -> LoraPair {
        let values = |count: usize, step: usize| {
            (0..count).map(|at| ((at * step % 37) as f32 - 18.0) / 50.0).collect::<Vec<f32>>()
        };
        LoraPair {
            a: Matrix { rows: rank, columns, values: values(rank * columns, 5) },
            b: Matrix { rows: width, columns: rank, values: values(width * rank, 11) },
            scale: 2.0,
        }
    }

    fn set() -> ParameterSet {
        ParameterSet::from_name("rlwe-4096-q100-flood40").expect("is a set")
    }

    #[test]
    fn products_become_deltas_under_both_protections() {
        let (first, second) = (pair(4, 96, 80), pair(2, 96, 7));
        let pairs = [(Projection::Query, &first), (Projection::Value, &second)];
        let x: Vec<f32> = (0..96).map(|at| ((at * 7 % 31) as f32 - 15.0) / 3.0).collect();
        for protect in [ProtectedMatrices::A, ProtectedMatrices::Ba] {
            let weights = QuantisedWeights::new(3, &pairs, protect, &set()).expect("fits");
            let terms = &weights.terms;
            let x_int = crate::quantise_vector(&x, terms.norm_limit).expect("fits");
            let mask = crate::int_matrix::low_mask(terms.bits);
            let words: Vec<u64> = x_int.values.iter().map(|v| *v as i64 as u64 & mask).collect();
            let mut products = vec![0; terms.rows()];
            let mut digits = crate::DigitScratch::default();
            weights.matrix.multiply_vectors(&[&words], terms.bits, &mut digits, &mut products);
            for (projection, pair) in &pairs {
                let mut outputs = vec![1.0; pair.b.rows];
                assert!(terms.add_deltas(*projection, &products, &[x_int.scale], &mut outputs));
                let (mut error, mut size) = (0.0, 0.0);
                for (row, output) in
                    scaled_product(&pair.a, &pair.b, pair.scale).chunks_exact(96).zip(&outputs)
                {
                    let wanted: f64 = row.iter().zip(&x).map(|(w, x)| w * f64::from(*x)).sum();
                    error += (f64::from(*output) - 1.0 - wanted).powi(2);
                    size += wanted.powi(2);
                }
                assert!((error / size).sqrt() < 5e-4, "{protect:?} {projection}");
            }
            assert!(!terms.add_deltas(Projection::Key, &products, &[1.0], &mut []));
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let (one, other) = (pair(2, 8, 8), pair(2, 9, 8));
        let new = |pairs: &[(Projection, &LoraPair)], sigma| {
            let rounding = WeightRounding { entry_max: ENTRY_MAX, noise_sigma: sigma };
            let weights =
                QuantisedWeights::with_rounding(0, pairs, ProtectedMatrices::A, &set(), rounding);
            weights.map(|weights| weights.terms)
        };
        assert_eq!(new(&[], 0.0), Err(TermsError::ProjectionCount(0)));
        for wrong in [(Projection::Output, &one), (Projection::Key, &other)] {
            let refused = new(&[(Projection::Query, &one), wrong], 0.0);
            assert!(matches!(refused, Err(TermsError::WrongProjection { .. })), "{refused:?}");
        }
        for sigma in [f64::NAN, -1.0, 1e12] {
            assert!(matches!(
                new(&[(Projection::Query, &one)], sigma),
                Err(TermsError::NoiseOutOfRange(_))
            ));
        }
    }

    #[test]
    fn centring_takes_the_nearest_to_zero() {
        assert_eq!(sign_extend((1 << 33) - 1, 33), -1);
        assert_eq!(sign_extend(1 << 32, 33), -(1 << 32));
        assert_eq!(sign_extend((1 << 32) - 1, 33), (1 << 32) - 1);
    }
}

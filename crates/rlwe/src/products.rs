//! Products of a matrix of scalars with a vector of ciphertexts.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod ifma;
#[cfg(target_arch = "x86_64")]
mod row_groups;
mod tile;

use std::{fmt, sync::Arc};

use tile::{BLOCK, TILE};

use crate::{
    ciphertext::{Ciphertext, SeededCiphertext, public_polynomial},
    context::Context,
    error::RlweError,
    modulus::Modulus,
    ntt::NttPath,
    poly::NttPoly,
};

/// The greatest number of rows or columns: the widest feed-forward layers stay below it.
const SIDE_MAX: usize = 1 << 17;

/// A matrix of 16-bit integers whose rows keep to a set's `row_l1_max`.
#[derive(Clone, PartialEq, Eq)]
pub struct ScalarMatrix {
    rows: usize,
    columns: usize,
    /// `[column][row]`.
    weights: Vec<i16>,
}

/// Products of a matrix and a vector of ciphertexts: out_i = Σ_j w_ij·ct_j. The ct_j arrive one
/// after the other. Scalars commute with the transform, so no transform is needed.
///
/// Up to 128 ciphertexts are collected in a block, tile by tile. Then each row is multiplied, and
/// reduced once for the block. The block takes 16 MB for two limbs of N = 4096, and the sums take
/// 128 KB for each row. 1536 columns, 32 rows, two polynomials and two limbs need 196,608 products
/// for each of the N messages. Two `vpmadd52` compute eight products, and a core runs one or two
/// of them in a cycle, which predicts 10 to 20 us; `examples/ring_speed.rs` measures the time.
pub struct ScalarProducts<'a> {
    context: Arc<Context>,
    matrix: std::borrow::Cow<'a, ScalarMatrix>,
    /// `[polynomial][limb]`, each `[tile][block][TILE]`.
    block: Vec<Vec<u64>>,
    pushed: usize,
    sums: Vec<Ciphertext>,
    /// A path that replaces the table's, for tests.
    path: Option<NttPath>,
}

impl ScalarMatrix {
    /// Makes a matrix from its values, row by row.
    ///
    /// # Errors
    /// If there are not rows·columns values, if a side is 0 or above 2^17, or if a row's magnitudes
    /// sum to more than the set's `row_l1_max`.
    pub fn new(
        context: &Context,
        rows: usize,
        columns: usize,
        values: &[i16],
    ) -> Result<ScalarMatrix, RlweError> {
        for side in [rows, columns] {
            if side == 0 || side > SIDE_MAX {
                return Err(RlweError::Limit { what: "matrix side", limit: SIDE_MAX, got: side });
            }
        }
        let (wanted, got) = (rows * columns, values.len());
        if wanted != got {
            return Err(RlweError::Length { what: "matrix", wanted, got });
        }
        let limit = context.parameter_set().row_l1_max();
        let mut weights = vec![0; wanted];
        for (i, row) in values.chunks_exact(columns).enumerate() {
            let got = row.iter().map(|w| u64::from(w.unsigned_abs())).sum();
            if got > limit {
                return Err(RlweError::WeightsTooLarge { limit, got });
            }
            row.iter().enumerate().for_each(|(j, &w)| weights[j * rows + i] = w);
        }
        Ok(ScalarMatrix { rows, columns, weights })
    }

    /// The number of rows, which is the number of ciphertexts that come out.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, which is the number of ciphertexts that go in.
    pub fn columns(&self) -> usize {
        self.columns
    }
}

impl<'a> ScalarProducts<'a> {
    /// Starts with sums of zero. The matrix may be owned or borrowed.
    pub fn new(
        context: &Arc<Context>,
        matrix: impl Into<std::borrow::Cow<'a, ScalarMatrix>>,
    ) -> Self {
        let matrix = matrix.into();
        let ring = context.ring();
        let block = vec![vec![0; ring.n() * BLOCK]; 2 * ring.limbs().len()];
        let sums = vec![Ciphertext::zero(context); matrix.rows];
        ScalarProducts { context: context.clone(), matrix, block, pushed: 0, sums, path: None }
    }

    /// Adds the ciphertext of the next column.
    ///
    /// # Errors
    /// If every column has its ciphertext already, or if this one is of another ring.
    pub fn push(&mut self, ciphertext: &SeededCiphertext) -> Result<(), RlweError> {
        let (limit, got) = (self.matrix.columns, self.pushed + 1);
        if got > limit {
            return Err(RlweError::Limit { what: "ciphertexts of a product", limit, got });
        }
        let ring = self.context.ring();
        if !ring.is_same(ciphertext.c0.ring()) {
            let got = ciphertext.c0.values().len();
            return Err(RlweError::Length { what: "ciphertext", wanted: ring.len(), got });
        }
        let c1 = public_polynomial(ring, &ciphertext.seed, ciphertext.index);
        let slot = self.pushed % BLOCK;
        let limbs = ciphertext.c0.limbs().chain(c1.limbs());
        for (block, (_, limb)) in self.block.iter_mut().zip(limbs) {
            let tiles = block.as_chunks_mut::<TILE>().0.chunks_exact_mut(BLOCK);
            for (tiles, tile) in tiles.zip(limb.as_chunks::<TILE>().0) {
                tiles[slot] = *tile;
            }
        }
        self.pushed = got;
        if self.pushed.is_multiple_of(BLOCK) {
            self.multiply_block(BLOCK);
        }
        Ok(())
    }

    /// Returns the sums, one ciphertext for each row.
    ///
    /// # Errors
    /// If a column has no ciphertext yet.
    pub fn finish(mut self) -> Result<Vec<Ciphertext>, RlweError> {
        let (wanted, got) = (self.matrix.columns, self.pushed);
        if wanted != got {
            return Err(RlweError::Length { what: "ciphertexts of a product", wanted, got });
        }
        let rest = self.pushed % BLOCK;
        if rest > 0 {
            self.multiply_block(rest);
        }
        Ok(self.sums)
    }

    /// Adds the products of the `count` ciphertexts in the block to the sums.
    fn multiply_block(&mut self, count: usize) {
        let rows = self.matrix.rows;
        let first = (self.pushed - 1) / BLOCK * BLOCK;
        let weights = &self.matrix.weights[first * rows..][..count * rows];
        let limbs = self.context.ring().limbs();
        for (index, block) in self.block.iter().enumerate() {
            let (part, limb) = (index / limbs.len(), index % limbs.len());
            let mut sums: Vec<&mut [u64]> =
                self.sums.iter_mut().map(|sum| sum.limb_mut(part, limb)).collect();
            let modulus = limbs[limb].modulus;
            match self.path.unwrap_or(limbs[limb].table.path()) {
                #[cfg(target_arch = "x86_64")]
                NttPath::Avx512 => avx512::multiply(modulus, block, weights, count, &mut sums),
                #[cfg(target_arch = "x86_64")]
                NttPath::Ifma => ifma::multiply(modulus, block, weights, count, &mut sums),
                _ => multiply_portable(modulus, block, weights, count, &mut sums),
            }
        }
    }
}

impl Ciphertext {
    fn limb_mut(&mut self, part: usize, limb: usize) -> &mut [u64] {
        let poly: &mut NttPoly = if part == 0 { &mut self.c0 } else { &mut self.c1 };
        let n = poly.ring().n();
        &mut poly.values_mut()[limb * n..][..n]
    }
}

/// sums_i += Σ_j weights_ji·block_j, in 128-bit sums: a product has at most 15 + 61 bits, the sum
/// of a block of products 83.
fn multiply_portable(
    q: Modulus,
    block: &[u64],
    weights: &[i16],
    count: usize,
    sums: &mut [&mut [u64]],
) {
    // A multiple of q that makes every sum positive.
    let offset = i128::from(q.value()) << 23;
    let rows = sums.len();
    for (tile, terms) in block.chunks_exact(BLOCK * TILE).enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            let mut wide = [offset; TILE];
            for (j, term) in terms.chunks_exact(TILE).take(count).enumerate() {
                let weight = i128::from(weights[j * rows + row]);
                wide.iter_mut().zip(term).for_each(|(sum, &x)| *sum += weight * i128::from(x));
            }
            let at = &mut sums[tile * TILE..][..TILE];
            for (x, wide) in at.iter_mut().zip(wide) {
                *x = q.add(*x, q.reduce_wide(wide as u128));
            }
        }
    }
}

impl From<ScalarMatrix> for std::borrow::Cow<'_, ScalarMatrix> {
    fn from(matrix: ScalarMatrix) -> Self {
        std::borrow::Cow::Owned(matrix)
    }
}

impl<'a> From<&'a ScalarMatrix> for std::borrow::Cow<'a, ScalarMatrix> {
    fn from(matrix: &'a ScalarMatrix) -> Self {
        std::borrow::Cow::Borrowed(matrix)
    }
}

/// Prints only the shape, because the weights are secret.
impl fmt::Debug for ScalarMatrix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ScalarMatrix({} x {}, ..)", self.rows, self.columns)
    }
}

impl fmt::Debug for ScalarProducts<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ScalarProducts({:?}, {} pushed)", self.matrix, self.pushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParameterSet, Rng, SecretKey};

    #[test]
    fn scalar_products_agree_with_integers_across_blocks() {
        let name = "toy-256-q100-flood40";
        let context = Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap();
        let mut rng = Rng::from_seed([61; 32]);
        let key = SecretKey::generate(&context, &mut rng);
        let shapes = [(1, 1), (3, 127), (7, 128), (13, 300)];
        let paths = NttPath::available(context.first_modulus());
        let cases =
            shapes.into_iter().flat_map(|shape| paths.iter().map(move |&path| (shape, path)));
        for ((rows, columns), path) in cases {
            let weight = |_| rng.next_u64() as i16 / 8;
            let mut values: Vec<i16> = (0..rows * columns).map(weight).collect();
            values[0] = i16::MIN;
            let matrix = ScalarMatrix::new(&context, rows, columns, &values).unwrap();
            assert_eq!((matrix.rows(), matrix.columns()), (rows, columns));
            let mut products = ScalarProducts::new(&context, &matrix);
            products.path = Some(path);
            let mut wanted = vec![vec![0u64; 256]; rows];
            let mut encryptor = key.encryptor(rng.fork());
            for j in 0..columns {
                let mut messages = vec![0; 256];
                rng.fill_bits(33, &mut messages);
                products.push(&encryptor.encrypt(&messages).unwrap()).unwrap();
                for (i, row) in wanted.iter_mut().enumerate() {
                    let weight = i64::from(values[i * columns + j]) as u64;
                    let term = |(x, m): (&mut u64, &u64)| {
                        *x = x.wrapping_add(m.wrapping_mul(weight)) & context.message_mask();
                    };
                    row.iter_mut().zip(&messages).for_each(term);
                }
            }
            for (sum, wanted) in products.finish().unwrap().into_iter().zip(wanted) {
                assert_eq!(key.decrypt(&sum.switch_down()).unwrap(), wanted);
            }
        }
    }

    #[test]
    fn matrices_of_wrong_shape_or_weight_are_refused() {
        let set = ParameterSet::dangerous_from_name("rlwe-1024-q25").unwrap();
        let context = Context::new(&set).unwrap();
        let new = |rows, columns, values: &[i16]| {
            ScalarMatrix::new(&context, rows, columns, values).unwrap_err()
        };
        assert!(matches!(new(0, 3, &[]), RlweError::Limit { .. }));
        assert!(matches!(new(1 << 18, 1, &[]), RlweError::Limit { .. }));
        assert!(matches!(new(2, 3, &[0; 5]), RlweError::Length { .. }));
        let limit = set.row_l1_max() as i16;
        assert!(matches!(new(2, 2, &[0, 0, limit, -1]), RlweError::WeightsTooLarge { .. }));
        assert!(ScalarMatrix::new(&context, 2, 2, &[limit, 0, 1 - limit, -1]).is_ok());
    }

    #[test]
    fn every_column_needs_one_ciphertext_of_its_ring() {
        let contexts = ["rlwe-1024-q25", "toy-256-q100-flood40"]
            .map(|name| Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap());
        let mut rng = Rng::from_seed([62; 32]);
        let [ours, other] = contexts.map(|context| {
            let key = SecretKey::generate(&context, &mut rng);
            let ciphertext = key.encrypt(&vec![1; context.n()], &mut rng).unwrap();
            (context, ciphertext)
        });
        let matrix = ScalarMatrix::new(&ours.0, 1, 2, &[1, 1]).unwrap();
        let mut products = ScalarProducts::new(&ours.0, &matrix);
        assert!(matches!(products.push(&other.1), Err(RlweError::Length { .. })));
        products.push(&ours.1).unwrap();
        products.push(&ours.1).unwrap();
        assert!(matches!(products.push(&ours.1), Err(RlweError::Limit { .. })));
        let mut early = ScalarProducts::new(&ours.0, &matrix);
        early.push(&ours.1).unwrap();
        assert!(matches!(early.finish(), Err(RlweError::Length { .. })));
    }
}

//! Matrices of small signed integers and their exact products with vectors mod 2^k.

mod lane;
mod portable;
#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;

use lane::{DIGIT_BITS, DIGITS, LANE, Lane};

/// The greatest magnitude of an entry: signed 13 bits without the lowest value. With 12 bits,
/// rounding A costs 4 to 8 in ten thousand of a product with heavy-tailed activations. With 13 bits
/// it costs half of that, and rows of normal entries leave a quarter of the noise budget.
pub const ENTRY_MAX: i16 = 4095;

/// The greatest number of entries of one matrix, 256 million: above the widest projection of a
/// model of 70 billion parameters (8,192 x 28,672).
pub const ENTRIES_MAX: usize = 1 << 28;

/// The greatest number of bits of a vector's entries: three digits of 11 bits.
pub const VECTOR_BITS_MAX: u32 = DIGIT_BITS * DIGITS as u32;

/// A matrix of small signed integers, row after row, and its exact product with vectors mod 2^k.
#[derive(Clone, PartialEq, Eq)]
pub struct IntMatrix {
    rows: usize,
    columns: usize,
    lanes: usize,
    values: Vec<Lane>,
}

/// The reason why entries do not make a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntMatrixError {
    /// The number of entries is not the product of rows and columns.
    #[error("matrix of {rows} x {columns}: wanted {} entries, got {entries}", rows * columns)]
    Shape {
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        columns: usize,
        /// The number of entries that were given.
        entries: usize,
    },
    /// The matrix is empty or has more entries than [`ENTRIES_MAX`].
    #[error("matrix of {rows} x {columns}: wanted 1 to {ENTRIES_MAX} entries")]
    Size {
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        columns: usize,
    },
    /// The magnitude of an entry is above [`ENTRY_MAX`].
    #[error("matrix entry at row {row}, column {column}: wanted at most {ENTRY_MAX}, got {value}")]
    Entry {
        /// The row of the entry, from 0.
        row: usize,
        /// The column of the entry, from 0.
        column: usize,
        /// The value of the entry.
        value: i16,
    },
}

/// Scratch memory for vectors that are split into digits. It is reused for later products, so that
/// the online step does not allocate.
#[derive(Clone, Default)]
pub struct DigitScratch {
    vectors: Vec<Vec<[Lane; DIGITS]>>,
}

impl IntMatrix {
    /// Makes a matrix of `rows` x `columns` entries, row after row, each of at most [`ENTRY_MAX`].
    ///
    /// # Errors
    /// If shape and entries do not match, or an entry is too large.
    pub fn new(rows: usize, columns: usize, entries: &[i16]) -> Result<Self, IntMatrixError> {
        let wanted = rows.saturating_mul(columns);
        if wanted == 0 || wanted > ENTRIES_MAX {
            return Err(IntMatrixError::Size { rows, columns });
        }
        if wanted != entries.len() {
            return Err(IntMatrixError::Shape { rows, columns, entries: entries.len() });
        }
        if let Some(at) = entries.iter().position(|v| v.unsigned_abs() > ENTRY_MAX as u16) {
            let (row, column) = (at / columns, at % columns);
            return Err(IntMatrixError::Entry { row, column, value: entries[at] });
        }
        let lanes = columns.div_ceil(LANE);
        let mut values = Vec::with_capacity(rows * lanes);
        for row in entries.chunks_exact(columns) {
            values.extend(row.chunks(LANE).map(|part| {
                let mut lane = Lane([0; LANE]);
                lane.0[..part.len()].copy_from_slice(part);
                lane
            }));
        }
        Ok(IntMatrix { rows, columns, lanes, values })
    }

    /// The number of rows, which is the length of a product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, which is the length of a vector.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The entries of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = i16> + '_ {
        self.row_lanes(row).iter().flat_map(|lane| lane.0).take(self.columns)
    }

    /// The sum of the magnitudes of a row.
    pub(crate) fn row_l1(&self, row: usize) -> u64 {
        self.row(row).map(|value| u64::from(value.unsigned_abs())).sum()
    }

    /// The greatest sum of squares of a row.
    pub(crate) fn row_square_max(&self) -> u64 {
        let square = |row| self.row(row).map(|v| u64::from(v.unsigned_abs()).pow(2)).sum();
        (0..self.rows).map(square).max().unwrap_or(0)
    }

    /// Stacks the rows of several matrices, one matrix under the other.
    ///
    /// # Errors
    /// If there are no matrices, or their widths differ.
    pub(crate) fn stack_rows(parts: &[&IntMatrix]) -> Result<Self, IntMatrixError> {
        let columns = parts.first().map_or(0, |part| part.columns);
        let rows = parts.iter().map(|part| part.rows).sum::<usize>();
        if let Some(other) = parts.iter().find(|part| part.columns != columns) {
            let entries = other.rows * other.columns;
            return Err(IntMatrixError::Shape { rows: other.rows, columns, entries });
        }
        if rows == 0 || rows.saturating_mul(columns) > ENTRIES_MAX {
            return Err(IntMatrixError::Size { rows, columns });
        }
        let values = parts.iter().flat_map(|part| part.values.iter().copied()).collect();
        Ok(IntMatrix { rows, columns, lanes: columns.div_ceil(LANE), values })
    }

    /// Computes `matrix · vector mod 2^bits` for each vector, one product after the other, and reads
    /// the rows once for all vectors. `products` has rows x vectors words.
    ///
    /// # Panics
    /// If a vector or `products` has the wrong length, or `bits` is above [`VECTOR_BITS_MAX`]. The
    /// caller has to check input from outside first.
    pub fn multiply_vectors(
        &self,
        vectors: &[&[u64]],
        bits: u32,
        scratch: &mut DigitScratch,
        products: &mut [u64],
    ) {
        self.multiply_on_path(ProductPath::fastest(), vectors, bits, scratch, products);
    }

    fn multiply_on_path(
        &self,
        path: ProductPath,
        vectors: &[&[u64]],
        bits: u32,
        scratch: &mut DigitScratch,
        products: &mut [u64],
    ) {
        assert!(bits <= VECTOR_BITS_MAX, "vectors of {bits} bits");
        assert_eq!(products.len(), self.rows * vectors.len(), "room for the products");
        scratch.vectors.resize_with(vectors.len().max(scratch.vectors.len()), Vec::new);
        let digits = &mut scratch.vectors[..vectors.len()];
        for (vector, digits) in vectors.iter().zip(digits.iter_mut()) {
            assert_eq!(vector.len(), self.columns, "length of a vector");
            digits.resize(self.lanes, [Lane([0; LANE]); DIGITS]);
            path.split_digits(vector, digits);
        }
        let mask = low_mask(bits);
        let block = path.rows_at_once();
        for first in (0..self.rows).step_by(block) {
            let count = block.min(self.rows - first);
            let rows = &self.values[first * self.lanes..][..count * self.lanes];
            for (digits, products) in digits.iter().zip(products.chunks_exact_mut(self.rows)) {
                path.multiply_block(rows, digits, &mut products[first..first + count]);
                products[first..first + count].iter_mut().for_each(|product| *product &= mask);
            }
        }
    }

    fn row_lanes(&self, row: usize) -> &[Lane] {
        &self.values[row * self.lanes..][..self.lanes]
    }
}

impl fmt::Debug for IntMatrix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "IntMatrix {} x {}", self.rows, self.columns)
    }
}

impl fmt::Debug for DigitScratch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Digits of {} vectors", self.vectors.len())
    }
}

/// A mask of the lowest `bits` bits, 1 to 64.
pub(crate) fn low_mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// An implementation of products, by the instructions that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductPath {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl ProductPath {
    fn fastest() -> ProductPath {
        #[cfg(target_arch = "x86_64")]
        if simd::has_avx512_vnni() {
            return ProductPath::Avx512Vnni;
        } else if simd::has_avx2() {
            return ProductPath::Avx2;
        }
        ProductPath::Portable
    }

    /// The paths that this machine supports, the slowest first.
    #[cfg(test)]
    fn supported_paths() -> Vec<ProductPath> {
        let mut found = vec![ProductPath::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if simd::has_avx2() {
                found.push(ProductPath::Avx2);
            }
            if simd::has_avx512_vnni() {
                found.push(ProductPath::Avx512Vnni);
            }
        }
        found
    }

    /// The number of rows for which the digits are loaded once.
    fn rows_at_once(self) -> usize {
        match self {
            ProductPath::Portable => 1,
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx2 => simd::AVX2_ROWS,
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx512Vnni => simd::AVX512_ROWS,
        }
    }

    fn split_digits(self, vector: &[u64], digits: &mut [[Lane; DIGITS]]) {
        match self {
            ProductPath::Portable => portable::split_digits(vector, digits),
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx2 => simd::split_digits_avx2(vector, digits),
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx512Vnni => simd::split_digits_avx512(vector, digits),
        }
    }

    /// Computes one product mod 2^64 for each of the contiguous `rows`.
    fn multiply_block(self, rows: &[Lane], digits: &[[Lane; DIGITS]], products: &mut [u64]) {
        match self {
            ProductPath::Portable => portable::multiply_block(rows, digits, products),
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx2 => simd::multiply_block_avx2(rows, digits, products),
            #[cfg(target_arch = "x86_64")]
            ProductPath::Avx512Vnni => simd::multiply_block_avx512(rows, digits, products),
        }
    }
}

#[cfg(test)]
mod tests;

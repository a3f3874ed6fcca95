//! The parameters of the direct scheme, and how a matrix is cut into tiles.

use confide_rlwe::{Context, ParameterSet, RlweError, SeededCiphertext, SmallCiphertext};

use crate::{
    count::{CountError, check_count},
    link::{MatrixSize, Tile},
    terms::Terms,
};

/// The number of bits of a word under a set that floods, where rows are of 12 bits: 31 leave room
/// for the noise of 17 rows of normal entries, and a norm limit at which rounding costs 3 in ten
/// thousand.
const FLOODED_BITS: u32 = 31;

/// The greatest magnitude of an entry of a matrix under a set that floods.
const FLOODED_ENTRY_MAX: i16 = 2047;

/// The greatest magnitude of an entry under a set that does not flood: 8 bits, as its one prime has
/// room for.
const UNFLOODED_ENTRY_MAX: i16 = 127;

/// The reason why a step of the direct scheme was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// A tile that does not fit the ring, the matrix or its noise budget.
    #[error(
        "tile of {inputs} x {outputs}: wanted at most {degree} entries, {columns} columns and \
         {outputs_max} rows, none of them 0"
    )]
    Tile {
        /// The number of columns of the tile.
        inputs: usize,
        /// The number of rows of the tile.
        outputs: usize,
        /// The degree of the ring.
        degree: usize,
        /// The number of columns of the matrix.
        columns: usize,
        /// The greatest number of rows for which the noise budget holds.
        outputs_max: usize,
    },
    /// A number of things other than the expected one.
    #[error(transparent)]
    Count(#[from] CountError),
    /// An answer carries other coefficients than those of its rows.
    #[error("answer {answer}: wanted the coefficients of its rows, got others")]
    Positions {
        /// The index of the answer, from 0.
        answer: usize,
    },
    /// The ring refused ciphertexts, keys or parameters.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

/// The parameters and greatest entries with which a matrix is quantised for this scheme, from a named
/// set: fewer bits of message leave room for the noise of more rows.
///
/// # Errors
/// If the set has no room.
pub fn parameters(set: &ParameterSet) -> Result<(ParameterSet, i16), RlweError> {
    match set.flood_bits() {
        0 => Ok((set.clone(), UNFLOODED_ENTRY_MAX)),
        _ => Ok((set.clone().with_plaintext_bits(FLOODED_BITS)?, FLOODED_ENTRY_MAX)),
    }
}

/// The size of a matrix and of its messages under these parameters, for the cost model.
pub fn job(context: &Context, terms: &Terms) -> MatrixSize {
    let coefficient_bits = u64::BITS - context.set().primes()[0].leading_zeros();
    MatrixSize {
        rows: terms.rows(),
        columns: terms.columns,
        degree: context.n(),
        outputs_max: terms.outputs_max,
        request_bytes: SeededCiphertext::wire_bytes(context),
        answer_bytes: SmallCiphertext::wire_bytes(context, 0),
        // Each wanted coefficient is sent with its position.
        coefficient_bits: coefficient_bits + 16,
    }
}

/// The division of a matrix into tiles: checked once, then the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    pub(super) tile: Tile,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Tiling {
    pub(super) fn new(context: &Context, terms: &Terms, tile: Tile) -> Result<Tiling, DirectError> {
        let (Tile { inputs, outputs }, degree) = (tile, context.n());
        let (columns, outputs_max) = (terms.columns, terms.outputs_max);
        let fits = inputs.checked_mul(outputs).is_some_and(|entries| entries <= degree);
        if !fits || inputs == 0 || outputs == 0 || inputs > columns || outputs > outputs_max {
            return Err(DirectError::Tile { inputs, outputs, degree, columns, outputs_max });
        }
        let (wanted, got) = (context.set().plaintext_bits() as usize, terms.bits as usize);
        check_count("bits of a word", wanted, got)?;
        Ok(Tiling { tile, rows: terms.rows(), columns })
    }

    pub(super) fn requests(&self) -> usize {
        self.columns.div_ceil(self.tile.inputs)
    }

    pub(super) fn answers(&self) -> usize {
        self.rows.div_ceil(self.tile.outputs)
    }

    /// The coefficients in which the products of an answer's rows stand.
    pub(super) fn positions(&self, answer: usize) -> Vec<usize> {
        let rows = self.tile.outputs.min(self.rows - answer * self.tile.outputs);
        (1..=rows).map(|row| row * self.tile.inputs - 1).collect()
    }
}

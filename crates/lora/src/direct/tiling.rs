//! The parameters of the direct scheme, and the division of a matrix into tiles.

use confide_rlwe::{Context, ParameterSet, RlweError, SeededCiphertext, SmallCiphertext};

use crate::{
    count::{CountError, check_count},
    link::{TileShape, TilingProblem},
    terms::InputTerms,
};

/// The number of bits of a word under a set that floods, with entries of 12 bits. 31 bits leave room
/// for the noise of 17 rows of normal entries, and for a norm limit at which rounding costs 3 in ten
/// thousand.
const FLOODED_BITS: u32 = 31;

/// The greatest magnitude of an entry of a matrix under a set that floods.
const FLOODED_ENTRY_MAX: i16 = 2047;

/// The greatest magnitude of an entry under a set that does not flood: its single prime has
/// room for 8 bits.
const UNFLOODED_ENTRY_MAX: i16 = 127;

/// The reason why an operation of the direct scheme was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptedProductError {
    /// A tile does not fit the ring, the matrix or its noise budget.
    #[error(
        "tile of {inputs} x {outputs}: wanted 1 to {columns} columns, 1 to {outputs_max} rows, and \
         at most {degree} entries"
    )]
    WrongTile {
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
    /// A count differs from the expected one.
    #[error(transparent)]
    Count(#[from] CountError),
    /// An answer has coefficients that are not those of its rows.
    #[error("answer {answer}: its coefficients do not belong to its rows")]
    WrongCoefficients {
        /// The index of the answer, from 0.
        answer: usize,
    },
    /// The ring refused a ciphertext, a key or a parameter.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

/// Derives from a named set the parameters and the greatest entry with which a matrix is quantised for
/// this scheme. Messages of fewer bits leave room for the noise of more rows.
///
/// # Errors
/// If the set leaves no room for noise.
pub fn derive_parameters(set: &ParameterSet) -> Result<(ParameterSet, i16), RlweError> {
    match set.flood_bits() {
        0 => Ok((set.clone(), UNFLOODED_ENTRY_MAX)),
        _ => Ok((set.clone().with_plaintext_bits(FLOODED_BITS)?, FLOODED_ENTRY_MAX)),
    }
}

/// The size of a matrix and of its messages under these parameters, for the cost model.
pub fn tiling_problem(context: &Context, terms: &InputTerms) -> TilingProblem {
    let coefficient_bits = u64::BITS - context.parameter_set().primes()[0].leading_zeros();
    TilingProblem {
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

/// The division of a matrix into tiles, which is checked once and is the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileGrid {
    pub(super) tile: TileShape,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl TileGrid {
    pub(super) fn new(
        context: &Context,
        terms: &InputTerms,
        tile: TileShape,
    ) -> Result<TileGrid, EncryptedProductError> {
        let (TileShape { inputs, outputs }, degree) = (tile, context.n());
        let (columns, outputs_max) = (terms.columns, terms.outputs_max);
        let fits = inputs.checked_mul(outputs).is_some_and(|entries| entries <= degree);
        if !fits || inputs == 0 || outputs == 0 || inputs > columns || outputs > outputs_max {
            return Err(EncryptedProductError::WrongTile {
                inputs,
                outputs,
                degree,
                columns,
                outputs_max,
            });
        }
        let (wanted, got) =
            (context.parameter_set().plaintext_bits() as usize, terms.bits as usize);
        check_count("bits of a word", wanted, got)?;
        Ok(TileGrid { tile, rows: terms.rows(), columns })
    }

    pub(super) fn request_count(&self) -> usize {
        self.columns.div_ceil(self.tile.inputs)
    }

    pub(super) fn answer_count(&self) -> usize {
        self.rows.div_ceil(self.tile.outputs)
    }

    /// The coefficients that hold the products of an answer's rows.
    pub(super) fn answer_positions(&self, answer: usize) -> Vec<usize> {
        let rows = self.tile.outputs.min(self.rows - answer * self.tile.outputs);
        (1..=rows).map(|row| row * self.tile.inputs - 1).collect()
    }
}

//! The limits of the masked scheme, and its errors.

use confide_rlwe::RlweError;

use crate::{
    count::{CountError, check_count},
    mask::{Epoch, TILE},
};

/// The number of ciphertexts that are made or taken at a time: 32 columns or rows, 1.6 MB on the
/// wire.
pub const BLOCK: usize = TILE;

/// The greatest number of rows of a matrix that is prepared: the host keeps a sum of 128 KB for
/// each (at N = 4096), half a gigabyte in all.
pub const ROWS_MAX: usize = 4096;

/// The reason why a step of the masked scheme was refused. The batch that it concerned is dropped,
/// and is not used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskedError {
    /// The other side was restarted, or the state is of another process.
    #[error("epoch: wanted {wanted}, got {got}")]
    Epoch {
        /// The epoch of this process, or the one that the batch was prepared with.
        wanted: Epoch,
        /// The epoch that was given.
        got: Epoch,
    },
    /// A batch was asked for out of order: each is prepared once.
    #[error("batch: wanted {wanted}, got {got}")]
    Batch {
        /// The index of the next batch.
        wanted: u64,
        /// The index that was asked for.
        got: u64,
    },
    /// The counter was answered before.
    #[error("counter {counter} is used")]
    CounterUsed {
        /// The counter of the token.
        counter: u64,
    },
    /// The counter was not prepared, or its batch was dropped.
    #[error("counter {counter} is not prepared")]
    CounterUnknown {
        /// The counter of the token.
        counter: u64,
    },
    /// The batch has fewer tokens left than were asked for.
    #[error("batch: wanted {wanted} tokens, {left} are left")]
    Exhausted {
        /// The number of tokens that were asked for.
        wanted: usize,
        /// The number of tokens left.
        left: usize,
    },
    /// An answer arrived that no request waits for.
    #[error("answer for counter {counter}, which was not asked for or is answered")]
    NotAsked {
        /// The counter of the token.
        counter: u64,
    },
    /// A number of things other than the expected one.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A word is not below 2^k.
    #[error("{what}: wanted a word of {bits} bits, got {got}")]
    Word {
        /// The name of the word.
        what: &'static str,
        /// The number of bits of a word, k.
        bits: u32,
        /// The value of the word.
        got: u64,
    },
    /// The matrix has too many rows to be prepared.
    #[error("matrix: wanted at most {limit} rows, got {got}")]
    Rows {
        /// The greatest number of rows.
        limit: usize,
        /// The number of rows of the matrix.
        got: usize,
    },
    /// An earlier error ended this batch.
    #[error("batch was dropped after an error")]
    Dropped,
    /// The ring refused ciphertexts, keys or parameters.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

pub(super) fn check_words(what: &'static str, words: &[u64], bits: u32) -> Result<(), MaskedError> {
    match words.iter().find(|word| **word >> bits != 0) {
        Some(got) => Err(MaskedError::Word { what, bits, got: *got }),
        None => Ok(()),
    }
}

/// Counts the vectors of `columns` entries that lie one after the other in `entries` entries.
/// Nothing at all is refused.
pub(super) fn count_vectors(columns: usize, entries: usize) -> Result<usize, CountError> {
    let count = entries / columns;
    check_count("entries of a vector", columns, entries / count.max(1))?;
    check_count("entries of vectors", count * columns, entries)?;
    Ok(count)
}

//! The limits of the masked scheme, and its errors.

use confide_rlwe::RlweError;

use crate::{
    count::{CountError, check_count},
    mask::{HostEpoch, TILE},
};

/// The number of ciphertexts in a block: 32 columns or rows, which are encoded in 1.6 MB.
pub const BLOCK: usize = TILE;

/// The greatest number of rows of a matrix. The host stores a sum of 128 KB for each row (at N =
/// 4096), half a gigabyte in all.
pub const ROWS_MAX: usize = 4096;

/// The reason why an operation of the masked scheme was refused. Its batch is dropped and never used
/// again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskedError {
    /// The other side was restarted, or the state belongs to another process.
    #[error("epoch: wanted {wanted}, got {got}")]
    OtherEpoch {
        /// The epoch of this process, or the one in which the batch was prepared.
        wanted: HostEpoch,
        /// The epoch that was given.
        got: HostEpoch,
    },
    /// A batch was requested out of order. Each batch is prepared once.
    #[error("index of the batch: wanted {wanted}, got {got}")]
    BatchOrder {
        /// The index of the next batch.
        wanted: u64,
        /// The index that was requested.
        got: u64,
    },
    /// The counter was answered before.
    #[error("counter {counter} was used before")]
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
    /// The batch has fewer tokens left than were requested.
    #[error("batch: wanted {wanted} tokens, {left} are left")]
    Exhausted {
        /// The number of tokens that were requested.
        wanted: usize,
        /// The number of tokens left.
        left: usize,
    },
    /// An answer has no open request.
    #[error("answer for counter {counter}: no open request has this counter")]
    UnexpectedAnswer {
        /// The counter of the token.
        counter: u64,
    },
    /// A count differs from the expected one.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A word is not below 2^k.
    #[error("{what}: wanted words of {bits} bits, got {got}")]
    WordTooLarge {
        /// The name of the word.
        what: &'static str,
        /// The number of bits of a word, k.
        bits: u32,
        /// The value of the word.
        got: u64,
    },
    /// The matrix has too many rows.
    #[error("matrix: wanted at most {limit} rows, got {got}")]
    TooManyRows {
        /// The greatest number of rows.
        limit: usize,
        /// The number of rows of the matrix.
        got: usize,
    },
    /// An earlier error ended this batch.
    #[error("batch was dropped after an earlier error")]
    BatchDropped,
    /// The ring refused a ciphertext, a key or a parameter.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

pub(super) fn check_words(what: &'static str, words: &[u64], bits: u32) -> Result<(), MaskedError> {
    match words.iter().find(|word| **word >> bits != 0) {
        Some(got) => Err(MaskedError::WordTooLarge { what, bits, got: *got }),
        None => Ok(()),
    }
}

/// Counts the vectors of `columns` entries in `entries` contiguous entries. No vector and an incomplete
/// vector are errors.
pub(super) fn count_vectors(columns: usize, entries: usize) -> Result<usize, CountError> {
    let count = entries / columns;
    check_count("entries of a vector", columns, entries / count.max(1))?;
    check_count("entries of vectors", count * columns, entries)?;
    Ok(count)
}

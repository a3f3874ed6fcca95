//! The limits of the masked scheme, and why a step of it is refused.

use confide_rlwe::RlweError;

use crate::mask::{Epoch, TILE};

/// Ciphertexts that are made or taken at a time: 32 columns or rows, 1.6 MB on the wire.
pub const BLOCK: usize = TILE;

/// Most rows of a matrix that is prepared: the host keeps a sum of 128 KB for each (at N = 4096),
/// half a gigabyte in all.
pub const ROWS_MAX: usize = 4096;

/// Why a step of the masked scheme was refused. What it concerned is dropped with the error: a batch
/// after a refusal is not used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskedError {
    /// The other side started again, or the state is of another process.
    #[error("epoch: wanted {wanted}, got {got}")]
    Epoch {
        /// This process, or that which was prepared with.
        wanted: Epoch,
        /// The one named.
        got: Epoch,
    },
    /// Batches are prepared once each, in order.
    #[error("batch: wanted {wanted}, got {got}")]
    Batch {
        /// The next one.
        wanted: u64,
        /// The one asked for.
        got: u64,
    },
    /// This counter was answered.
    #[error("counter {counter} is used")]
    CounterUsed {
        /// The counter of the token.
        counter: u64,
    },
    /// This counter was not prepared, or its batch was dropped.
    #[error("counter {counter} is not prepared")]
    CounterUnknown {
        /// The counter of the token.
        counter: u64,
    },
    /// The batch has fewer tokens left.
    #[error("batch: wanted {wanted} tokens, {left} are left")]
    Exhausted {
        /// Tokens asked for.
        wanted: usize,
        /// Tokens left.
        left: usize,
    },
    /// An answer that nobody waits for.
    #[error("answer for counter {counter}, which was not asked for or is answered")]
    NotAsked {
        /// The counter of the token.
        counter: u64,
    },
    /// A wrong count.
    #[error("{what}: wanted {wanted}, got {got}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The count that was expected.
        wanted: usize,
        /// The count that was given.
        got: usize,
    },
    /// A word that is not below 2^k.
    #[error("{what}: wanted a word of {bits} bits, got {got}")]
    Word {
        /// What it is.
        what: &'static str,
        /// k.
        bits: u32,
        /// The word.
        got: u64,
    },
    /// Too wide to be prepared.
    #[error("matrix: wanted at most {limit} rows, got {got}")]
    Rows {
        /// Greatest number of rows.
        limit: usize,
        /// Rows.
        got: usize,
    },
    /// An earlier error ended this batch.
    #[error("batch was dropped after an error")]
    Dropped,
    /// Ciphertexts, keys or parameters.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

pub(super) fn check_words(what: &'static str, words: &[u64], bits: u32) -> Result<(), MaskedError> {
    match words.iter().find(|word| **word >> bits != 0) {
        Some(got) => Err(MaskedError::Word { what, bits, got: *got }),
        None => Ok(()),
    }
}

pub(super) fn check_count(
    what: &'static str,
    wanted: usize,
    got: usize,
) -> Result<(), MaskedError> {
    if wanted == got { Ok(()) } else { Err(MaskedError::Count { what, wanted, got }) }
}

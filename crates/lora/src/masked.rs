//! The masked scheme: encryption ahead of time, integers online.
//!
//! A *batch* is N tokens, N being the degree of the ring. Ahead of time the key holder draws a mask
//! `r` for each token and column and sends `Enc(r_j)` for every column `j`, token `n` in coefficient
//! `n`. The host answers every row with `Enc(Σ_j A_ij·r_j − s_i)`, flooded and made fresh under the key
//! holder's public key; `s` comes from the key of its process. Online, for token `n`, the host is sent
//! `y = x − r mod 2^k` and answers `z = A·y + s mod 2^k`; the key holder adds what it decrypted and has
//! `A·x mod 2^k`.
//!
//! What the host sees is uniform whatever `x` is. What the key holder sees is `A·x` and nothing else:
//! without `s`, the N answers of one batch would be N equations about A before any token.
//!
//! ```text
//! key holder: MaskRequest -> PendingBatch -> HolderBatch: mask, unmask, one counter after the other
//! host:       HostSequence -> HostPreparation -> HostAnswers -> HostSequence: apply
//! ```
//!
//! Tokens have *counters*: the `n`th token of batch `b` has `b·N + n`. Each end uses a counter once.
//! Everything is in memory and nothing of it can be written out: who starts again starts with another
//! epoch, other keys and counter 0.

mod holder;
mod host;
mod noise;

use confide_rlwe::RlweError;

pub use holder::{BatchState, HolderBatch, MaskRequest, MaskedVectors, PendingBatch};
pub use host::{ApplyJob, HostAnswers, HostInput, HostPreparation, HostSequence};

use crate::mask::Epoch;

/// Ciphertexts that are made or taken at a time: 32 columns or rows, 1.6 MB on the wire.
pub const BLOCK: usize = crate::mask::TILE;

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

fn check_words(what: &'static str, words: &[u64], bits: u32) -> Result<(), MaskedError> {
    match words.iter().find(|word| **word >> bits != 0) {
        Some(got) => Err(MaskedError::Word { what, bits, got: *got }),
        None => Ok(()),
    }
}

fn check_count(what: &'static str, wanted: usize, got: usize) -> Result<(), MaskedError> {
    match wanted == got {
        true => Ok(()),
        false => Err(MaskedError::Count { what, wanted, got }),
    }
}

#[cfg(test)]
mod tests;

//! Errors of an adapter host.

use std::{io, path::PathBuf};

use confide_rlwe::RlweError;

use crate::{masked::MaskedError, protocol::Refusal, terms::TermsError};

/// The reason why a host cannot start, or an adapter cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The protocol cannot carry the adapter's name.
    #[error("adapter name: wanted 1 to 128 visible ASCII characters, got {name:?}")]
    InvalidName {
        /// The name of the adapter.
        name: String,
    },
    /// Two adapters have the same name.
    #[error("adapter name: {name} is already loaded")]
    DuplicateName {
        /// The name of the adapters.
        name: String,
    },
    /// The host has the greatest number of adapters.
    #[error("adapters: wanted at most {limit}, got more")]
    TooManyAdapters {
        /// The greatest number of adapters.
        limit: usize,
    },
    /// The adapter has no inputs, or too many.
    #[error("adapted inputs: wanted 1 to {limit}, got {got}")]
    InputCount {
        /// The greatest number of inputs.
        limit: usize,
        /// The number of inputs of the adapter.
        got: usize,
    },
    /// The rank of a pair exceeds the limit.
    #[error("rank: wanted at most {limit}, got {got}")]
    RankTooLarge {
        /// The greatest rank.
        limit: usize,
        /// The rank of the pair.
        got: usize,
    },
    /// The masked scheme cannot be used for an input.
    #[error("layer {layer}: {source}")]
    Masked {
        /// The layer of the input, from 0.
        layer: u32,
        /// The error of the masked scheme.
        source: MaskedError,
    },
    /// The noise on answers (`--noise-sigma`) is so large that no vector can be answered.
    #[error("layer {layer}: the noise is too large for any answer; choose a smaller --noise-sigma")]
    NoiseTooLarge {
        /// The layer of the input, from 0.
        layer: u32,
    },
    /// The terms of an input do not fit a frame.
    #[error("layer {layer}: the terms of an input do not fit a frame: {got} bytes")]
    TermsTooLong {
        /// The layer of the input, from 0.
        layer: u32,
        /// The length of the terms, in bytes.
        got: usize,
    },
    /// The weights cannot be rounded to integers.
    #[error(transparent)]
    Quantise(#[from] TermsError),
    /// The ring, a key or the random generator failed.
    #[error(transparent)]
    Ring(#[from] RlweError),
    /// The budget file cannot be read or written.
    #[error("budget file {}: {source}", .path.display())]
    BudgetFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The budget file has more counts than a host supports.
    #[error("budget file: wanted at most {} counts, got more", crate::budget::SLOTS_MAX)]
    TooManyCounts,
}

/// Maps an error of the masked scheme to the refusal that is sent to the key holder.
impl From<MaskedError> for Refusal {
    fn from(error: MaskedError) -> Self {
        match error {
            MaskedError::CounterUsed { .. } => Refusal::CounterUsed,
            MaskedError::CounterUnknown { .. } => Refusal::NotPrepared,
            MaskedError::BatchOrder { .. } => Refusal::AlreadyPrepared,
            MaskedError::OtherEpoch { .. } => Refusal::NoSession,
            MaskedError::Count { .. } | MaskedError::WordTooLarge { .. } | MaskedError::Ring(_) => {
                Refusal::Malformed
            }
            _ => Refusal::Internal,
        }
    }
}

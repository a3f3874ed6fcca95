//! Why a host is not made, or an adapter not loaded.

use std::{io, path::PathBuf};

use confide_rlwe::RlweError;

use crate::{masked::MaskedError, protocol::Refusal, terms::TermsError};

/// Why a host is not made, or an adapter not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A name that the protocol cannot carry.
    #[error("adapter name: wanted 1 to 128 visible ASCII characters, got {name:?}")]
    Name {
        /// The name.
        name: String,
    },
    /// Two adapters of one name.
    #[error("adapter name: wanted each once, got {name} twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// Too many adapters.
    #[error("adapters: wanted at most {limit}")]
    Adapters {
        /// The limit.
        limit: usize,
    },
    /// An adapter that changes nothing, or too much.
    #[error("adapted inputs: wanted 1 to {limit}, got {got}")]
    Inputs {
        /// The limit.
        limit: usize,
        /// What was given.
        got: usize,
    },
    /// A rank beyond the limit.
    #[error("rank: wanted at most {limit}, got {got}")]
    Rank {
        /// The limit.
        limit: usize,
        /// What was given.
        got: usize,
    },
    /// An input that the masked scheme cannot be prepared for.
    #[error("layer {layer}: {source}")]
    Masked {
        /// The layer.
        layer: u32,
        /// Why.
        source: MaskedError,
    },
    /// Noise that leaves no room for an answer.
    #[error("layer {layer}: the noise leaves no room for an answer")]
    Noise {
        /// The layer.
        layer: u32,
    },
    /// What key holders have to be told does not fit a frame.
    #[error("layer {layer}: terms of {got} bytes are too long")]
    Terms {
        /// The layer.
        layer: u32,
        /// Their length.
        got: usize,
    },
    /// It cannot be quantised.
    #[error(transparent)]
    Quantise(#[from] TermsError),
    /// Ring, keys or randomness.
    #[error(transparent)]
    Ring(#[from] RlweError),
    /// The counts of answers cannot be read or written.
    #[error("budget file {}: {source}", .path.display())]
    BudgetFile {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// More counts than are kept.
    #[error("budget file: more counts than are kept")]
    Budgets,
}

/// What a key holder is told of an error of the masked scheme.
impl From<MaskedError> for Refusal {
    fn from(error: MaskedError) -> Self {
        match error {
            MaskedError::CounterUsed { .. } => Refusal::CounterUsed,
            MaskedError::CounterUnknown { .. } => Refusal::NotPrepared,
            MaskedError::Batch { .. } => Refusal::AlreadyPrepared,
            MaskedError::Epoch { .. } => Refusal::NoSession,
            MaskedError::Count { .. } | MaskedError::Word { .. } | MaskedError::Ring(_) => {
                Refusal::Malformed
            }
            _ => Refusal::Internal,
        }
    }
}

//! Errors of a host and of its adapters.

use std::{io, path::PathBuf};

use confide_rlwe::RlweError;

use crate::{masked::MaskedError, protocol::Refusal, terms::TermsError};

/// The reason why a host cannot be made, or an adapter cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The protocol cannot carry the adapter's name.
    #[error("adapter name: wanted 1 to 128 visible ASCII characters, got {name:?}")]
    Name {
        /// The name of the adapter.
        name: String,
    },
    /// Two adapters have the same name.
    #[error("adapter name: wanted each once, got {name} twice")]
    Twice {
        /// The name of the adapters.
        name: String,
    },
    /// The host has as many adapters as it holds.
    #[error("adapters: wanted at most {limit}, got more")]
    Adapters {
        /// The greatest number of adapters.
        limit: usize,
    },
    /// The adapter changes nothing, or too many inputs.
    #[error("adapted inputs: wanted 1 to {limit}, got {got}")]
    Inputs {
        /// The greatest number of inputs.
        limit: usize,
        /// The number of inputs of the adapter.
        got: usize,
    },
    /// The rank of a pair is beyond the limit.
    #[error("rank: wanted at most {limit}, got {got}")]
    Rank {
        /// The greatest rank.
        limit: usize,
        /// The rank of the pair.
        got: usize,
    },
    /// The masked scheme cannot be prepared for an input.
    #[error("layer {layer}: {source}")]
    Masked {
        /// The layer of the input, from 0.
        layer: u32,
        /// The error of the masked scheme.
        source: MaskedError,
    },
    /// The noise of the options is too large for the parameter set: every answer could wrap around.
    #[error(
        "layer {layer}: the noise (--noise-sigma) is too large for these parameters: no answer would fit"
    )]
    Noise {
        /// The layer of the input, from 0.
        layer: u32,
    },
    /// The terms of an input do not fit a frame.
    #[error("layer {layer}: wanted terms that fit one frame, got {got} bytes")]
    Terms {
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
    /// The budget file has more counts than a host keeps.
    #[error("budget file: wanted at most {} counts, got more", crate::budget::SLOTS_MAX)]
    Budgets,
}

/// Maps an error of the masked scheme to the refusal that the key holder is sent.
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

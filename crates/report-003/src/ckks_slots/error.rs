//! Errors of an adapter under CKKS and of its steps.

use confide_lora::AdaptError;

use crate::ckks::CkksError;

/// The reason why an adapter cannot be applied under CKKS.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksAdapterError {
    /// The weights need more plaintexts than are allowed.
    #[error("ckks-slots: the adapter needs more than {limit} encoded plaintexts")]
    Plaintexts {
        /// The greatest number of plaintexts.
        limit: usize,
    },
    /// A matrix has no rows or no columns.
    #[error("ckks-slots: a matrix of the adapter is empty")]
    Empty,
    /// An operation of the scheme failed.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// Converts an error of a step to the type that an engine expects.
pub(super) fn activation_error(error: &CkksError) -> AdaptError {
    AdaptError::Activation { reason: error.to_string() }
}

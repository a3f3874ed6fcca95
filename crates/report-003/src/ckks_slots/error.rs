//! Errors of an adapter under CKKS and of its steps.

use confide_lora::AdaptError;

use crate::ckks::CkksError;

/// The reason why an adapter cannot be put under CKKS.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksSlotsError {
    /// The weights need more memory than is allowed.
    #[error("ckks-slots: wanted at most {limit} encoded plaintexts, the adapter needs more")]
    Plaintexts {
        /// The greatest number of plaintexts.
        limit: usize,
    },
    /// A matrix has no rows or no columns.
    #[error("ckks-slots: a matrix of the adapter is empty")]
    Empty,
    /// The scheme refused a step.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// A step's error in the form that an engine expects.
pub(super) fn activation_error(error: &CkksError) -> AdaptError {
    AdaptError::Activation { reason: error.to_string() }
}

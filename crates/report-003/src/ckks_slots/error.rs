//! Why an adapter is not put under CKKS, or a step refused.

use confide_lora::AdaptError;

use crate::ckks::CkksError;

/// Why an adapter cannot be put under CKKS.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksSlotsError {
    /// Memory for the weights.
    #[error("ckks-slots: wanted at most {limit} encoded plaintexts, the adapter needs more")]
    Plaintexts {
        /// Greatest count.
        limit: usize,
    },
    /// A matrix without rows or columns.
    #[error("ckks-slots: a matrix of the adapter is empty")]
    Empty,
    /// The scheme refused.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// A step's error, as an engine meets it.
pub(super) fn activation_error(error: &CkksError) -> AdaptError {
    AdaptError::Activation { reason: error.to_string() }
}

//! Errors of the CKKS scheme.

use confide_rlwe::RlweError;

/// The reason why a step of CKKS was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// A name is not that of a parameter set.
    #[error("parameter set: wanted one of {known}, got {got:?}")]
    UnknownSet {
        /// The name that was given.
        got: String,
        /// The names of all sets.
        known: String,
    },
    /// There are more values than slots.
    #[error("slots: wanted at most {limit}, got {got}")]
    TooManySlots {
        /// The number of slots of a message.
        limit: usize,
        /// The number of values that were given.
        got: usize,
    },
    /// A value is not finite or is too large for the scale.
    #[error("message: wanted finite values whose scaled coefficients stay below 2^62")]
    Magnitude,
    /// The scales of two ciphertexts differ.
    #[error("sum: wanted the same scale, got 2^{:.3} and 2^{:.3}", .left.log2(), .right.log2())]
    Scales {
        /// The scale of the left side.
        left: f64,
        /// The scale of the right side.
        right: f64,
    },
    /// There are too few limbs, or more than the parameters have.
    #[error("{what}: wanted {wanted} limbs, got {got}")]
    Limbs {
        /// The step that needs the limbs.
        what: &'static str,
        /// The number of limbs that are needed.
        wanted: usize,
        /// The number of limbs that there are.
        got: usize,
    },
    /// A key or ciphertext was made for other parameters.
    #[error("{what}: made for other parameters")]
    OtherParameters {
        /// The name of the thing.
        what: &'static str,
    },
    /// Bytes are not in the one form that this module writes.
    #[error("ciphertext: {reason}")]
    Wire {
        /// The reason why the bytes are refused.
        reason: &'static str,
    },
    /// The ring refused its part.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

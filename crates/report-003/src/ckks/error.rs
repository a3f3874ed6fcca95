//! Errors of the CKKS scheme.

use confide_rlwe::RlweError;

/// The reason why a CKKS operation was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// No parameter set has this name.
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
    ValueOutOfRange,
    /// The scales of two ciphertexts differ.
    #[error("sum: wanted the same scale, got 2^{:.3} and 2^{:.3}", .left.log2(), .right.log2())]
    ScaleMismatch {
        /// The scale of the left side.
        left: f64,
        /// The scale of the right side.
        right: f64,
    },
    /// The number of limbs is not the one that an operation needs.
    #[error("{what}: wanted {wanted} limbs, got {got}")]
    WrongLimbCount {
        /// The operation or operand that needs the limbs.
        what: &'static str,
        /// The number of limbs that are needed.
        wanted: usize,
        /// The number of limbs that was given.
        got: usize,
    },
    /// A key or ciphertext was made for other parameters.
    #[error("{what}: made for other parameters")]
    OtherParameters {
        /// The kind of the object, for example `ciphertext`.
        what: &'static str,
    },
    /// Bytes are not the encoding that this module writes.
    #[error("ciphertext: {reason}")]
    Wire {
        /// The reason why the bytes are refused.
        reason: &'static str,
    },
    /// An operation of the ring failed.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

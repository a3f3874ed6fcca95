//! Why CKKS refused.

use confide_rlwe::RlweError;

/// Why CKKS refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// A name that is no parameter set.
    #[error("parameter set: wanted one of {known}, got {got:?}")]
    UnknownSet {
        /// The name given.
        got: String,
        /// All names.
        known: String,
    },
    /// More values than slots.
    #[error("slots: wanted at most {limit}, got {got}")]
    TooManySlots {
        /// Slots of a message.
        limit: usize,
        /// Values given.
        got: usize,
    },
    /// A value that is not finite or too large for the scale.
    #[error("message: wanted finite values whose scaled coefficients stay below 2^62")]
    Magnitude,
    /// Scales that do not match.
    #[error("sum: wanted the same scale, got 2^{:.3} and 2^{:.3}", .left.log2(), .right.log2())]
    Scales {
        /// Scale of the left side.
        left: f64,
        /// Scale of the right side.
        right: f64,
    },
    /// Too few limbs, or more than there are.
    #[error("{what}: wanted {wanted} limbs, got {got}")]
    Limbs {
        /// What was to be done.
        what: &'static str,
        /// Limbs wanted.
        wanted: usize,
        /// Limbs there.
        got: usize,
    },
    /// A thing made for other parameters.
    #[error("{what}: made for other parameters")]
    OtherParameters {
        /// The thing.
        what: &'static str,
    },
    /// Bytes that are not the one form that this module writes.
    #[error("ciphertext: {reason}")]
    Wire {
        /// What is wrong.
        reason: &'static str,
    },
    /// The ring below refused.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

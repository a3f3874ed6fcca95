//! The errors of making and checking proofs.

use thiserror::Error;

/// The reason why a proof was not made or not accepted. [`Refused`](SigmaError::Refused) means that
/// a proof is not valid; after any other error it was not checked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigmaError {
    /// The proof is not valid: it was forged, or made for another statement or context.
    #[error("proof is not valid for this statement and context")]
    Refused,
    /// The proof names a key other than the given one.
    #[error("proof was made for another key")]
    OtherKey,
    /// The proof names the digest of another message.
    #[error("proof was made for another message")]
    OtherMessage,
    /// The proof names another context.
    #[error("proof was made for another context")]
    OtherContext,
    /// The input does not have its format.
    #[error("{what} is malformed")]
    Malformed {
        /// The name of the input.
        what: &'static str,
    },
    /// The input is too long.
    #[error("{what} is too long: wanted at most {max} bytes, got {got}")]
    TooLong {
        /// The name of the input.
        what: &'static str,
        /// The greatest length, in bytes.
        max: usize,
        /// The length of the input, in bytes.
        got: usize,
    },
    /// The length of the modulus is not supported.
    #[error("modulus length: wanted 2048 to 4096 bits, got {got}")]
    ModulusLength {
        /// The length of the modulus, in bits.
        got: usize,
    },
    /// The modulus is even, so it is not an RSA modulus.
    #[error("modulus: wanted an odd number, got an even one")]
    ModulusEven,
    /// The exponent is not 65537, the only supported one: it must be prime and above every
    /// challenge.
    #[error("public exponent: wanted 65537, got 0x{got}")]
    Exponent {
        /// The first 16 hexadecimal digits of the exponent.
        got: String,
    },
    /// The key, curve or algorithm is not supported.
    #[error("{what} is not supported: got {got}")]
    Unsupported {
        /// The name of the input.
        what: &'static str,
        /// The value of the input.
        got: String,
    },
    /// A public point is not on its curve, or is the neutral element.
    #[error("{what} is not a point of the curve")]
    NotOnCurve {
        /// The name of the point.
        what: &'static str,
    },
    /// The signature does not verify under the key: there is nothing to prove.
    #[error("signature does not verify")]
    SignatureInvalid,
    /// The committed number is outside the range.
    #[error("committed number is outside the range")]
    OutsideRange,
    /// The low end of a range is above its high end.
    #[error("range is empty: low end {low}, high end {high}")]
    EmptyRange {
        /// The low end.
        low: u64,
        /// The high end.
        high: u64,
    },
    /// The relation between the committed numbers does not hold, or a blinding belongs to another
    /// commitment.
    #[error("relation between the commitments does not hold")]
    RelationDoesNotHold,
    /// The operating system's random generator failed.
    #[error("the operating system's random generator failed")]
    NoRandomness,
    /// A new proof was not valid, so it was discarded: a fault of the machine or of this crate.
    #[error("self-check failed: the new proof was not valid and was discarded")]
    SelfCheck,
}

impl SigmaError {
    pub(crate) fn not_supported(what: &'static str, got: &str) -> Self {
        Self::Unsupported { what, got: got.to_string() }
    }
}

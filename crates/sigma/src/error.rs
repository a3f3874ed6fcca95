//! Errors of proving, and of checking a proof.

use thiserror::Error;

/// A failure of this crate. [`Refused`](SigmaError::Refused) means that a proof does not hold;
/// every other variant means that it could not be judged at all.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigmaError {
    /// The proof is of a false statement, or was made for another statement or context.
    #[error("proof does not hold for this statement and context")]
    Refused,
    /// The proof names another key than the one to check it with.
    #[error("proof was made for another key")]
    OtherKey,
    /// The proof names the digest of another message.
    #[error("proof was made for another message")]
    OtherMessage,
    /// The proof names another context.
    #[error("proof was made for another context")]
    OtherContext,
    /// Bytes are not in the format of their kind.
    #[error("{what} is malformed")]
    Malformed {
        /// The name of the input.
        what: &'static str,
    },
    /// A length is outside what the format allows.
    #[error("{what} is too long: wanted at most {max} bytes, got {got}")]
    TooLong {
        /// The name of the input.
        what: &'static str,
        /// The greatest length, in bytes.
        max: usize,
        /// The length of the input, in bytes.
        got: usize,
    },
    /// The modulus has another length than proofs are defined for.
    #[error("modulus length: wanted 2048 to 4096 bits, got {got}")]
    ModulusLength {
        /// The length of the modulus, in bits.
        got: usize,
    },
    /// The modulus is even, which no RSA modulus is.
    #[error("modulus: wanted an odd number, got an even one")]
    ModulusEven,
    /// The exponent is not 65537, the only one that is proved: it must be prime and above every
    /// challenge.
    #[error("public exponent: wanted 65537, got 0x{got}")]
    Exponent {
        /// The exponent in hexadecimal, at most 16 digits of it.
        got: String,
    },
    /// No proof is defined for a key, curve or algorithm.
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
    /// The committed number is outside the range that was to be proved.
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
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// A computation gave a proof that does not verify, so it was dropped.
    #[error("self-check failed: the proof was dropped")]
    SelfCheck,
}

impl SigmaError {
    pub(crate) fn not_supported(what: &'static str, got: &str) -> Self {
        Self::Unsupported { what, got: got.to_string() }
    }
}

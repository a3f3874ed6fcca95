//! What cannot be proved, and why a proof is not believed.

use thiserror::Error;

/// Failures of this crate. A proof that does not hold is [`Refused`](SigmaError::Refused); every
/// other variant says what could not be judged at all.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigmaError {
    /// The proof says something that is not so, or was made for another statement or context.
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
    /// The bytes are no proof of this format.
    #[error("{what} is malformed")]
    Malformed {
        /// Which part of the input.
        what: &'static str,
    },
    /// A length outside what the format allows.
    #[error("{what} is too long: wanted at most {max} bytes, got {got}")]
    TooLong {
        /// Which part of the input.
        what: &'static str,
        /// Most bytes that are read.
        max: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The modulus has another length than proofs are defined for.
    #[error("modulus length: wanted 2048 to 4096 bits, got {got}")]
    ModulusLength {
        /// Its length in bits.
        got: usize,
    },
    /// An even modulus is no RSA modulus.
    #[error("modulus is even")]
    ModulusEven,
    /// Challenges have to be smaller than a prime exponent; only 65537 is proved.
    #[error("public exponent: wanted 65537, got 0x{got}")]
    Exponent {
        /// The exponent in hexadecimal, at most 16 digits of it.
        got: String,
    },
    /// A key, curve or algorithm that no proof is defined for.
    #[error("{what} is not supported: got {got}")]
    Unsupported {
        /// Which part of the input.
        what: &'static str,
        /// What was found there.
        got: String,
    },
    /// A public point that is not on its curve, or is the neutral element.
    #[error("{what} is not a point of the curve")]
    NotOnCurve {
        /// Which point.
        what: &'static str,
    },
    /// The signature does not verify under the key: there is nothing to prove.
    #[error("signature does not verify")]
    SignatureInvalid,
    /// The committed number is outside the range that was to be proved.
    #[error("committed number is outside the range")]
    OutsideRange,
    /// The smaller end of a range is above the larger one.
    #[error("range is empty: low end {low}, high end {high}")]
    EmptyRange {
        /// Low end.
        low: u64,
        /// High end.
        high: u64,
    },
    /// The relation between the committed numbers does not hold, or a blinding is another's.
    #[error("relation between the commitments does not hold")]
    RelationDoesNotHold,
    /// The system gave no random bytes.
    #[error("no randomness from the system")]
    NoRandomness,
    /// A computation gave a proof that does not verify; it was not handed out.
    #[error("self-check failed: the proof was dropped")]
    SelfCheck,
}

impl SigmaError {
    pub(crate) fn not_supported(what: &'static str, got: &str) -> Self {
        Self::Unsupported { what, got: got.to_string() }
    }
}

//! Errors of verifying a disclosure.

use crate::signature::SignatureError;
use confide_transcript::OpeningError;

/// The reason why a disclosure was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The notary's signature does not match the statement.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// An opening does not match the signed commitments.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// A claim names a field that is not opened, or that has no number or text.
    #[error("claim {claim} names a field that is not opened, or that has no number or text")]
    InvalidField {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// A proof is not valid.
    #[error("proof of claim {claim} is not valid: {reason}")]
    Proof {
        /// The index of the claim, from 0.
        claim: usize,
        /// The message of the back end.
        reason: String,
    },
    /// A proof needs circuits, which this program does not have.
    #[error("proof of claim {claim} needs circuits, but this program was built without them")]
    NoCircuits {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// The other session's disclosure is not accepted.
    #[error("other session: {0}")]
    OtherSession(Box<VerifyError>),
    /// The other session is the same as this session: both have one statement.
    #[error("the other session is the same session: wanted two statements, got {digest} twice")]
    SameSession {
        /// SHA-256 of the statement, in hexadecimal.
        digest: String,
    },
    /// No claim compares a field with the other session.
    #[error("the other session is not used: wanted a claim of equality with one of its fields")]
    UnusedOtherSession,
    /// A claim compares a field with itself.
    #[error("claim {claim} compares a field with itself")]
    SameField {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// The disclosure shows nothing and proves nothing.
    #[error("the disclosure shows nothing and proves nothing")]
    Empty,
}

//! Errors of verifying a disclosure.

use crate::{signature::SignatureError, transcript::OpeningError};

/// The reason why a disclosure was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The statement is not the notary's.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// An opening does not belong to the signed commitments.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// A claim names a field that is not opened, or that has no number or text.
    #[error("claim {claim} names a field that is not opened, or that has no number or text")]
    Subject {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// A proof does not hold.
    #[error("proof of claim {claim} does not hold: {reason}")]
    Proof {
        /// The index of the claim, from 0.
        claim: usize,
        /// The message of the back end.
        reason: String,
    },
    /// A proof needs circuits, which this program does not have.
    #[error("proof of claim {claim} needs circuits, which this program was built without")]
    NoCircuits {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// The other session's disclosure does not hold.
    #[error("other session: {0}")]
    OtherSession(Box<VerifyError>),
    /// The other session is this very session: both have one statement.
    #[error("other session is this very session: wanted another statement, got {digest} twice")]
    SameSession {
        /// SHA-256 of the statement, in hexadecimal.
        digest: String,
    },
    /// No claim compares anything with the other session.
    #[error("other session is compared with nothing: wanted a claim of equality with its fields")]
    OtherUnused,
    /// A claim says that a field equals itself.
    #[error("claim {claim} compares a field with itself")]
    SameField {
        /// The index of the claim, from 0.
        claim: usize,
    },
    /// The disclosure shows nothing and proves nothing.
    #[error("disclosure shows and proves nothing")]
    Empty,
}

//! Errors of making a disclosure.

use crate::{fields::TooManyFields, session::SessionCheckError};
use confide_transcript::{Direction, TranscriptError};

/// The reason why a disclosure was not made.
#[derive(Debug, thiserror::Error)]
pub enum DiscloseError {
    /// The session does not match its notary's signature.
    #[error(transparent)]
    Session(#[from] SessionCheckError),
    /// A byte range is not within the transcript.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The session has more fields than are allowed.
    #[error(transparent)]
    Fields(#[from] TooManyFields),
    /// The session has no field of this path.
    #[error("session has no field {path}; the {} body: {view}", .direction.as_str())]
    NoField {
        /// The path.
        path: String,
        /// The direction in the path.
        direction: Direction,
        /// The view of the body of that message ([`crate::BodyView::as_str`]).
        view: &'static str,
    },
    /// The chunks of the named bytes would show a secret: a header field, or a parameter of the
    /// target.
    #[error(
        "{} bytes {start}-{end} may contain the secret {path}: narrow the range, or show {path} too",
        .direction.as_str()
    )]
    Secret {
        /// The direction of the bytes.
        direction: Direction,
        /// The first byte of the chunks.
        start: u64,
        /// The byte after the last one.
        end: u64,
        /// The path of the field.
        path: String,
    },
    /// A predicate is about a value that is shown.
    #[error("{path} is shown: a proof about it would add nothing")]
    AlreadyShown {
        /// The path of the field.
        path: String,
    },
    /// A predicate is about a field without a committed number or date.
    #[error("{path} has no committed number or date")]
    NoAmount {
        /// The path of the field.
        path: String,
    },
    /// A predicate about a text is about a field without text, or with one that is too long.
    #[error("{path} is not a text of at most {limit} bytes")]
    NoText {
        /// The path of the field.
        path: String,
        /// The greatest length, in bytes.
        limit: usize,
    },
    /// A predicate needs the other session, but none was given.
    #[error("{path} belongs to another session, but no other session was given")]
    NoOther {
        /// The path of the field.
        path: String,
    },
    /// The other session is the same as this session.
    #[error("the other session is the same session: wanted two statements, got {digest} twice")]
    SameSession {
        /// SHA-256 of the statement, in hexadecimal.
        digest: String,
    },
    /// A predicate compares a field with itself.
    #[error("{path} is compared with itself, which proves nothing")]
    SameField {
        /// The path of the field.
        path: String,
    },
    /// A predicate is false.
    #[error("{subject} is false, so it cannot be proven")]
    FalsePredicate {
        /// The predicate or the field that it is about.
        subject: String,
    },
    /// There are too many claims, or a text is too long.
    #[error("{what} is {got}, wanted at most {limit}")]
    Limit {
        /// The quantity that is limited.
        what: &'static str,
        /// The greatest value that is allowed.
        limit: usize,
        /// The value that was given.
        got: usize,
    },
    /// A proof could not be made.
    #[error("proof about {subject} could not be made: {reason}")]
    Proof {
        /// The field or the bytes that the proof is about.
        subject: String,
        /// The message of the back end.
        reason: String,
    },
    /// A predicate needs circuits, which this program does not have.
    #[error("proof about {subject} needs circuits, but this program was built without them")]
    NoCircuits {
        /// The field or the bytes that the proof is about.
        subject: String,
    },
}

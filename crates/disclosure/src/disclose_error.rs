//! Why a disclosure is not made.

use crate::{
    fields::TooManyFields,
    session::HolderError,
    transcript::{Direction, TranscriptError},
};

/// Why a disclosure was not made.
#[derive(Debug, thiserror::Error)]
pub enum DiscloseError {
    /// The session is not what its notary signed.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// A byte range is not within the transcript.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// More fields than a session has.
    #[error(transparent)]
    Fields(#[from] TooManyFields),
    /// The session has no field of this path.
    #[error("session has no field {path}; the {} body: {view}", .direction.as_str())]
    NoField {
        /// The path that was named.
        path: String,
        /// The direction of the message that the path names.
        direction: Direction,
        /// How the body of that message was read ([`crate::View::as_str`]).
        view: &'static str,
    },
    /// Whole chunks of the asked bytes would show a secret: a header field, or a parameter of the
    /// target.
    #[error("{} bytes {start}-{end} may hold {path}, which is not to be shown", .direction.as_str())]
    Secret {
        /// The direction of the bytes.
        direction: Direction,
        /// First byte of the chunks.
        start: u64,
        /// The byte after the last one.
        end: u64,
        /// The path of the field.
        path: String,
    },
    /// A predicate over a value that is shown anyway.
    #[error("{path} is shown: a proof about it says nothing more")]
    Pointless {
        /// The path of the field.
        path: String,
    },
    /// A predicate over a field without a committed number or date.
    #[error("{path} holds no number or date that was committed to")]
    NoAmount {
        /// The path of the field.
        path: String,
    },
    /// A predicate about the text of a field that is none, or too long.
    #[error("{path} holds no text of at most {limit} bytes")]
    NoText {
        /// The path of the field.
        path: String,
        /// The greatest value that is allowed.
        limit: usize,
    },
    /// A predicate that names another session, where there is none.
    #[error("{path} is of another session, and none is given")]
    NoOther {
        /// The path of the field.
        path: String,
    },
    /// The other session is this very session.
    #[error("the other session is this very session: wanted another statement, got {digest} twice")]
    SameSession {
        /// SHA-256 of the statement, in hexadecimal.
        digest: String,
    },
    /// A predicate that compares a field with itself.
    #[error("{path} is compared with itself: that says nothing")]
    SameField {
        /// The path of the field.
        path: String,
    },
    /// A predicate that does not hold.
    #[error("{subject} is not so: it cannot be proven")]
    Untrue {
        /// What was to be proven.
        subject: String,
    },
    /// Too many claims, or too long a text.
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
        /// What was to be proven.
        subject: String,
        /// The message of the back end.
        reason: String,
    },
    /// A predicate that needs circuits.
    #[error("proof about {subject} needs circuits, which this program was built without")]
    NoCircuits {
        /// What was to be proven.
        subject: String,
    },
}

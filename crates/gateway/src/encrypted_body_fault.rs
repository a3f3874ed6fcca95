//! The reasons why a request with an encrypted body is refused.

use confide_encrypted_body::EncryptedBodyError;
use http::StatusCode;

/// The reason why a request with an encrypted body is refused. It says nothing of which step of the
/// decryption failed, since whoever changed the body could learn from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncryptedBodyFault {
    /// Fields or frames are malformed, or a frame is not the next one.
    Invalid,
    /// The body ended before its end, as far as that shows.
    Truncated,
    /// The encapsulated key was used before.
    Replayed,
    /// The body is for no key that is in use.
    UnknownKey,
    /// The client's network sent too many of them.
    TooMany,
}

impl EncryptedBodyFault {
    /// The fault of a body that cannot be read, except for the length of a frame.
    pub(crate) fn from_error(error: EncryptedBodyError) -> Self {
        match error {
            EncryptedBodyError::CutFrame
            | EncryptedBodyError::FinalFrameMissing
            | EncryptedBodyError::NoFrame => Self::Truncated,
            _ => Self::Invalid,
        }
    }

    /// The status, the code for programs and the text for people.
    pub(crate) fn to_status_and_message(self) -> (StatusCode, &'static str, &'static str) {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::Invalid => (
                bad,
                "encrypted_body_invalid",
                "the encrypted body is not readable: encrypt it anew",
            ),
            Self::Truncated => (bad, "encrypted_body_truncated", "the encrypted body was cut"),
            Self::Replayed => (
                bad,
                "encrypted_body_replayed",
                "this encrypted body came before: encrypt each request anew",
            ),
            Self::UnknownKey => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "encrypted_body_key",
                "the body is for no key of this gateway: fetch the key again and verify it",
            ),
            Self::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "encrypted_body_too_many",
                "this network sent too many encrypted requests",
            ),
        }
    }
}

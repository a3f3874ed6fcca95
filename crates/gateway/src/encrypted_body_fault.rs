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
    /// An encapsulated request is for no key that is in use.
    UnknownOhttpKey,
    /// A request to the path of OHTTP has another media type.
    OhttpType,
    /// The request inside of an encapsulated one is not one that the gateway serves in this form.
    InnerRequest,
    /// The client's network sent too many of them.
    TooMany,
    /// The route selects the server by key, and the request does not name one key.
    KeyNotNamed(KeyNameFault),
    /// No server of the route lists a key now.
    NoKeys,
}

/// What a request has in place of the name of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyNameFault {
    Absent,
    Malformed,
    Repeated,
}

impl KeyNameFault {
    fn message(self) -> &'static str {
        match self {
            Self::Absent => {
                "wanted one field Confide-Key-Id with the key_id of the key to which the request is \
                 encrypted, got none"
            }
            Self::Malformed => {
                "wanted a key_id in the field Confide-Key-Id, that is body- and 16 lower-case hexadecimal \
                 digits, got another text"
            }
            Self::Repeated => {
                "wanted one field Confide-Key-Id with the key_id of the key to which the request is \
                 encrypted, got several"
            }
        }
    }
}

impl EncryptedBodyFault {
    /// The fault of a body that cannot be read, except for the length of a frame.
    pub(crate) fn from_error(error: EncryptedBodyError) -> Self {
        match error {
            EncryptedBodyError::CutFrame
            | EncryptedBodyError::FinalFrameMissing
            | EncryptedBodyError::MessageCut
            | EncryptedBodyError::NoFrame => Self::Truncated,
            EncryptedBodyError::OhttpSuite => Self::UnknownOhttpKey,
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
            Self::UnknownOhttpKey => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "encapsulated_request_key",
                "the request is for no key of this gateway: fetch the keys again and verify them",
            ),
            Self::OhttpType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "encapsulated_request_type",
                "wanted message/ohttp-req or message/ohttp-chunked-req",
            ),
            Self::InnerRequest => (
                bad,
                "encapsulated_request_invalid",
                "wanted a request with https, this gateway's authority or none, a path, and no field of a \
                 connection or of encryption",
            ),
            Self::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "encrypted_body_too_many",
                "this network sent too many encrypted requests",
            ),
            Self::KeyNotNamed(fault) => (bad, "key_not_named", fault.message()),
            Self::NoKeys => (
                StatusCode::SERVICE_UNAVAILABLE,
                "keys_unavailable",
                "no server lists a key for encrypted requests now",
            ),
        }
    }
}

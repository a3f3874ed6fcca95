//! The names by which the two ends find each other: fields, paths, media types.

use crate::error::EncryptedBodyError;

/// The field of a request whose body is encrypted: the encapsulated key in hexadecimal.
pub const ENCAPSULATED_KEY_FIELD: &str = "ehbp-encapsulated-key";
/// The field of an answer whose body is encrypted: 32 random bytes in hexadecimal.
pub const ANSWER_NONCE_FIELD: &str = "ehbp-response-nonce";
/// The field by which a request or an answer announces that its body has a final frame.
pub const END_FIELD: &str = "confide-body-end";
/// The field by which a request names the key that it is encrypted to, in clear, so that a proxy in
/// front of several servers can pass it on to the one that has the key.
pub const KEY_ID_FIELD: &str = "confide-key-id";
/// The path of the server's key configuration.
pub const KEYS_PATH: &str = "/.well-known/hpke-keys";
/// The media type of key configurations (RFC 9458 section 3.2).
pub const KEYS_TYPE: &str = "application/ohttp-keys";
/// The media type of the answer that tells a client to fetch the key again (RFC 9457).
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// The `type` of that answer.
pub const KEY_CONFIG_PROBLEM: &str = "urn:ietf:params:ehbp:error:key-config";

/// The value of [`END_FIELD`].
const FINAL_FRAME: &str = "final-frame";

/// How the receiver of a body learns that it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// It does not, as in EHBP: a body that was cut between two frames looks complete.
    Unmarked,
    /// The last frame says that it is the last one.
    FinalFrame,
}

impl BodyEnd {
    /// Reads the values of [`END_FIELD`], of which there may be one.
    ///
    /// # Errors
    /// [`EncryptedBodyError::End`] for another value, or several.
    pub fn parse<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, EncryptedBodyError> {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(Self::Unmarked),
            (Some(value), None) if value == FINAL_FRAME.as_bytes() => Ok(Self::FinalFrame),
            _ => Err(EncryptedBodyError::End),
        }
    }

    /// The value of [`END_FIELD`], if the end is announced.
    pub fn field_value(self) -> Option<&'static str> {
        match self {
            Self::Unmarked => None,
            Self::FinalFrame => Some(FINAL_FRAME),
        }
    }

    /// HPKE's `info`. It depends on the announcement, so that a body whose announcement was added or
    /// removed on its way cannot be opened.
    pub(crate) fn info(self) -> &'static [u8] {
        match self {
            Self::Unmarked => b"ehbp request",
            Self::FinalFrame => b"ehbp request\0confide final-frame",
        }
    }
}

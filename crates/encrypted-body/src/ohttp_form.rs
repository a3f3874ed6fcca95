//! The two forms of OHTTP, and the names by which they are found.

/// The path of a gateway (RFC 9540): GET returns its keys, POST takes encapsulated requests.
pub const OHTTP_GATEWAY_PATH: &str = "/.well-known/ohttp-gateway";
/// The `type` of the problem document that tells a client to fetch the keys again (RFC 9458 section
/// 5.3).
pub const OHTTP_KEY_PROBLEM: &str = "https://iana.org/assignments/http-problem-types#ohttp-key";
/// The field by which both ends ask relays to pass chunks on as they come
/// (draft-ietf-httpbis-incremental).
pub const INCREMENTAL_FIELD: &str = "incremental";
/// The value of [`INCREMENTAL_FIELD`].
pub const INCREMENTAL: &str = "?1";

/// A form of encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OhttpForm {
    /// RFC 9458: one ciphertext for the whole message.
    SingleChunk,
    /// draft-ietf-ohai-chunked-ohttp-08: a ciphertext for each part of the message.
    Chunked,
}

impl OhttpForm {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::SingleChunk, Self::Chunked];

    /// The media type of requests.
    pub fn request_type(self) -> &'static str {
        match self {
            Self::SingleChunk => "message/ohttp-req",
            Self::Chunked => "message/ohttp-chunked-req",
        }
    }

    /// The media type of answers.
    pub fn answer_type(self) -> &'static str {
        match self {
            Self::SingleChunk => "message/ohttp-res",
            Self::Chunked => "message/ohttp-chunked-res",
        }
    }

    /// The form whose requests have this media type, which has no parameters.
    pub fn from_request_type(value: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|form| value.eq_ignore_ascii_case(form.request_type().as_bytes()))
    }

    /// The beginning of HPKE's `info`.
    pub(crate) fn request_label(self) -> &'static [u8] {
        match self {
            Self::SingleChunk => b"message/bhttp request",
            Self::Chunked => b"message/bhttp chunked request",
        }
    }

    /// HPKE's label of the secret for the answer.
    pub(crate) fn answer_label(self) -> &'static [u8] {
        match self {
            Self::SingleChunk => b"message/bhttp response",
            Self::Chunked => b"message/bhttp chunked response",
        }
    }
}

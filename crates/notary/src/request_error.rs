//! The reasons for which a request is refused before a connection is opened.

use http::Method;

/// The supported version of the encoding.
pub(crate) const VERSION: u32 = 1;

/// The reason for which bytes or values are not a valid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A part is longer than its limit.
    #[error("{part} of the request is {got} long, wanted at most {wanted}")]
    TooLong {
        /// The part.
        part: &'static str,
        /// The limit.
        wanted: usize,
        /// The length in bytes, or for the list of fields the count.
        got: usize,
    },
    /// The bytes end before the end of the head.
    #[error("request is truncated: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// The number of bytes that the request should have at least.
        wanted: usize,
        /// The number of bytes received.
        got: usize,
    },
    /// The head is not valid JSON with the right keys.
    #[error("request head is not readable: {reason}")]
    Malformed {
        /// The position of the error in the JSON.
        reason: String,
    },
    /// The request has another version of the encoding.
    #[error("request version is {got}, wanted {VERSION}")]
    Version {
        /// The version of the request.
        got: u32,
    },
    /// The URL is not a valid https URL.
    #[error("URL is not usable: wanted https://HOST[:PORT][/PATH][?QUERY], got {got}")]
    Url {
        /// The fault of the URL.
        got: String,
    },
    /// The method is not supported.
    #[error("unsupported method: wanted one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    Method,
    /// A field has a name or a value that must not be sent.
    #[error("field {index} is not usable: wanted {wanted}")]
    Field {
        /// The field's index, from 0.
        index: usize,
        /// The requirement that the field does not meet.
        wanted: &'static str,
    },
    /// The request has a body, but its method does not allow one.
    #[error("{method} must have no body: wanted 0 bytes, got {got}")]
    Body {
        /// The method.
        method: Method,
        /// The length of the body in bytes.
        got: usize,
    },
    /// The head cannot be encoded.
    #[error("request head cannot be encoded: {reason}")]
    Unwritable {
        /// The JSON writer's message.
        reason: String,
    },
    /// The key's digest is not a SHA-256 in hexadecimal.
    #[error("key is not a SHA-256 in lower-case hexadecimal")]
    Key,
}

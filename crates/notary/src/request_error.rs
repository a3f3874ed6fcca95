//! The reasons for which a request is refused before anything is dialled.

use http::Method;

/// The version of the encoding that is written and read.
pub(crate) const VERSION: u32 = 1;

/// Why bytes or values are not a request.
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
        /// The length that came.
        got: usize,
    },
    /// The bytes end before the head does.
    #[error("request ends early: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// Bytes that the length announces.
        wanted: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The head is not JSON of the wanted form.
    #[error("request head is not readable: {reason}")]
    Malformed {
        /// Where the JSON is wrong.
        reason: String,
    },
    /// The request has another version of the encoding.
    #[error("request version is {got}, wanted {VERSION}")]
    Version {
        /// The version that came.
        got: u32,
    },
    /// The URL is not one that is fetched.
    #[error("URL is not usable: wanted https://HOST[:PORT][/PATH][?QUERY], got {got}")]
    Url {
        /// What is wrong with the URL.
        got: String,
    },
    /// The method is not one that is sent.
    #[error("method is not sent: wanted one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    Method,
    /// A field's name or value cannot be sent as it is.
    #[error("field {index} is not usable: wanted {wanted}")]
    Field {
        /// The field's index, from 0.
        index: usize,
        /// What the field has to be.
        wanted: &'static str,
    },
    /// The request has a body, and its method has none.
    #[error("{method} has no body: wanted 0 bytes, got {got}")]
    Body {
        /// The method.
        method: Method,
        /// Length of the body in bytes.
        got: usize,
    },
    /// The head cannot be written.
    #[error("request head cannot be written: {reason}")]
    Unwritable {
        /// The JSON writer's message.
        reason: String,
    },
    /// The key's digest is not a SHA-256 in hexadecimal.
    #[error("key is not a SHA-256 in lower-case hexadecimal")]
    Key,
}

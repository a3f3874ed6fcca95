//! The reasons for which a request is refused before anything is dialled.

use http::Method;

/// The version of the encoding that is written and read.
pub(crate) const VERSION: u32 = 1;

/// Why bytes or values are no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A part is longer than its limit.
    #[error("{part} of the request is {got} long, wanted at most {wanted}")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// The limit.
        wanted: usize,
        /// What came.
        got: usize,
    },
    /// The bytes end before the head does.
    #[error("request ends early: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// What the length says.
        wanted: usize,
        /// What came.
        got: usize,
    },
    /// The head is no JSON of the wanted form.
    #[error("request head is not readable: {reason}")]
    Malformed {
        /// What the reader said.
        reason: String,
    },
    /// Another version of the encoding.
    #[error("request version is {got}, wanted {VERSION}")]
    Version {
        /// What came.
        got: u32,
    },
    /// A URL that is not fetched.
    #[error("URL is not usable: wanted https://HOST[:PORT][/PATH][?QUERY], got {got}")]
    Url {
        /// What is wrong with it.
        got: String,
    },
    /// A method that is not sent.
    #[error("method is not sent: wanted one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    Method,
    /// A field whose name or value cannot be sent as it is.
    #[error("field {index} is not usable: wanted {wanted}")]
    Field {
        /// Its place, from 0.
        index: usize,
        /// What a field has to be.
        wanted: &'static str,
    },
    /// A body where the method has none.
    #[error("{method} has no body: wanted 0 bytes, got {got}")]
    Body {
        /// The method.
        method: Method,
        /// Bytes of body.
        got: usize,
    },
    /// The head cannot be written.
    #[error("request head cannot be written: {reason}")]
    Unwritable {
        /// What the writer said.
        reason: String,
    },
    /// The key's digest is no digest.
    #[error("key is not a SHA-256 in lower-case hexadecimal")]
    Key,
}

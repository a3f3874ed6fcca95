//! The reasons why a message cannot be read or written.

/// The reason why a message is not valid HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Http1Error {
    /// A line or a field is malformed, or the version is another one.
    #[error("the head is malformed")]
    Head,
    /// The head is longer than allowed.
    #[error("the head is longer than {limit} bytes")]
    HeadTooLong {
        /// The largest number of bytes.
        limit: usize,
    },
    /// The head or the trailers have more fields than allowed.
    #[error("there are more than {limit} fields")]
    TooManyFields {
        /// The largest number of fields.
        limit: usize,
    },
    /// A length that is not a number of at most 64 bits, or two different ones.
    #[error("Content-Length is not one number")]
    Length,
    /// A chunk's size line, the end of its data, or a trailer is malformed.
    #[error("a chunk or a trailer is malformed")]
    Chunk,
    /// The trailers, or a chunk's extensions, are longer than allowed.
    #[error("trailers or extensions of chunks are longer than {limit} bytes")]
    TrailersTooLong {
        /// The largest number of bytes.
        limit: usize,
    },
    /// The stream ended before the body did.
    #[error("the connection ended before the body")]
    CutShort,
    /// A body to be written has more or fewer bytes than its `Content-Length` announced.
    #[error("the body has another length than announced")]
    AnnouncedLength,
}

//! The versions of HTTP that are spoken.

/// The version of HTTP on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

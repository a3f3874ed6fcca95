//! The media type and the content coding of an answer.

use http::{HeaderMap, HeaderValue, header};

/// The media type of a stream of server-sent events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// The media type of a JSON document.
pub(crate) const JSON: &str = "application/json";

/// The media type in `Content-Type`, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let field = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(field.split(';').next().unwrap_or_default().trim())
}

/// Whether the body has no content coding, so that it can be read.
pub(crate) fn is_uncoded(headers: &HeaderMap) -> bool {
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    headers.get_all(header::CONTENT_ENCODING).iter().all(is_identity)
}

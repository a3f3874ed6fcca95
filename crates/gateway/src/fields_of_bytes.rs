//! Fields about the bytes of a body, which are no longer true of a body that the gateway has changed.

use confide_http::remove_fields;
use http::{HeaderMap, HeaderName, header};

static FIELDS_OF_BYTES: [HeaderName; 7] = [
    header::ETAG,
    header::ACCEPT_RANGES,
    header::CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Removes the fields about the bytes of a body, but not its length.
pub(crate) fn remove_fields_of_bytes(headers: &mut HeaderMap) {
    remove_fields(headers, &FIELDS_OF_BYTES);
}

//! Header fields as `httparse` finds them, collected in a [`HeaderMap`].

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Header;

use super::Http1Error;

/// The number of fields for which there is always room. More are an error.
pub(super) const FIELDS_MAX: usize = 256;

/// Collects the fields that were parsed from `head`. Their values share its memory.
pub(super) fn collect_fields(
    head: &Bytes,
    parsed: &[Header<'_>],
) -> Result<HeaderMap, http::Error> {
    let mut fields = HeaderMap::with_capacity(parsed.len());
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes())?;
        fields.append(name, HeaderValue::from_maybe_shared(head.slice_ref(field.value))?);
    }
    Ok(fields)
}

/// The error for fields that could not be parsed, or were more than `limit`.
pub(super) fn field_error(error: httparse::Error, limit: usize, other: Http1Error) -> Http1Error {
    match error {
        httparse::Error::TooManyHeaders => Http1Error::TooManyFields { limit },
        _ => other,
    }
}

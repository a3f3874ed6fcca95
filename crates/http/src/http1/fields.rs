//! Header fields as `httparse` finds them, collected in a [`HeaderMap`].

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use httparse::Header;

use super::error::Http1Error;
use crate::hop::list_members;

/// The number of fields for which there is always room. More are an error.
pub(super) const FIELDS_MAX: usize = 1024;

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

/// Reads the length of a body. Two equal ones become one.
///
/// # Errors
/// [`Http1Error::Length`] unless all are the same number.
pub(super) fn read_content_length(fields: &mut HeaderMap) -> Result<Option<u64>, Http1Error> {
    let mut values = fields.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(None) };
    let length = parse_length(first.as_bytes())?;
    let mut is_repeated = false;
    for other in values {
        is_repeated = true;
        if parse_length(other.as_bytes())? != length {
            return Err(Http1Error::Length);
        }
    }
    if is_repeated {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(Some(length))
}

/// Parses a length: digits only, at most 64 bits.
fn parse_length(text: &[u8]) -> Result<u64, Http1Error> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or(Http1Error::Length)
}

/// Whether the sender of a message keeps the connection open after the exchange (RFC 9112 section
/// 9.3).
pub(super) fn keeps_connection(version: Version, fields: &HeaderMap) -> bool {
    let names = |wanted: &str| {
        list_members(fields, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case(wanted))
    };
    match version == Version::HTTP_10 {
        true => names("keep-alive") && !names("close"),
        false => !fields.contains_key(header::CONNECTION) || !names("close"),
    }
}

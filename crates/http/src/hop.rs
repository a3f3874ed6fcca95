//! Hop-by-hop header fields (RFC 9110 section 7.6.1), and the framing of messages.

use http::{
    HeaderMap, HeaderName, Method, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body;

/// Whether a field must not be forwarded. A `match` of its name costs a tenth of ten comparisons.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            // Each server sends `100 Continue` itself once the body is wanted.
            | "expect"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// Removes the fields that must not be forwarded, and every field that `Connection` names.
///
/// A message with both `Transfer-Encoding` and `Content-Length` loses the latter, because two
/// lengths allow request smuggling (RFC 9112 section 6.1). Lookalikes of these fields, of
/// `Content-Length` and of `Host` are removed as well; see [`remove_fields`].
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    if headers.contains_key(CONNECTION) {
        for name in connection_options(headers) {
            headers.remove(name);
        }
    }
    remove_matching(headers, |name| {
        let name = name.as_str();
        is_hop_by_hop(name) || (name.contains('_') && is_decisive(&name.replace('_', "-")))
    });
}

/// Whether a field frames or directs a message, so that no lookalike of it may pass.
fn is_decisive(name: &str) -> bool {
    is_hop_by_hop(name) || matches!(name, "content-length" | "host")
}

/// Removes the fields with these names and their lookalikes, which have `_` in place of `-`: some
/// servers read both as the same field, since CGI's variables do not tell them apart (RFC 3875
/// section 4.1.18).
///
/// A message has few fields and most have none of these, so a look at each of its names costs less
/// than a search for each listed one.
pub fn remove_fields(headers: &mut HeaderMap, names: &[HeaderName]) {
    remove_matching(headers, |name| names.contains(name) || is_lookalike(name, names));
}

/// Removes the fields with `_` in their names: a server that reads `_` as `-` would take them for
/// fields that this proxy has checked. nginx removes them by default, too.
pub fn remove_underscored(headers: &mut HeaderMap) {
    remove_matching(headers, |name| name.as_str().contains('_'));
}

fn is_lookalike(name: &HeaderName, names: &[HeaderName]) -> bool {
    name.as_str().contains('_') && {
        let dashed = name.as_str().replace('_', "-");
        names.iter().any(|name| name.as_str() == dashed)
    }
}

fn remove_matching(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        headers.remove(name);
    }
}

/// Whether there is no transfer coding, or only `chunked`. Other codings are not decoded here, and
/// without their field the encoded bytes would be taken for plain ones (RFC 9112 section 6.1).
pub fn has_supported_transfer_codings(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// The members of a field whose value is a list (RFC 9110 section 5.6.1), of all its lines. Lines
/// that are not ASCII have none.
pub fn list_members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether the end of an answer differs from a broken connection. It does not if the body ends with
/// the connection (RFC 9112 section 6.3, last rule) or after a change of protocols.
pub fn has_explicit_end<B: Body>(answer: &Response<B>, method: &Method) -> bool {
    let (status, headers, body) = (answer.status(), answer.headers(), answer.body());
    let bodiless = method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream();
    let framed = headers.contains_key(TRANSFER_ENCODING) || body.size_hint().exact().is_some();
    !status.is_informational() && has_supported_transfer_codings(headers) && (bodiless || framed)
}

fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    list_members(headers, &CONNECTION)
        // Most messages name only this field, which is removed in any case.
        .filter(|name| !name.eq_ignore_ascii_case("keep-alive"))
        .filter_map(|name| name.parse().ok())
        // Removing a field that frames the message would change where its body ends.
        .filter(|name| *name != CONTENT_LENGTH)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_connection_and_those_it_names_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Private"),
            ("connection", "content-length"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer secret"),
            ("content-length", "3"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "content-length"]);
    }

    #[test]
    fn lookalikes_of_decisive_fields_are_removed_and_no_others() {
        let mut headers = HeaderMap::new();
        for name in [
            "content_length",
            "content-length",
            "transfer_encoding",
            "proxy_connection",
            "host",
            "x_original-url",
            "x_request_id",
        ] {
            headers.insert(HeaderName::from_static(name), "1".parse().unwrap());
        }
        remove_hop_by_hop(&mut headers);
        remove_fields(&mut headers, &[HeaderName::from_static("x-original-url")]);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "x_request_id"]);
    }

    #[test]
    fn a_list_may_have_several_lines() {
        let mut headers = HeaderMap::new();
        for value in ["a , b", "\u{e9}, c", "d"] {
            headers.append(CONNECTION, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers.append("upgrade", "other".parse().unwrap());
        let members: Vec<&str> = list_members(&headers, &CONNECTION).collect();
        assert_eq!(members, ["a", "b", "d"]);
    }

    #[test]
    fn a_message_with_two_lengths_keeps_none() {
        let mut headers = HeaderMap::new();
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
        remove_hop_by_hop(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn only_chunked_is_undone() {
        let undone = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRANSFER_ENCODING, value.parse().unwrap());
            }
            has_supported_transfer_codings(&headers)
        };
        assert!(undone(&[]) && undone(&["chunked"]) && undone(&["Chunked "]));
        for other in [&["gzip"][..], &["gzip, chunked"], &["xchunked"], &["gzip", "chunked"]] {
            assert!(!undone(other), "{other:?}");
        }
    }
}

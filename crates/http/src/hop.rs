//! Header fields that speak of one connection only (RFC 9110 section 7.6.1).

use http::{
    HeaderMap, HeaderName, Method, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body;

const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    // hyper answers `100 Continue` itself, as soon as the body is asked for.
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
];

/// Removes the fields that must not be forwarded, and every field that `Connection` names.
///
/// A message with both `Transfer-Encoding` and `Content-Length` loses the latter: two lengths are
/// how one request is smuggled inside another (RFC 9112 section 6.1).
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    if headers.contains_key(CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Whether the only transfer coding is `chunked`, or there is none. No other coding is decoded
/// here, and without its field the coded bytes would pass for plain ones (RFC 9112 section 6.1).
pub fn has_known_codings(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Whether a request would become a WebSocket (RFC 6455 section 4.2.1), which no proxy here carries.
///
/// Other upgrades may be left unanswered (RFC 9110 section 7.8); a WebSocket's client would take
/// the answer to its plain GET for something else.
pub fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let values = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// Whether the end of an answer can be told from the death of its sender. It cannot where the body
/// ends with the connection (RFC 9112 section 6.3, last rule), nor after a change of protocols.
pub fn has_marked_end<B: Body>(answer: &Response<B>, method: &Method) -> bool {
    let (status, headers, body) = (answer.status(), answer.headers(), answer.body());
    let bodiless = method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream();
    let framed = headers.contains_key(TRANSFER_ENCODING) || body.size_hint().exact().is_some();
    !status.is_informational() && has_known_codings(headers) && (bodiless || framed)
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // Naming a field that frames the message would change where its body ends.
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
    fn a_message_with_two_lengths_keeps_none() {
        let mut headers = HeaderMap::new();
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
        remove_hop_by_hop(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn an_upgrade_to_websocket_is_told_from_others() {
        for (value, wanted) in [("websocket", true), ("h2c, WebSocket", true), ("h2c", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(UPGRADE, value.parse().unwrap());
            assert_eq!(asks_for_websocket(&headers), wanted, "{value}");
        }
        assert!(!asks_for_websocket(&HeaderMap::new()));
    }

    #[test]
    fn only_chunked_is_undone() {
        let undone = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRANSFER_ENCODING, value.parse().unwrap());
            }
            has_known_codings(&headers)
        };
        assert!(undone(&[]) && undone(&["chunked"]) && undone(&["Chunked "]));
        for other in [&["gzip"][..], &["gzip, chunked"], &["xchunked"], &["gzip", "chunked"]] {
            assert!(!undone(other), "{other:?}");
        }
    }
}

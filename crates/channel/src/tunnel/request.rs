//! The one HTTP request that a proxy understands.

use percent_encoding::percent_decode_str;

use super::{
    allow,
    origin::{AllowedOrigins, RequestSource},
    websocket::PATH,
};
use crate::error::TunnelError;

/// The longest request head in bytes. This crate's own take under 300; browsers send more.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The largest number of header fields that are read; browsers send about 15.
const HEADERS_MAX: usize = 48;

/// A request `GET /tunnel?target=HOST:PORT` with a WebSocket upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelRequest {
    /// The target as `HOST:PORT`, in the form in which targets are compared.
    pub target: String,
    /// The value of `Sec-WebSocket-Key`.
    pub key: String,
}

impl TunnelRequest {
    /// Reads a request head up to and including its empty line; `None` if it is not complete yet.
    /// Returns the request and the head's length in bytes. A web page's request is one only if
    /// `origins` has the page's origin.
    ///
    /// # Errors
    /// [`TunnelError::HeadLength`] over [`HEAD_BYTES_MAX`], [`TunnelError::Request`] with its HTTP
    /// status for any other request.
    pub fn parse(
        bytes: &[u8],
        origins: &AllowedOrigins,
    ) -> Result<Option<(Self, usize)>, TunnelError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let len = match request.parse(bytes) {
            Ok(httparse::Status::Complete(len)) if len <= HEAD_BYTES_MAX => len,
            Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return Ok(None),
            Ok(_) => return Err(TunnelError::HeadLength { wanted: HEAD_BYTES_MAX }),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(request_error(431, "it has over 48 header fields"));
            }
            Err(_) => return Err(request_error(400, "it is not an HTTP/1.1 request")),
        };
        if request.version != Some(1) {
            return Err(request_error(400, "it is not an HTTP/1.1 request"));
        }
        let values = |name| field_values(request.headers, name);
        let source = origins.classify_source(values("origin"), values("sec-fetch-site"));
        if source == RequestSource::Page {
            return Err(request_error(403, "it comes from a web page whose origin is not allowed"));
        }
        if request.method != Some("GET") {
            return Err(request_error(405, "its method is not GET"));
        }
        let target = parse_target(request.path.unwrap_or_default())?;
        let key = parse_upgrade_key(request.headers)?;
        Ok(Some((Self { target, key }, len)))
    }
}

fn parse_target(path: &str) -> Result<String, TunnelError> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if path != PATH {
        return Err(request_error(404, "its path is not /tunnel"));
    }
    let mut targets = query.split('&').filter_map(|pair| pair.strip_prefix("target="));
    let (Some(target), None) = (targets.next(), targets.next()) else {
        return Err(request_error(400, "it must name exactly one target"));
    };
    let target = percent_decode_str(target).decode_utf8();
    allow::normalise_target(&target.map_err(|_| request_error(400, "its target is not UTF-8"))?)
}

fn field_values<'h>(
    headers: &'h [httparse::Header<'h>],
    name: &str,
) -> impl Iterator<Item = &'h [u8]> {
    headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

fn parse_upgrade_key(headers: &[httparse::Header<'_>]) -> Result<String, TunnelError> {
    let field = |name: &str| {
        let mut found = field_values(headers, name);
        match (found.next(), found.next()) {
            (Some(value), None) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    };
    let holds = |name: &str, wanted: &str| {
        field(name).is_some_and(|value| {
            value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted))
        })
    };
    if !holds("connection", "upgrade") || !holds("upgrade", "websocket") {
        return Err(request_error(426, "it is not a WebSocket upgrade"));
    }
    if field("sec-websocket-version") != Some("13") {
        return Err(request_error(426, "its WebSocket version is not 13"));
    }
    // 16 bytes in base64 (RFC 6455 section 4.1).
    let key = field("sec-websocket-key").filter(|key| key.len() == 24);
    key.map(str::to_owned).ok_or(request_error(400, "its WebSocket key is not 24 characters"))
}

fn request_error(status: u16, reason: &'static str) -> TunnelError {
    TunnelError::Request { status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "Host: p\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    fn parse(line: &str) -> Result<Option<(TunnelRequest, usize)>, TunnelError> {
        parse_for(&[], line)
    }

    fn parse_for(
        origins: &[&str],
        line: &str,
    ) -> Result<Option<(TunnelRequest, usize)>, TunnelError> {
        let origins = AllowedOrigins::new(origins).unwrap();
        TunnelRequest::parse(format!("{line}\r\n{REST}").as_bytes(), &origins)
    }

    #[test]
    fn a_request_is_read_with_its_target_decoded() {
        for target in ["h.example%3A443", "H.example:443"] {
            let (request, len) =
                parse(&format!("GET /tunnel?target={target} HTTP/1.1")).unwrap().unwrap();
            assert_eq!(request.target, "h.example:443");
            assert!(len > REST.len());
        }
    }

    #[test]
    fn a_partial_request_is_not_yet_one() {
        let whole = format!("GET /tunnel?target=h:1 HTTP/1.1\r\n{REST}");
        for len in 0..whole.len() {
            assert!(matches!(
                TunnelRequest::parse(&whole.as_bytes()[..len], &AllowedOrigins::default()),
                Ok(None)
            ));
        }
    }

    #[test]
    fn other_requests_are_refused_with_their_status() {
        let status = |line: &str| match parse(line) {
            Err(TunnelError::Request { status, .. }) => status,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(status("POST /tunnel?target=h:1 HTTP/1.1"), 405);
        assert_eq!(status("GET /?target=h:1 HTTP/1.1"), 404);
        assert_eq!(status("GET /tunnel HTTP/1.1"), 400);
        assert_eq!(status("GET /tunnel?target=h:1&target=h:2 HTTP/1.1"), 400);
        assert_eq!(status("nonsense"), 400);
        let target = parse("GET /tunnel?target=h%0d%0a:1 HTTP/1.1");
        assert!(matches!(target, Err(TunnelError::Target { .. })));
        assert_eq!(status("GET /tunnel?target=h:1 HTTP/1.0"), 400);
        let many = "X: 1\r\n".repeat(HEADERS_MAX);
        assert_eq!(status(&format!("GET /tunnel?target=h:1 HTTP/1.1\r\n{many}X: 1")), 431);
        let bare = b"GET /tunnel?target=h:1 HTTP/1.1\r\nHost: p\r\n\r\n";
        let bare = TunnelRequest::parse(bare, &AllowedOrigins::default());
        assert!(matches!(bare, Err(TunnelError::Request { status: 426, .. })));
    }

    #[test]
    fn a_web_page_is_refused_unless_its_origin_is_allowed() {
        let with = |allowed: &[&str], fields: &str| {
            parse_for(allowed, &format!("GET /tunnel?target=h:1 HTTP/1.1\r\n{fields}"))
        };
        let refused = |parsed| matches!(parsed, Err(TunnelError::Request { status: 403, .. }));
        // Also one of the proxy's own host: a page may have pointed its name at this address.
        for origin in ["http://evil.example", "null", "http://p"] {
            assert!(refused(with(&[], &format!("Origin: {origin}"))), "{origin}");
        }
        let allowed = &["https://chat.example"];
        for fields in [
            "Origin: https://chat.example",
            "ORIGIN:https://chat.example \r\nSec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: none",
        ] {
            assert!(matches!(with(allowed, fields), Ok(Some(_))), "{fields}");
        }
        for fields in [
            "Origin: https://chat.example.evil",
            "Origin: https://chat.example\r\nOrigin: https://chat.example",
            "Origin: https://chat.example\r\norigin: null",
            "Sec-Fetch-Site: same-origin",
        ] {
            assert!(refused(with(allowed, fields)), "{fields}");
        }
    }

    #[test]
    fn an_endless_head_is_refused() {
        let mut head = b"GET /tunnel?target=h:1 HTTP/1.1\r\nX: ".to_vec();
        head.resize(HEAD_BYTES_MAX + 1, b'a');
        assert!(matches!(
            TunnelRequest::parse(&head, &AllowedOrigins::default()),
            Err(TunnelError::HeadLength { .. })
        ));
    }
}

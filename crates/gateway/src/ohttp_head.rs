//! The head of the request inside of an encapsulated one: only what an ordinary request to this
//! gateway could say.

use confide_encrypted_body::{ControlData, MessageField, MessageHead};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header, request,
    uri::PathAndQuery,
};

use crate::{
    encrypted_body_fault::EncryptedBodyFault, encrypted_request::KEY_FIELD, path::PathFault,
    refusal::RequestRefusal, sealed_answer::BODY_END_FIELD,
};

/// Fields of a connection, which a binary message does not have (RFC 9292 section 3.6), those that
/// would change the protocol, and those of the other form of encryption.
const REFUSED: [HeaderName; 9] = [
    header::CONNECTION,
    header::UPGRADE,
    header::TRANSFER_ENCODING,
    header::TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    KEY_FIELD,
    BODY_END_FIELD,
];

/// The head of the inner request. `host` is the `Host` of the outer one: both have to name the same.
pub(crate) fn read_inner_head(
    head: MessageHead,
    host: Option<&HeaderValue>,
) -> Result<request::Parts, RequestRefusal> {
    let invalid = || RequestRefusal::from(EncryptedBodyFault::InnerRequest);
    let ControlData::Request { method, scheme, authority, path } = head.control else {
        return Err(invalid());
    };
    let method = Method::from_bytes(&method).map_err(|_| invalid())?;
    let is_here = |name: &[u8]| host.is_some_and(|host| name.eq_ignore_ascii_case(host.as_bytes()));
    if !scheme.eq_ignore_ascii_case(b"https") || !(authority.is_empty() || is_here(&authority)) {
        return Err(invalid());
    }
    if !path.starts_with(b"/") {
        return Err(RequestRefusal::Target(PathFault::NoPath));
    }
    let path = PathAndQuery::try_from(&path[..]);
    let path = path.map_err(|_| RequestRefusal::Target(PathFault::UnencodedCharacter))?;
    let mut fields = read_fields(&head.fields).ok_or_else(invalid)?;
    if fields.get_all(header::HOST).iter().any(|name| !is_here(name.as_bytes()))
        || REFUSED.iter().any(|name| fields.contains_key(name))
    {
        return Err(invalid());
    }
    // The message has its own end, and the text no coding of its own.
    for name in [header::CONTENT_LENGTH, header::TRAILER, header::EXPECT, header::HOST] {
        fields.remove(name);
    }
    fields.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(host) = host {
        fields.insert(header::HOST, host.clone());
    }
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = fields;
    Ok(request.into_parts().0)
}

/// The fields, whose names are in lower case; `None` if one of them is malformed.
fn read_fields(fields: &[MessageField]) -> Option<HeaderMap> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for MessageField { name, value } in fields {
        if name.iter().any(u8::is_ascii_uppercase) || value.trim_ascii() != value {
            return None;
        }
        let name = HeaderName::from_bytes(name).ok()?;
        map.try_append(name, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &str, authority: &str, fields: &[(&str, &str)]) -> MessageHead {
        let field = |(name, value): &(&str, &str)| MessageField {
            name: name.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        let control = ControlData::Request {
            method: b"POST".to_vec(),
            scheme: b"https".to_vec(),
            authority: authority.as_bytes().to_vec(),
            path: path.as_bytes().to_vec(),
        };
        MessageHead { control, fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn the_inner_head_is_that_of_an_ordinary_request() {
        let host = HeaderValue::from_static("gateway.example:8443");
        let fields = [("authorization", "Bearer k"), ("content-length", "7"), ("cookie", "a=1")];
        for (authority, more) in
            [("", None), ("Gateway.example:8443", Some(("host", "gateway.example:8443")))]
        {
            let fields: Vec<_> = fields.into_iter().chain(more).collect();
            let head = read_inner_head(message("/v1/models?a=b", authority, &fields), Some(&host));
            let head = head.ok().expect("an ordinary request");
            assert_eq!((head.method, head.version), (Method::POST, Version::HTTP_11));
            assert_eq!(head.uri, "/v1/models?a=b");
            assert_eq!(head.headers[header::HOST], host);
            assert_eq!(head.headers[header::AUTHORIZATION], "Bearer k");
            assert_eq!(head.headers[header::ACCEPT_ENCODING], "identity");
            assert!(!head.headers.contains_key(header::CONTENT_LENGTH));
        }
    }

    #[test]
    fn what_an_ordinary_request_could_not_say_is_refused() {
        let host = HeaderValue::from_static("gateway.example");
        let read = |message| read_inner_head(message, Some(&host)).expect_err("a refusal");
        for (path, authority, fields) in [
            ("/v1", "other.example", &[][..]),
            ("/v1", "gateway.example:443", &[]),
            ("/v1", "", &[("host", "other.example")]),
            ("/v1", "", &[("upgrade", "websocket")]),
            ("/v1", "", &[("connection", "upgrade")]),
            ("/v1", "", &[("transfer-encoding", "chunked")]),
            ("/v1", "", &[("te", "trailers")]),
            ("/v1", "", &[("ehbp-encapsulated-key", "00")]),
            ("/v1", "", &[(":path", "/v2")]),
            ("/v1", "", &[("Accept", "a")]),
            ("/v1", "", &[("a b", "c")]),
            ("/v1", "", &[("a", "b\r\nc: d")]),
            ("/v1", "", &[("a", " b")]),
        ] {
            let refusal = read(message(path, authority, fields));
            let wanted = EncryptedBodyFault::InnerRequest;
            assert!(
                matches!(refusal, RequestRefusal::EncryptedBody(fault) if fault == wanted),
                "{path} {authority} {fields:?}"
            );
        }
        for path in ["", "*", "v1", "https://gateway.example/v1", "/v1 x", "/v1\r\n"] {
            let refusal = read(message(path, "", &[]));
            assert!(matches!(refusal, RequestRefusal::Target(_)), "{path}");
        }
        for scheme in ["http", "", "wss"] {
            let mut other = message("/v1", "", &[]);
            if let ControlData::Request { scheme: of_message, .. } = &mut other.control {
                *of_message = scheme.as_bytes().to_vec();
            }
            assert!(matches!(read(other), RequestRefusal::EncryptedBody(_)), "{scheme}");
        }
    }
}

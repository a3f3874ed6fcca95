//! A client's request to a notary: one request to one host.
//!
//! On the wire (`docs/notary.md`, "The request"): the length of the head as big-endian u32, the
//! head as JSON, then the body. The input is untrusted.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    limits::{
        FIELD_NAME_BYTES_MAX, FIELD_VALUE_BYTES_MAX, REQUEST_BYTES_CEILING, REQUEST_FIELDS_MAX,
        REQUEST_HEAD_BYTES_MAX, URL_BYTES_MAX,
    },
    request_error::{RequestError, VERSION},
    target::FetchTarget,
};

/// One checked request, which can be sent without changes.
#[derive(Clone, PartialEq, Eq)]
pub struct FetchRequest {
    method: Method,
    target: FetchTarget,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    key: [u8; 32],
}

/// The JSON of the head.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestHead<Fields> {
    version: u32,
    method: String,
    url: String,
    headers: Fields,
    key: String,
}

impl FetchRequest {
    /// A request whose statement is to be signed with the key whose SHA-256 (of the DER
    /// SubjectPublicKeyInfo) is `key`. Names of `fields` are in lower case, each at most once.
    ///
    /// # Errors
    /// [`RequestError`] if a part is not valid.
    pub fn new(
        method: &str,
        url: &str,
        fields: Vec<(String, String)>,
        body: Vec<u8>,
        key: [u8; 32],
    ) -> Result<Self, RequestError> {
        let target = FetchTarget::parse(url)?;
        check_fields(&fields)?;
        check_length("body", body.len(), REQUEST_BYTES_CEILING)?;
        let method = match method {
            "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            "OPTIONS" => Method::OPTIONS,
            _ => return Err(RequestError::Method),
        };
        if !has_body(&method) && !body.is_empty() {
            return Err(RequestError::Body { method, got: body.len() });
        }
        Ok(Self { method, target, fields, body, key })
    }

    /// Decodes a request and checks it.
    ///
    /// # Errors
    /// [`RequestError`] if the bytes are malformed, or a part is not valid.
    pub fn decode(bytes: &[u8]) -> Result<Self, RequestError> {
        let truncated = |wanted| RequestError::Truncated { wanted, got: bytes.len() };
        let (length, rest) = bytes.split_first_chunk().ok_or_else(|| truncated(4))?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        check_length("head", length, REQUEST_HEAD_BYTES_MAX)?;
        let (head, body) = rest.split_at_checked(length).ok_or_else(|| truncated(4 + length))?;
        let head: RequestHead<Vec<(String, String)>> =
            serde_json::from_slice(head).map_err(|error| {
                // Only the position: the text of the parser may quote a secret.
                let (line, column) = (error.line(), error.column());
                RequestError::Malformed { reason: format!("line {line}, column {column}") }
            })?;
        if head.version != VERSION {
            return Err(RequestError::Version { got: head.version });
        }
        let lower = head.key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut key = [0; 32];
        if !lower || hex::decode_to_slice(&head.key, &mut key).is_err() {
            return Err(RequestError::Key);
        }
        Self::new(&head.method, &head.url, head.headers, body.to_vec(), key)
    }

    /// Encodes the request for [`FetchRequest::decode`].
    ///
    /// # Errors
    /// [`RequestError`] if the fields are too long together.
    pub fn encode(&self) -> Result<Vec<u8>, RequestError> {
        let head = RequestHead {
            version: VERSION,
            method: self.method.as_str().into(),
            url: self.target.to_string(),
            headers: &self.fields,
            key: hex::encode(self.key),
        };
        let head = serde_json::to_vec(&head)
            .map_err(|error| RequestError::Unwritable { reason: error.to_string() })?;
        let head = Zeroizing::new(head);
        check_length("head", head.len(), REQUEST_HEAD_BYTES_MAX)?;
        let length = (head.len() as u32).to_be_bytes();
        Ok([&length[..], &head, &self.body].concat())
    }

    /// Returns the same request, whose statement is to be signed with another key.
    pub fn with_signing_key(mut self, key: [u8; 32]) -> Self {
        self.key = key;
        self
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The host, port and path.
    pub fn target(&self) -> &FetchTarget {
        &self.target
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// SHA-256 of the DER SubjectPublicKeyInfo of the key that the client has verified.
    pub fn signing_key_hash(&self) -> &[u8; 32] {
        &self.key
    }

    /// All fields in the order in which they are sent: `host`, the client's, then `content-length`
    /// if the method allows a body.
    pub fn sent_fields(&self) -> Vec<(&str, String)> {
        let mut fields = vec![("host", self.target.authority())];
        fields.extend(self.fields.iter().map(|(name, value)| (name.as_str(), value.clone())));
        if has_body(&self.method) {
            fields.push(("content-length", self.body.len().to_string()));
        }
        fields
    }

    /// Encodes the request for the transcript: the message in the form of HTTP/1.1, for every
    /// version (`docs/notary.md`, "The transcript").
    pub fn transcript_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target.path()).into_bytes();
        for (name, mut value) in self.sent_fields() {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            value.zeroize();
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Converts the fields to a header map, whose values are marked as sensitive.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, RequestError> {
        let mut map = HeaderMap::new();
        for (index, (name, value)) in self.sent_fields().into_iter().enumerate() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let (Ok(name), Ok(mut value)) = (name, HeaderValue::try_from(value)) else {
                return Err(RequestError::Field { index, wanted: "a valid name and value" });
            };
            value.set_sensitive(true);
            map.append(name, value);
        }
        Ok(map)
    }
}

/// Fields and bodies hold secrets of the client.
impl Drop for FetchRequest {
    fn drop(&mut self) {
        self.body.zeroize();
        for (_, value) in &mut self.fields {
            value.zeroize();
        }
    }
}

/// Omits values and the path, which may be secrets.
impl std::fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchRequest")
            .field("method", &self.method)
            .field("host", &self.target.host())
            .field("fields", &self.fields.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Fields that concern one connection, frame a message or name the host. The notary adds those that
/// are needed; a client that could set them could smuggle a second request.
const RESERVED_FIELDS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn check_fields(fields: &[(String, String)]) -> Result<(), RequestError> {
    check_length("list of fields", fields.len(), REQUEST_FIELDS_MAX)?;
    for (index, (name, value)) in fields.iter().enumerate() {
        let wrong = |wanted| Err(RequestError::Field { index, wanted });
        check_length("name of a field", name.len(), FIELD_NAME_BYTES_MAX)?;
        check_length("value of a field", value.len(), FIELD_VALUE_BYTES_MAX)?;
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if !is_lower || HeaderName::from_bytes(name.as_bytes()).is_err() {
            return wrong("a name of RFC 9110 section 5.1, in lower case");
        }
        if RESERVED_FIELDS.contains(&name.as_str()) {
            return wrong(
                "a name other than host and those that frame the message or its connection",
            );
        }
        if value != value.trim() || !value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
            return wrong("a value of visible ASCII without spaces at its ends");
        }
        if fields[..index].iter().any(|(other, _)| other == name) {
            return wrong("each name at most once");
        }
    }
    Ok(())
}

fn check_length(part: &'static str, got: usize, wanted: usize) -> Result<(), RequestError> {
    if got > wanted { Err(RequestError::TooLong { part, wanted, got }) } else { Ok(()) }
}

// A head has room for the longest URL and one field of the largest size.
const _: () = assert!(URL_BYTES_MAX + FIELD_VALUE_BYTES_MAX < REQUEST_HEAD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&str, &str)]) -> Result<FetchRequest, RequestError> {
        let own = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        FetchRequest::new("POST", "https://h:8443/v1?q", own, b"{}".to_vec(), [7; 32])
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let sent = request(&[("authorization", "Bearer s"), ("accept", "*/*")]).unwrap();
        assert_eq!(FetchRequest::decode(&sent.encode().unwrap()), Ok(sent.clone()));
        assert_eq!(
            String::from_utf8(sent.transcript_bytes()).unwrap(),
            "POST /v1?q HTTP/1.1\r\nhost: h:8443\r\nauthorization: Bearer s\r\naccept: */*\r\n\
             content-length: 2\r\n\r\n{}"
        );
        assert!(!format!("{sent:?}").contains("Bearer"));
    }

    #[test]
    fn fields_that_would_make_another_message_are_refused() {
        for (name, value) in [
            ("host", "other"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("Accept", "*/*"),
            ("a b", "x"),
            ("", "x"),
            (":authority", "other"),
            ("x", "a\r\nhost: other"),
            ("x", "a\nb"),
            ("x", "a\0b"),
            ("x", " a"),
            ("x", "caf\u{e9}"),
        ] {
            let refused = request(&[(name, value)]).unwrap_err();
            assert!(matches!(refused, RequestError::Field { index: 0, .. }), "{name}: {refused}");
        }
        let twice = request(&[("a", "1"), ("a", "2")]).unwrap_err();
        assert!(matches!(twice, RequestError::Field { index: 1, .. }));
    }

    #[test]
    fn methods_and_lengths_have_bounds() {
        let new = |method: &str, body: usize| {
            FetchRequest::new(method, "https://h/", Vec::new(), vec![0; body], [0; 32])
        };
        for method in ["CONNECT", "TRACE", "get", "", "GET /x"] {
            assert_eq!(new(method, 0), Err(RequestError::Method), "{method}");
        }
        assert!(matches!(new("GET", 1), Err(RequestError::Body { got: 1, .. })));
        assert!(matches!(new("PUT", REQUEST_BYTES_CEILING + 1), Err(RequestError::TooLong { .. })));
        let long = (0..5).map(|n| (format!("x-{n}"), "v".repeat(FIELD_VALUE_BYTES_MAX))).collect();
        let long = FetchRequest::new("GET", "https://h/", long, Vec::new(), [0; 32]).unwrap();
        assert!(matches!(long.encode(), Err(RequestError::TooLong { part: "head", .. })));
        let many = (0..=REQUEST_FIELDS_MAX).map(|n| (format!("x-{n}"), String::new())).collect();
        let many = FetchRequest::new("GET", "https://h/", many, Vec::new(), [0; 32]);
        assert!(matches!(many, Err(RequestError::TooLong { part: "list of fields", .. })));
    }

    #[test]
    fn bytes_that_are_no_request_are_refused() {
        let good = request(&[]).unwrap().encode().unwrap();
        let head = |json: &str| [&(json.len() as u32).to_be_bytes()[..], json.as_bytes()].concat();
        let decode = |bytes: &[u8]| FetchRequest::decode(bytes).unwrap_err();
        assert!(matches!(decode(&good[..3]), RequestError::Truncated { .. }));
        assert!(matches!(decode(&good[..20]), RequestError::Truncated { .. }));
        assert!(matches!(decode(&[0xff; 8]), RequestError::TooLong { .. }));
        assert!(matches!(decode(&head("{}")), RequestError::Malformed { .. }));
        let key = "0".repeat(64);
        let of = |version: u32, more: &str, key: &str| {
            head(&format!(
                r#"{{"version":{version},"method":"GET","url":"https://h/","headers":[],"key":"{key}"{more}}}"#
            ))
        };
        assert!(FetchRequest::decode(&of(1, "", &key)).is_ok());
        assert!(matches!(decode(&of(2, "", &key)), RequestError::Version { got: 2 }));
        assert!(matches!(decode(&of(1, ",\"x\":1", &key)), RequestError::Malformed { .. }));
        assert!(matches!(decode(&of(1, ",\"key\":\"\"", &key)), RequestError::Malformed { .. }));
        assert_eq!(decode(&of(1, "", "00")), RequestError::Key);
        assert_eq!(decode(&of(1, "", &"A".repeat(64))), RequestError::Key);
    }
}

//! A parsed HTTP message and its fields.

use crate::{
    events::{EventsError, assemble_stream},
    field::{Field, FieldKind, PATH_BYTES_MAX},
    json::{Json, JsonError},
    statement::BodyView,
};
use confide_transcript::Direction;

/// The greatest number of header fields in a message.
pub const HEADERS_MAX: usize = 256;

/// A message as the notary parsed it, without its content and transfer codings.
#[derive(Clone, Debug)]
pub struct HttpMessage {
    /// The start line, or the pseudo-header fields of HTTP/2.
    pub start: StartLine,
    /// The header fields: names in lower case with their values, in the order of the message.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, decoded.
    pub body: Vec<u8>,
}

/// The start line of a message (RFC 9112 section 2.1), or the pseudo-header fields of HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartLine {
    /// The start line of a request.
    Request {
        /// The method: `GET`, `POST`, …
        method: String,
        /// The request target: path and query.
        target: String,
    },
    /// The start line of a response.
    Response {
        /// The status code, 100 to 999.
        status: u16,
    },
}

/// The reason why a message has no fields at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message has too many header fields.
    #[error("message has {got} header fields, wanted at most {limit}")]
    Headers {
        /// The greatest number of header fields, [`HEADERS_MAX`].
        limit: usize,
        /// The number of header fields in the message.
        got: usize,
    },
    /// A header's name is too long or not in lower case.
    #[error("message has a header field whose name is not a short token in lower case")]
    HeaderName,
}

impl HttpMessage {
    /// The direction of the message.
    pub fn direction(&self) -> Direction {
        match self.start {
            StartLine::Request { .. } => Direction::Request,
            StartLine::Response { .. } => Direction::Response,
        }
    }

    /// Parses the fields of head and body, and returns them with the view of the body.
    ///
    /// A body that cannot be parsed strictly has no fields; those of the head are returned anyway.
    ///
    /// # Errors
    ///
    /// [`MessageError::Headers`] for more than [`HEADERS_MAX`] header fields;
    /// [`MessageError::HeaderName`] if a name is too long or not a token in lower case.
    pub fn parse_fields(&self) -> Result<(Vec<Field>, BodyView), MessageError> {
        let mut fields = self.head_fields()?;
        let view = match self.body_fields() {
            Ok((body, view)) => {
                fields.extend(body);
                view
            }
            Err(view) => view,
        };
        Ok((fields, view))
    }

    fn head_fields(&self) -> Result<Vec<Field>, MessageError> {
        let direction = self.direction().as_str();
        let part = |name: &str, kind, value: &[u8]| Field {
            path: format!("{direction}.{name}"),
            kind,
            value: value.to_vec(),
        };
        let mut fields = match &self.start {
            StartLine::Request { method, target } => vec![
                part("method", FieldKind::String, method.as_bytes()),
                part("target", FieldKind::String, target.as_bytes()),
            ],
            StartLine::Response { status } => {
                vec![part("status", FieldKind::Number, status.to_string().as_bytes())]
            }
        };
        if self.headers.len() > HEADERS_MAX {
            let (limit, got) = (HEADERS_MAX, self.headers.len());
            return Err(MessageError::Headers { limit, got });
        }
        for (place, (name, value)) in self.headers.iter().enumerate() {
            if !is_header_name(name) {
                return Err(MessageError::HeaderName);
            }
            let same = |(other, _): &&(String, Vec<u8>)| other == name;
            let (before, all) = (
                self.headers[..place].iter().filter(same).count(),
                self.headers.iter().filter(same).count(),
            );
            let path = match all {
                1 => format!("header:{name}"),
                _ => format!("header:{name}[{before}]"),
            };
            let kind = match std::str::from_utf8(value) {
                Ok(_) => FieldKind::String,
                Err(_) => FieldKind::Octets,
            };
            fields.push(part(&path, kind, value));
        }
        Ok(fields)
    }

    fn body_fields(&self) -> Result<(Vec<Field>, BodyView), BodyView> {
        if self.body.is_empty() {
            return Err(BodyView::None);
        }
        let (json, view) = match self.media_type().as_deref() {
            Some("text/event-stream") => {
                let assembled = assemble_stream(&self.body).map_err(|error| match error {
                    EventsError::Json { source, .. } => body_view_of_error(source),
                    EventsError::Encoding => BodyView::NotJson,
                    EventsError::Unknown { .. } => BodyView::UnknownEvents,
                    EventsError::Limit { .. } => BodyView::BeyondLimits,
                })?;
                let finished = assembled.finished;
                (
                    assembled.json,
                    if finished { BodyView::Events } else { BodyView::EventsUnfinished },
                )
            }
            Some(media) if media == "application/json" || media.ends_with("+json") => {
                (Json::parse(&self.body).map_err(body_view_of_error)?, BodyView::Json)
            }
            _ => return Err(BodyView::None),
        };
        document_fields(self.direction().as_str(), &json).map(|fields| (fields, view))
    }

    /// The media type without its parameters, if there is exactly one `content-type`.
    fn media_type(&self) -> Option<String> {
        let mut types = self.headers.iter().filter(|(name, _)| name == "content-type");
        let (Some((_, value)), None) = (types.next(), types.next()) else { return None };
        let text = std::str::from_utf8(value).ok()?;
        Some(text.split(';').next()?.trim().to_ascii_lowercase())
    }
}

fn is_header_name(name: &str) -> bool {
    let token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    (1..=256).contains(&name.len()) && name.bytes().all(token)
}

fn body_view_of_error(error: JsonError) -> BodyView {
    match error {
        JsonError::Grammar { .. } => BodyView::NotJson,
        JsonError::Duplicate { .. } => BodyView::DuplicateMember,
        JsonError::Depth { .. } | JsonError::Values { .. } | JsonError::Number { .. } => {
            BodyView::BeyondLimits
        }
    }
}

/// The fields of all values in a document, containers before their contents.
pub(crate) fn document_fields(direction: &str, json: &Json) -> Result<Vec<Field>, BodyView> {
    let mut fields = Vec::new();
    collect_fields(&mut format!("{direction}."), json, &mut fields)?;
    Ok(fields)
}

fn collect_fields(path: &mut String, json: &Json, fields: &mut Vec<Field>) -> Result<(), BodyView> {
    // An assembled stream may have more values than a single JSON text.
    if path.len() > PATH_BYTES_MAX || fields.len() == crate::json::JSON_VALUES_MAX {
        return Err(BodyView::BeyondLimits);
    }
    let (kind, value) = match json {
        Json::Null => (FieldKind::Null, Vec::new()),
        Json::Bool(value) => (FieldKind::Bool, value.to_string().into()),
        Json::Number(text) => (FieldKind::Number, text.as_bytes().to_vec()),
        Json::String(text) => (FieldKind::String, text.as_bytes().to_vec()),
        Json::Array(elements) => (FieldKind::Array, elements.len().to_string().into()),
        Json::Object(members) => (FieldKind::Object, encode_member_names(members)),
    };
    fields.push(Field { path: path.clone(), kind, value });
    let length = path.len();
    let mut below = |name: &str, value: &Json| {
        path.push('/');
        path.push_str(name);
        let walked = collect_fields(path, value, fields);
        path.truncate(length);
        walked
    };
    match json {
        Json::Array(elements) => {
            let mut elements = elements.iter().enumerate();
            elements.try_for_each(|(index, value)| below(&index.to_string(), value))
        }
        Json::Object(members) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            members.iter().try_for_each(|(name, value)| below(&escaped(name), value))
        }
        _ => Ok(()),
    }
}

fn encode_member_names(members: &[(String, Json)]) -> Vec<u8> {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let framed = |name: &str| [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
    names.into_iter().flat_map(framed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(media: &str, body: &str) -> HttpMessage {
        HttpMessage {
            start: StartLine::Response { status: 200 },
            headers: vec![
                ("content-type".into(), media.into()),
                ("set-cookie".into(), b"a=1".to_vec()),
                ("set-cookie".into(), b"b=2".to_vec()),
                ("x-raw".into(), vec![0xff]),
            ],
            body: body.as_bytes().to_vec(),
        }
    }

    fn value(fields: &[Field], path: &str) -> (FieldKind, Vec<u8>) {
        let mut found = fields.iter().filter(|field| field.path == path);
        let field = found.next().unwrap_or_else(|| panic!("{path} is no field"));
        assert!(found.next().is_none(), "{path} is there twice");
        (field.kind, field.value.clone())
    }

    #[test]
    fn head_and_body_have_fields_with_one_path_each() {
        let body = r#"{"a/b":{"c~d":[1e2,-0,"x",null,true,[],{}]},"":1}"#;
        let (fields, view) =
            response("Application/JSON; charset=utf-8", body).parse_fields().unwrap();
        assert_eq!(view, BodyView::Json);
        for (path, kind, wanted) in [
            ("response.status", FieldKind::Number, &b"200"[..]),
            ("response.header:set-cookie[1]", FieldKind::String, b"b=2"),
            ("response.header:x-raw", FieldKind::Octets, b"\xff"),
            ("response./a~1b/c~0d", FieldKind::Array, b"7"),
            ("response./a~1b/c~0d/0", FieldKind::Number, b"100"),
            ("response./a~1b/c~0d/1", FieldKind::Number, b"0"),
            ("response./a~1b/c~0d/3", FieldKind::Null, b""),
            ("response./a~1b/c~0d/4", FieldKind::Bool, b"true"),
            ("response./a~1b/c~0d/6", FieldKind::Object, b""),
            ("response./", FieldKind::Number, b"1"),
            ("response.", FieldKind::Object, b"\0\0\0\0\0\0\0\x03a/b"),
        ] {
            assert_eq!(value(&fields, path), (kind, wanted.to_vec()), "{path}");
        }
    }

    #[test]
    fn a_string_that_holds_json_is_a_string_and_no_field() {
        let body = r#"{"content":"{\"balance\":100}","balance":5,"note":"\"balance\":100"}"#;
        let (fields, _) = response("application/json", body).parse_fields().unwrap();
        assert_eq!(value(&fields, "response./balance"), (FieldKind::Number, b"5".to_vec()));
        assert!(!fields.iter().any(|field| field.path.contains("content/balance")));
        let balances = fields.iter().filter(|field| field.value == b"100").count();
        assert_eq!(balances, 0);
    }

    #[test]
    fn keys_that_look_like_paths_do_not_alias() {
        let body = r#"{"a":{"b":1},"a/b":2,"a~1b":3,"a~b":4}"#;
        let (fields, _) = response("application/json", body).parse_fields().unwrap();
        for (path, wanted) in [("a/b", "1"), ("a~1b", "2"), ("a~01b", "3"), ("a~0b", "4")] {
            let path = format!("response./{path}");
            assert_eq!(value(&fields, &path).1, wanted.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_body_that_is_not_read_says_why_and_has_no_fields() {
        let long = format!("{{\"{}\":1}}", "k".repeat(PATH_BYTES_MAX));
        for (media, body, wanted) in [
            ("application/json", "", BodyView::None),
            ("text/plain", "{}", BodyView::None),
            ("application/json", "{", BodyView::NotJson),
            ("application/problem+json", r#"{"a":1,"\u0061":2}"#, BodyView::DuplicateMember),
            ("application/json", &long, BodyView::BeyondLimits),
            ("text/event-stream", "data: {}\n\n", BodyView::UnknownEvents),
            ("text/event-stream", "data: {\"a\":1,\"a\":1}\n\n", BodyView::DuplicateMember),
        ] {
            let (fields, view) = response(media, body).parse_fields().unwrap();
            assert_eq!(view, wanted, "{body}");
            assert!(fields.iter().all(|field| !field.path.contains('/')));
        }
    }

    #[test]
    fn a_header_name_of_other_characters_is_refused() {
        for name in ["", "Accept", "a b", "a[0]", "a:b", "é"] {
            let mut message = response("text/plain", "");
            message.headers.push((name.into(), vec![]));
            assert_eq!(message.parse_fields().unwrap_err(), MessageError::HeaderName, "{name}");
        }
        let mut message = response("text/plain", "");
        message.headers = vec![("a".into(), vec![]); HEADERS_MAX + 1];
        assert!(matches!(message.parse_fields(), Err(MessageError::Headers { .. })));
    }
}

//! Heads of answers, as they are sent (RFC 9112 section 4).

use http::{HeaderMap, Method, StatusCode, Version, header};

use super::{request_head::encode_fields, write_queue::WriteQueue};

/// The framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFraming {
    /// There is no body, and no length is added: the answer to a HEAD, or one with a status that has
    /// no body.
    Bodiless,
    /// The body has this number of bytes.
    Length(u64),
    /// The body comes in chunks.
    Chunked,
}

impl AnswerFraming {
    /// The framing of a body with this number of bytes, or an unknown one.
    pub fn of_body(method: &Method, status: StatusCode, length: Option<u64>) -> Self {
        let is_bodiless = method == Method::HEAD
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match length {
            _ if is_bodiless => Self::Bodiless,
            Some(length) => Self::Length(length),
            None => Self::Chunked,
        }
    }
}

/// Queues the head of an answer. `more` are further lines, each with its end.
pub fn encode_answer_head(
    version: Version,
    status: StatusCode,
    fields: &HeaderMap,
    framing: AnswerFraming,
    more: &[&[u8]],
    queue: &mut WriteQueue,
) {
    queue.push(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    queue.push(status.as_str().as_bytes());
    queue.push(b" ");
    queue.push(status.canonical_reason().unwrap_or_default().as_bytes());
    queue.push(b"\r\n");
    encode_fields(fields, queue);
    match framing {
        AnswerFraming::Bodiless => {
            // Of a HEAD and a 304, it is the length that the body would have (RFC 9110 section 8.6).
            let length = fields.get(header::CONTENT_LENGTH);
            let has_length = !status.is_informational() && status != StatusCode::NO_CONTENT;
            if let Some(length) = length.filter(|_| has_length) {
                for part in [b"content-length: ", length.as_bytes(), b"\r\n"] {
                    queue.push(part);
                }
            }
        }
        AnswerFraming::Length(length) => {
            queue.push(format!("content-length: {length}\r\n").as_bytes());
        }
        AnswerFraming::Chunked => queue.push(b"transfer-encoding: chunked\r\n"),
    }
    for line in more {
        queue.push(line);
    }
    queue.push(b"\r\n");
}

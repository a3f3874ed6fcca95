//! Heads of requests, as they are sent (RFC 9112 section 3).

use http::{HeaderMap, Method, header};

use super::write_queue::WriteQueue;

/// Queues the head of a request whose body has `length` bytes, or comes in chunks.
///
/// Only `length` says how the body is framed: fields that would say so are left out. A request
/// without a body has no length, unless its method gives one a meaning (RFC 9110 section 8.6).
pub fn encode_request_head(
    method: &Method,
    target: &str,
    fields: &HeaderMap,
    length: Option<u64>,
    queue: &mut WriteQueue,
) {
    for part in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        queue.push(part.as_bytes());
    }
    encode_fields(fields, queue);
    let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    match length {
        None => queue.push(b"transfer-encoding: chunked\r\n"),
        Some(0) if !expects_body => {}
        Some(length) => queue.push(format!("content-length: {length}\r\n").as_bytes()),
    }
    queue.push(b"\r\n");
}

/// Queues one line for each field that does not frame a body.
pub(super) fn encode_fields(fields: &HeaderMap, queue: &mut WriteQueue) {
    for (name, value) in fields {
        if matches!(*name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING) {
            continue;
        }
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            queue.push(part);
        }
    }
}

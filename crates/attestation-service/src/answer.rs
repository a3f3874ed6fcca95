//! HTTP answers.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Body as _;
use serde_json::{Value, json};

use crate::error::RequestError;

/// The value of `Retry-After` in seconds, for callers that are refused because of load.
const RETRY_AFTER_S: u32 = 1;

/// An answer with a JSON document.
pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = text_answer("application/json", body.to_string());
    *response.status_mut() = status;
    // A result is valid for one caller and one nonce only.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

/// An answer with status 200 and a text of the media type.
pub(crate) fn text_answer(media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

/// Removes the body from the answer to a HEAD request and keeps its length in the head: hyper does
/// this only for HTTP/1.
pub(crate) fn remove_body(response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, Full::default())
}

/// An answer with an error.
pub(crate) fn error_answer(error: &RequestError) -> Response<Full<Bytes>> {
    let body = json!({ "error": { "code": error.code(), "message": error.to_string() } });
    let mut response = json_answer(error.status(), &body);
    if error.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
    }
    response
}

/// An answer with status 405 and the methods of the route (RFC 9110 section 15.5.6).
pub(crate) fn method_not_allowed_answer(methods: &[Method]) -> Response<Full<Bytes>> {
    let mut response = error_answer(&RequestError::NoMethod);
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if let Ok(names) = HeaderValue::from_str(&names.join(",")) {
        response.headers_mut().insert(header::ALLOW, names);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_method_names_those_of_the_route() {
        let response = method_not_allowed_answer(&[Method::GET, Method::HEAD]);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[header::ALLOW], "GET,HEAD");
    }

    #[test]
    fn an_answer_to_head_keeps_the_length_of_the_body_that_it_has_not() {
        let response = remove_body(json_answer(StatusCode::OK, &json!({ "a": 1 })));
        assert_eq!(response.headers()[header::CONTENT_LENGTH], "7");
        assert_eq!(response.body().size_hint().exact(), Some(0));
    }
}

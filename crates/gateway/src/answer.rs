//! Answers of the gateway itself, in the shapes that OpenAI clients read.

use bytes::Bytes;
use confide_encrypted_body::PROBLEM_TYPE;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{Either, Full};

use crate::{
    answer_stream::AnswerStream, body::LimitedBody, metered_body::MeteredBody,
    request_model::MODELS_PATH, server_group::ServerGroup, shaped_body::ShapedBody,
};

/// The body of an upstream's answer, or one that the gateway made itself.
pub(crate) type AnswerBody =
    MeteredBody<Either<ShapedBody<LimitedBody<AnswerStream>>, Full<Bytes>>>;

/// A complete JSON answer.
pub(crate) fn json_response(status: StatusCode, body: Bytes) -> Response<AnswerBody> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(MeteredBody::without_meter(Either::Right(Full::new(body))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length);
    response
}

/// An error response in OpenAI's format. `code` is for programs, `message` for people.
pub(crate) fn error_response(
    status: StatusCode,
    code: &str,
    message: &str,
) -> Response<AnswerBody> {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    error_response_of_type(status, kind, code, message)
}

/// An error response in OpenAI's format with a type of its own.
pub(crate) fn error_response_of_type(
    status: StatusCode,
    kind: &str,
    code: &str,
    message: &str,
) -> Response<AnswerBody> {
    let body = serde_json::json!({
        "error": { "message": message, "type": kind, "param": null, "code": code }
    });
    json_response(status, Bytes::from(body.to_string()))
}

/// A problem document (RFC 9457), for clients that act on its `type`.
pub(crate) fn problem_response(
    status: StatusCode,
    kind: &str,
    title: &str,
) -> Response<AnswerBody> {
    let body = serde_json::json!({ "type": kind, "title": title });
    let mut response = json_response(status, Bytes::from(body.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    response
}

/// OpenAI's list of models, with their names only.
fn model_list_response(models: &[&str]) -> Response<AnswerBody> {
    let entry = |id: &&str| serde_json::json!({ "id": id, "object": "model" });
    let models: Vec<_> = models.iter().map(entry).collect();
    let body = serde_json::json!({ "object": "list", "data": models });
    json_response(StatusCode::OK, Bytes::from(body.to_string()))
}

/// The gateway's own list of models, if all servers of the group list theirs.
pub(crate) fn list_own_models(
    group: &ServerGroup,
    method: &Method,
    path: &str,
) -> Option<Response<AnswerBody>> {
    let is_asked = path == MODELS_PATH && matches!(*method, Method::GET | Method::HEAD);
    if !is_asked || !group.lists_models() {
        return None;
    }
    group.complete_model_list().map(|list| model_list_response(&list))
}

//! Answers that tell a client that the gateway has another key.

use confide_encrypted_body::PROBLEM_TYPE;
use http::{HeaderValue, Response, StatusCode, header};

use crate::pool::AnswerBody;

/// Whether an answer says that the gateway has another key. Anybody in between can say so, which costs
/// one more report; so its text is not read.
pub(crate) fn is_key_problem(answer: &Response<AnswerBody>) -> bool {
    answer.status() == StatusCode::UNPROCESSABLE_ENTITY && has_type(answer, PROBLEM_TYPE)
}

/// Whether an answer says that it has a media type.
pub(crate) fn has_type(answer: &Response<AnswerBody>, wanted: &str) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(wanted.as_bytes()))
}

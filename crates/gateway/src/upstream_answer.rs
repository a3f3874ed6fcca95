//! The answer of a model server, as it is passed on.

use std::time::Duration;

use confide_http::{BodyPace, remove_hop_by_hop};
use http::{HeaderValue, Method, Response, Version, header};
use http_body_util::Either;
use tokio::time::Instant;

use crate::{
    answer::AnswerBody,
    answer_shape::AnswerShape,
    answer_stream::AnswerStream,
    body::LimitedBody,
    connection::OpenAnswer,
    fault::{UpstreamFailure, UpstreamFault},
    metered_body::MeteredBody,
    server_group::ServerPermit,
    shaped_body::{ShapedBody, shape_answer},
    trailers::{TrailerRule, announced_trailers},
};

/// What decides how an answer is passed on.
pub(crate) struct AnswerRules<'a> {
    /// The method of the request.
    pub(crate) method: &'a Method,
    pub(crate) trailers: TrailerRule,
    /// The longest pause in the answer's body.
    pub(crate) pause: Duration,
    pub(crate) shape: Option<&'a AnswerShape>,
    /// Whether the answer gets a receipt, which describes the server.
    pub(crate) has_receipt: bool,
}

impl AnswerRules<'_> {
    /// Checks the head of an answer, and prepares the answer.
    ///
    /// # Errors
    /// [`UpstreamFailure`] for an answer without an explicit end, or one that has to have a shape and
    /// cannot.
    pub(crate) fn pass_on(
        &self,
        response: Response<OpenAnswer>,
        permit: ServerPermit,
    ) -> Result<Response<AnswerBody>, UpstreamFailure> {
        let Self { method, trailers, pause, shape, has_receipt } = *self;
        if !OpenAnswer::has_explicit_end(&response, method) {
            let reason = format!("status {}", response.status());
            return Err(UpstreamFailure::new(UpstreamFault::Unframed, reason));
        }
        let (mut head, body) = response.into_parts();
        let location = head.headers.get(header::LOCATION);
        let path =
            location.and_then(|location| permit.pool().upstream().path_of_redirect(location));
        if has_receipt {
            permit.describe_server().note(&mut head);
        }
        let body = AnswerStream::new(body, permit, &head.headers);
        head.version = Version::HTTP_11;
        let announced = announced_trailers(&head.headers);
        remove_hop_by_hop(&mut head.headers);
        if let Some(names) = announced
            && trailers != TrailerRule::Drop
        {
            head.headers.insert(header::TRAILER, names);
        }
        if let Some(path) = path {
            head.headers.insert(header::LOCATION, path);
        }
        let body = LimitedBody::new(body, u64::MAX, BodyPace::without_rate(pause), trailers);
        let body = match shape {
            Some(shape) => shape_answer(shape, &mut head, method, body)?,
            None => ShapedBody::Unshaped(body),
        };
        Ok(Response::from_parts(head, MeteredBody::without_meter(Either::Left(body))))
    }
}

/// Waits until the head of an answer may leave. `arrived` is the time of its request, if answers have
/// a shape.
pub(crate) async fn hold_head(arrived: Option<Instant>, answer: &mut Response<AnswerBody>) {
    let Some(arrived) = arrived else { return };
    let Either::Left(body) = answer.body_mut().inner_mut() else { return };
    // Boxed, because other requests do not need the space.
    if let Some(length) = Box::pin(body.hold_head(arrived)).await {
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
}

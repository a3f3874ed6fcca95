//! One request to one server of a group, and when it may be sent to it again.

use http::{Request, Response};
use http_body::Body;

use crate::{
    connection::OpenAnswer,
    observation::RequestObservation,
    pool::UpstreamPool,
    refusal::RequestRefusal,
    upstream_request::{RequestBody, RequestProgress},
};

/// The largest number of times that one request is sent to one server: connections of HTTP/2 that
/// end at the same time may refuse it one after another.
const ATTEMPTS_MAX: usize = 4;

/// A request that got no answer from one server.
pub(crate) struct UnansweredAttempt {
    pub(crate) refusal: RequestRefusal,
    /// The request, if no connection could be opened for it.
    pub(crate) unsent: Option<Box<Request<RequestBody>>>,
}

/// Sends a request over a pooled or a new connection. It is sent a second time, on a new
/// connection, only if its method is idempotent (RFC 9110 section 9.2.2), it has no body and no
/// bytes were received; or if the upstream has certainly not processed it and its body is in memory.
pub(crate) async fn send_to_upstream(
    pool: &UpstreamPool,
    request: Box<Request<RequestBody>>,
    observation: &mut RequestObservation,
) -> Result<Response<OpenAnswer>, Box<UnansweredAttempt>> {
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    let mut request = request;
    let mut kept = pool.take_idle(is_repeatable);
    for attempts_left in (0..ATTEMPTS_MAX).rev() {
        let is_kept = kept.is_some();
        let connection = match kept.take() {
            Some(kept) => kept,
            // Boxed, because most requests do not need the space.
            None => match Box::pin(pool.open()).await {
                Ok(fresh) => fresh,
                Err(failure) => {
                    let refusal = RequestRefusal::Upstream(failure);
                    return Err(Box::new(UnansweredAttempt { refusal, unsent: Some(request) }));
                }
            },
        };
        observation.record_sent();
        let mut unanswered = match connection.send(request).await {
            Ok(response) => return Ok(response),
            Err(unanswered) => unanswered,
        };
        let may_repeat = match unanswered.progress {
            RequestProgress::Unprocessed => true,
            RequestProgress::Unknown => is_repeatable && is_kept,
            RequestProgress::Begun => false,
        };
        match unanswered.request.take().filter(|_| may_repeat && attempts_left > 0) {
            Some(again) => request = again,
            None => {
                let refusal = RequestRefusal::from_unanswered(unanswered);
                return Err(Box::new(UnansweredAttempt { refusal, unsent: None }));
            }
        }
    }
    unreachable!("the last attempt returns")
}

//! A request to the upstream, and one that got no answer.

use bytes::Bytes;
use confide_http::UnansweredExchange;
use http::Request;
use http_body_util::{Either, Full};

use crate::{
    answer_fault::AnswerFault,
    body::LimitedBody,
    client_body::ClientBody,
    fault::{UpstreamFailure, UpstreamFault},
};

/// The body of a request to the upstream: streamed, or in memory and possibly empty.
pub(crate) type RequestBody = Either<LimitedBody<ClientBody>, Full<Bytes>>;

/// A request that was sent, in part or whole, and got no answer.
pub(crate) struct UnansweredRequest {
    /// The request, if all of it is still there.
    pub(crate) request: Option<Box<Request<RequestBody>>>,
    pub(crate) progress: RequestProgress,
    pub(crate) fault: AnswerFault,
}

/// How far a request that got no answer is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// The upstream has not processed it.
    Unprocessed,
    /// The upstream may have processed it, and has sent nothing since.
    Unknown,
    /// The upstream has sent something since.
    Begun,
}

impl UnansweredRequest {
    pub(crate) fn into_failure(self) -> UpstreamFailure {
        UpstreamFailure::from_error(UpstreamFault::classify(&self.fault), &self.fault)
    }
}

impl From<UnansweredExchange> for UnansweredRequest {
    fn from(unanswered: UnansweredExchange) -> Self {
        let UnansweredExchange { bodiless, has_received, error } = unanswered;
        let whole =
            |head: Box<_>| Box::new(Request::from_parts(*head, Either::Right(Full::default())));
        let progress = if has_received { RequestProgress::Begun } else { RequestProgress::Unknown };
        Self { request: bodiless.map(whole), progress, fault: error.into() }
    }
}

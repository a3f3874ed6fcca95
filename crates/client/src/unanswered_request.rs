//! Requests that got no answer.

use http::Request;

use crate::{error::ClientError, request_body::RequestBody};

/// A request that got no answer.
pub(crate) struct UnansweredRequest {
    pub(crate) error: ClientError,
    /// The request, if no byte of it was sent.
    pub(crate) unsent: Option<Request<RequestBody>>,
}

impl UnansweredRequest {
    /// A request that may have been sent in part.
    pub(crate) fn from_sent(error: ClientError) -> Box<Self> {
        Box::new(Self { error, unsent: None })
    }

    /// A request of which nothing was sent.
    pub(crate) fn from_unsent(error: ClientError, request: Request<RequestBody>) -> Box<Self> {
        Box::new(Self { error, unsent: Some(request) })
    }
}

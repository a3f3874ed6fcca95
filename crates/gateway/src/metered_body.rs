//! A body that is counted while it passes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::authorizer::Grant;

/// Passes frames on unchanged. If there is a grant, it reads them and ends with the body.
pub(crate) struct MeteredBody<B> {
    inner: B,
    grant: Option<Box<Grant>>,
}

impl<B> MeteredBody<B> {
    /// A body of which nothing is counted.
    pub(crate) fn without_grant(inner: B) -> Self {
        Self { inner, grant: None }
    }
}

/// Lets a grant read the answer to its request.
pub(crate) fn meter_answer<B: Body>(
    mut grant: Grant,
    answer: Response<MeteredBody<B>>,
) -> Response<MeteredBody<B>> {
    let (mut head, body) = answer.into_parts();
    grant.read_answer_head(head.status, &mut head.headers);
    if body.inner.is_end_stream() {
        grant.mark_complete();
    }
    let body = MeteredBody { inner: body.inner, grant: Some(Box::new(grant)) };
    Response::from_parts(head, body)
}

impl<B: Body<Data = Bytes> + Unpin> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let poll = Pin::new(&mut this.inner).poll_frame(cx);
        let Some(grant) = &mut this.grant else { return poll };
        match &poll {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    grant.read_piece(data);
                }
                // A body whose length is known is not polled again at its end.
                if this.inner.is_end_stream() {
                    grant.mark_complete();
                }
            }
            Poll::Ready(Some(Err(_))) => {
                grant.mark_failed();
                this.grant = None;
            }
            Poll::Ready(None) => {
                grant.mark_complete();
                this.grant = None;
            }
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

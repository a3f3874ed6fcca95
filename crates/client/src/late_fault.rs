//! A body that reports its error one poll later.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body that reports its error one poll later than the body inside. hyper sends what it has when a body
/// is pending, and drops it when a body fails: without the poll in between, the connection could break
/// before the peer gets the head and the text that came before the error.
pub(crate) struct LateFault<B: Body> {
    inner: B,
    fault: Option<B::Error>,
}

impl<B: Body> LateFault<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, fault: None }
    }
}

impl<B> Body for LateFault<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Err(fault))) => {
                self.fault = Some(fault);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.fault.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

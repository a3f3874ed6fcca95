//! A request body whose unread rest is read and discarded.
//!
//! A server that answers early and closes with bytes unread resets the connection, and a sender
//! that still writes sees the reset instead of the answer (RFC 9112 section 9.6).

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header::EXPECT};
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

/// The largest number of bytes that are read and discarded; the same as the limit of a proxied
/// body.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A request body. When it is dropped before its end, the rest is read and discarded, for a bounded
/// time and up to 64 MiB.
pub struct LingeringBody<B: Body<Data = Bytes> + Unpin + Send + 'static> {
    /// The body; `None` once it has ended.
    body: Option<B>,
    awaits_word: bool,
    wait: Duration,
}

impl<B: Body<Data = Bytes> + Unpin + Send + 'static> LingeringBody<B> {
    /// Wraps `body`. If the sender asked with `Expect`, it has not sent the body yet, and nothing
    /// is read.
    pub fn new(body: B, headers: &HeaderMap, wait: Duration) -> Self {
        Self { body: Some(body), awaits_word: headers.contains_key(EXPECT), wait }
    }
}

impl<B: Body<Data = Bytes> + Unpin + Send + 'static> Drop for LingeringBody<B> {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if self.awaits_word {
            return;
        }
        // Without a runtime the connection has already ended.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(self.wait, discard_body(body)));
        }
    }
}

async fn discard_body<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut left = BYTES_MAX;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { return };
        left = rest;
    }
}

impl<B: Body<Data = Bytes> + Unpin + Send + 'static> Body for LingeringBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.body.as_mut() {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

//! A request body that is read on after nobody wants it any more.
//!
//! A server that answers early and closes with bytes unread resets the connection, and a sender
//! that still writes sees the reset instead of the answer (RFC 9112 section 9.6).

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header::EXPECT};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;

/// What is read and thrown away: as much again as may be proxied.
const BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) struct Lingering {
    /// There until the end.
    body: Option<Incoming>,
    awaits_word: bool,
    wait: Duration,
}

impl Lingering {
    /// A sender that asked to be told whether its body is wanted has not sent it: nothing of it
    /// is read unasked.
    pub(crate) fn new(body: Incoming, headers: &HeaderMap, wait: Duration) -> Self {
        Self { body: Some(body), awaits_word: headers.contains_key(EXPECT), wait }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if self.awaits_word {
            return;
        }
        // Outside a runtime there is no connection left either.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(self.wait, read_on(body)));
        }
    }
}

async fn read_on(mut body: Incoming) {
    let mut left = BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { return };
        left = rest;
    }
}

impl Body for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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

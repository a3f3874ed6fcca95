//! The body of an upstream's answer, with the connection that it comes from.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{connection::Connection, server_group::ServerPermit};

/// The body of an answer. Reading it to its end returns the connection to the pool; dropping it
/// earlier closes the connection, so that the upstream stops working. Either ends the permission to
/// run the request.
pub(crate) struct AnswerStream {
    inner: Incoming,
    lease: Option<ConnectionLease>,
}

/// The connection of a running answer.
struct ConnectionLease {
    connection: Connection,
    permit: ServerPermit,
    /// The longest time for which the connection is kept after the answer.
    idle_limit: Duration,
}

impl AnswerStream {
    pub(crate) fn new(
        inner: Incoming,
        connection: Connection,
        permit: ServerPermit,
        headers: &HeaderMap,
    ) -> Self {
        let idle_limit = permit.pool().idle_limit(headers);
        let mut stream =
            Self { inner, lease: Some(ConnectionLease { connection, permit, idle_limit }) };
        stream.return_connection_at_end();
        stream
    }

    fn return_connection_at_end(&mut self) {
        if self.inner.is_end_stream() {
            self.return_connection();
        }
    }

    fn return_connection(&mut self) {
        if let Some(ConnectionLease { connection, permit, idle_limit }) = self.lease.take() {
            // The connection is back before the next request is admitted.
            permit.pool().clone().keep_idle(connection, idle_limit);
        }
    }
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let outcome = Pin::new(&mut self.inner).poll_frame(cx);
        match &outcome {
            Poll::Ready(None) => self.return_connection(),
            // Nothing follows them, and not every reader asks.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => self.return_connection(),
            Poll::Ready(Some(Ok(_))) => self.return_connection_at_end(),
            Poll::Ready(Some(Err(_))) => self.lease = None,
            Poll::Pending => {}
        }
        outcome
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

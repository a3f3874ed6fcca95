//! The body of a request that a server of HTTP/1.1 receives.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::http1::Http1Error;

/// The body of a request, which is read from the connection itself. Of one that is dropped before its
/// end, the server reads and discards the rest for a bounded time.
pub struct Http1RequestBody(Option<Arc<Mutex<dyn BodySource>>>);

/// A connection of which one request's body can be read.
pub(crate) trait BodySource: Send {
    /// The next frame of the body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyFault>>>;

    /// Whether the whole body has been read.
    fn is_body_complete(&self) -> bool;

    /// The number of bytes of the body that follow, if it is known.
    fn remaining_body_bytes(&self) -> Option<u64>;

    /// Notes that nobody wants the rest of the body.
    fn abandon_body(&mut self);
}

/// The reason why the body of a request could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyFault {
    /// It is not valid HTTP/1.1, or ends too early.
    #[error(transparent)]
    Malformed(#[from] Http1Error),
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

impl Http1RequestBody {
    /// A body of no bytes.
    pub(crate) fn empty() -> Self {
        Self(None)
    }

    /// The body of the request whose head was the last one of `source`.
    pub(crate) fn new(source: Arc<Mutex<dyn BodySource>>) -> Self {
        Self(Some(source))
    }

    fn lock(&self) -> Option<MutexGuard<'_, dyn BodySource + 'static>> {
        self.0.as_deref().map(lock)
    }
}

/// Locks a connection, which a panic elsewhere leaves valid.
pub(crate) fn lock<T: ?Sized>(connection: &Mutex<T>) -> MutexGuard<'_, T> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Http1RequestBody {
    fn drop(&mut self) {
        if let Some(mut source) = self.lock() {
            source.abandon_body();
        }
    }
}

impl Body for Http1RequestBody {
    type Data = Bytes;
    type Error = RequestBodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyFault>>> {
        self.lock().map_or(Poll::Ready(None), |mut source| source.poll_body(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_none_or(|source| source.is_body_complete())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(source) = self.lock() else { return SizeHint::with_exact(0) };
        source.remaining_body_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

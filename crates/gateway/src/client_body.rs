//! The body of a client's request.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use confide_http::{LingeringBody, http1::Http1Error};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// The body of a request in either version of HTTP. Of one that is dropped before its end, the rest
/// is read and discarded for a bounded time.
pub(crate) enum ClientBody {
    Empty,
    Http1(Http1Body),
    Http2(LingeringBody<Incoming>),
    /// One that came encrypted in another of them.
    Encrypted(UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>),
}

/// The body of a request of HTTP/1.1, which is read from the connection itself.
pub(crate) struct Http1Body(Arc<Mutex<dyn BodySource>>);

/// A connection of which one request's body can be read.
pub(crate) trait BodySource: Send {
    /// The next frame of the body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>>;

    /// Whether the whole body has been read.
    fn is_body_complete(&self) -> bool;

    /// The number of bytes of the body that follow, if it is known.
    fn remaining_body_bytes(&self) -> Option<u64>;

    /// Notes that nobody wants the rest of the body.
    fn abandon_body(&mut self);
}

/// The reason why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientBodyError {
    #[error(transparent)]
    Malformed(#[from] Http1Error),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

impl Http1Body {
    /// The body of the request whose head was the last one of `source`.
    pub(crate) fn new(source: Arc<Mutex<dyn BodySource>>) -> Self {
        Self(source)
    }

    fn lock(&self) -> MutexGuard<'_, dyn BodySource + 'static> {
        lock(&self.0)
    }
}

/// Locks a connection, which a panic elsewhere leaves valid.
pub(crate) fn lock<T: ?Sized>(connection: &Mutex<T>) -> MutexGuard<'_, T> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.lock().abandon_body();
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(body) => body.lock().poll_body(cx).map_err(Into::into),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Encrypted(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => body.lock().is_body_complete(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Encrypted(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => {
                let remaining = body.lock().remaining_body_bytes();
                remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Http2(body) => body.size_hint(),
            Self::Encrypted(body) => body.size_hint(),
        }
    }
}

//! The body of a client's request.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use confide_http::{Http1RequestBody, LingeringBody};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// The body of a request in either version of HTTP. Of one that is dropped before its end, the rest
/// is read and discarded for a bounded time.
pub(crate) enum ClientBody {
    Empty,
    Http1(Http1RequestBody),
    Http2(LingeringBody<Incoming>),
    /// One that came encrypted in another of them.
    Encrypted(UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>),
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
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Encrypted(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Encrypted(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Encrypted(body) => body.size_hint(),
        }
    }
}

//! The bodies of requests.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};

/// The error of a body that could not be sent.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request: see [`empty_body`], [`whole_body`] and [`streamed_body`].
pub type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// A body of no bytes.
pub fn empty_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body whose bytes are all in memory.
pub fn whole_body(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is sent in pieces as `body` yields them.
pub fn streamed_body<B>(body: B) -> RequestBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}

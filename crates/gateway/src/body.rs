//! Limits on the length, the pace and the trailers of a proxied body.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use confide_http::{BodyClock, BodyPace, PaceFault};
use http_body::{Body, Frame, SizeHint};

use crate::{
    slot_queue::EventTooLong,
    trailers::{TrailerRule, permitted_trailers},
};

/// Passes frames on until there are too many bytes, or they arrive too slowly.
pub(crate) struct LimitedBody<B> {
    inner: B,
    bytes_left: u64,
    bytes_limit: u64,
    clock: BodyClock,
    trailers: TrailerRule,
}

/// The reason why a body was cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("body is too long: wanted at most {limit} bytes")]
    TooLong { limit: u64 },
    #[error(transparent)]
    Pace(PaceFault),
    #[error(transparent)]
    Event(EventTooLong),
    #[error("body has too many trailer fields")]
    Trailers,
    #[error("body ended early: {0}")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, bytes_limit: u64, pace: BodyPace, trailers: TrailerRule) -> Self {
        let clock = BodyClock::new(pace);
        Self { inner, bytes_left: bytes_limit, bytes_limit, clock, trailers }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let frame = loop {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => match self.trailers {
                    TrailerRule::Drop => {}
                    TrailerRule::Pass { fields_max } => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        if trailers.len() > fields_max {
                            return Poll::Ready(Some(Err(BodyFault::Trailers)));
                        }
                        break Some(Ok(Frame::trailers(permitted_trailers(trailers))));
                    }
                },
                Poll::Ready(frame) => break frame,
                Poll::Pending => {
                    let fault = self.clock.poll_fault(cx);
                    return fault.map(|fault| Some(Err(BodyFault::Pace(fault))));
                }
            }
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| BodyFault::Broken(error.into()))?;
            let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
            self.clock.count_received(length);
            self.bytes_left = self
                .bytes_left
                .checked_sub(length)
                .ok_or(BodyFault::TooLong { limit: self.bytes_limit })?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Finds the body fault among the causes of an HTTP client's error.
pub(crate) fn find_body_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a BodyFault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<BodyFault>() {
            return Some(fault);
        }
        next = error.source();
    }
    None
}

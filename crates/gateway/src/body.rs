//! A body on its way through: counted, watched, never kept.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// Passes frames on until too many bytes came or the next one took too long.
///
/// The timer is made at the first pause, so that a body which is already there costs none.
pub(crate) struct Guarded<B> {
    inner: B,
    bytes_left: u64,
    bytes_limit: u64,
    pause_limit: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    paused: bool,
}

/// Why a body was cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("body is too long: wanted at most {limit} bytes")]
    TooLong { limit: u64 },
    #[error("body paused too long: wanted at most {limit:?}")]
    Paused { limit: Duration },
    #[error("body broke off: {0}")]
    Broken(#[source] hyper::Error),
}

impl<B> Guarded<B> {
    pub(crate) fn new(inner: B, bytes_limit: u64, pause_limit: Duration) -> Self {
        Self {
            inner,
            bytes_left: bytes_limit,
            bytes_limit,
            pause_limit,
            pause: None,
            paused: false,
        }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let limit = self.pause_limit;
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.paused {
            self.paused = true;
            pause.as_mut().reset(Instant::now() + limit);
        }
        pause.as_mut().poll(cx).map(|()| BodyFault::Paused { limit })
    }
}

impl<B> Body for Guarded<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => return self.poll_pause(cx).map(|fault| Some(Err(fault))),
        };
        self.paused = false;
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(BodyFault::Broken)?;
            let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
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

/// Finds the reason why a request body was cut in what an HTTP client made of it.
pub(crate) fn fault_behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a BodyFault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<BodyFault>() {
            return Some(fault);
        }
        next = error.source();
    }
    None
}

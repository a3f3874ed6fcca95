//! A half-duplex stream, whose two ends send in turn, with the place of its connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::{
    admission::{BusyGuard, ConnectionPlace},
    observed_stream::{ObservedStream, StreamObserver},
};

/// Marks a connection busy from the bytes that it receives to the bytes that it sends.
///
/// It is for protocols other than HTTP. The connection is idle after this end has sent; sending
/// also resets its idle time.
pub type HalfDuplexStream<S> = ObservedStream<S, HalfDuplexObserver>;

/// The observer of a [`HalfDuplexStream`].
#[derive(Debug)]
pub struct HalfDuplexObserver {
    place: ConnectionPlace,
    busy: Option<BusyGuard>,
}

impl<S> HalfDuplexStream<S> {
    /// Wraps `inner`, which is idle at first.
    pub fn new(inner: S, place: ConnectionPlace) -> Self {
        Self::with_observer(inner, HalfDuplexObserver { place, busy: None })
    }
}

impl<S> StreamObserver<S> for HalfDuplexObserver {
    fn poll_read(
        &mut self,
        inner: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        let before = buf.filled().len();
        let poll = inner.poll_read(cx, buf);
        if buf.filled().len() > before && self.busy.is_none() {
            self.busy = Some(self.place.mark_busy());
        }
        poll
    }

    fn after_write(
        &mut self,
        _cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if matches!(poll, Poll::Ready(Ok(1..))) {
            // Marking an idle connection busy for an instant resets its idle time.
            drop(self.busy.take().unwrap_or_else(|| self.place.mark_busy()));
        }
        poll
    }
}

//! A stream on which two sides take turns, and the place that it holds.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::{
    admission::{Busy, Occupancy},
    watched_stream::{Watch, WatchedStream},
};

/// Marks a connection busy from the bytes that it receives to the bytes that it sends.
///
/// For protocols that are not HTTP: the last bytes tell whose turn it is. A stream in which bytes
/// go both ways is as idle as its last byte is old.
pub type TurnWatch<S> = WatchedStream<S, Turns>;

/// The watch of a [`TurnWatch`].
#[derive(Debug)]
pub struct Turns {
    place: Occupancy,
    busy: Option<Busy>,
}

impl<S> TurnWatch<S> {
    /// Watches `inner`, which waits for its peer at first.
    pub fn new(inner: S, place: Occupancy) -> Self {
        Self::with_watch(inner, Turns { place, busy: None })
    }
}

impl<S> Watch<S> for Turns {
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
            // Also where the connection was idle: it was used a moment ago.
            drop(self.busy.take().unwrap_or_else(|| self.place.mark_busy()));
        }
        poll
    }
}

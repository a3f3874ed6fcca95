//! A stream on which two sides take turns, and the place that it holds.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::admission::{Busy, Occupancy};

/// Marks a connection busy from bytes that came to bytes that went out.
///
/// For protocols that are not HTTP: what was sent last tells whose turn it is. A stream in which
/// bytes go both ways is as idle as its last byte is old.
#[derive(Debug)]
pub struct TurnWatch<S> {
    inner: S,
    place: Occupancy,
    busy: Option<Busy>,
}

impl<S> TurnWatch<S> {
    /// Watches `inner`, which waits for its peer at first.
    pub fn new(inner: S, place: Occupancy) -> Self {
        Self { inner, place, busy: None }
    }

    fn note_write(&mut self, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(poll, Poll::Ready(Ok(1..))) {
            // Also where it was idle: it was used a moment ago.
            drop(self.busy.take().unwrap_or_else(|| self.place.mark_busy()));
        }
        poll
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TurnWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before && self.busy.is_none() {
            self.busy = Some(self.place.mark_busy());
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TurnWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note_write(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.note_write(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

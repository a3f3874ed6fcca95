//! A stream whose reads and writes pass through an observer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Changes the reads and writes of a [`ObservedStream`]; by default they pass unchanged.
pub trait StreamObserver<S>: Unpin {
    /// Reads from `inner`, or fails instead.
    fn poll_read(
        &mut self,
        inner: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        inner.poll_read(cx, buf)
    }

    /// Receives the outcome of a write, and may replace it.
    fn after_write(
        &mut self,
        _cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        poll
    }

    /// Receives the outcome of a flush or a shutdown, and may replace it.
    fn after_flush(
        &mut self,
        _cx: &mut Context<'_>,
        poll: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        poll
    }
}

/// A stream together with its observer.
#[derive(Debug)]
pub struct ObservedStream<S, W> {
    pub(crate) inner: S,
    pub(crate) watch: W,
}

impl<S, W> ObservedStream<S, W> {
    /// Wraps `inner`.
    pub fn with_observer(inner: S, watch: W) -> Self {
        Self { inner, watch }
    }
}

impl<S: AsyncRead + Unpin, W: StreamObserver<S>> AsyncRead for ObservedStream<S, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.watch.poll_read(Pin::new(&mut this.inner), cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, W: StreamObserver<S>> AsyncWrite for ObservedStream<S, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch.after_write(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.watch.after_write(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch.after_flush(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch.after_flush(cx, poll)
    }
}

//! The TCP stream below a connection to the upstream, with two things that HTTP does not tell:
//! whether it is still open at this instant, and how many bytes have come.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A stream to the upstream.
pub(crate) struct Wire {
    stream: TcpStream,
    state: Arc<WireState>,
}

/// What is known of a [`Wire`] by those who do not own it.
#[derive(Debug, Default)]
pub(crate) struct WireState {
    test_is_due: AtomicBool,
    received: AtomicU64,
}

impl WireState {
    /// Has the stream tested before its next use.
    ///
    /// The runtime learns of a closed connection when it next asks the kernel, which may be after
    /// a request was written. hyper reads before it writes, and so meets the end that the test
    /// reports while the request is still in its queue, from where it comes back unsent.
    pub(crate) fn test_before_use(&self) {
        self.test_is_due.store(true, Ordering::Release);
    }

    /// Bytes that have come since the stream was opened.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> (Self, Arc<WireState>) {
        let state = Arc::new(WireState::default());
        (Self { stream, state: state.clone() }, state)
    }

    /// Asks the kernel. Bytes that nobody asked for are no better than an end: they would be taken
    /// for the beginning of the next answer.
    fn is_unusable(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&self.stream).peek(&mut byte) {
            Ok(_) => true,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_due = self.state.test_is_due.load(Ordering::Acquire)
            && self.state.test_is_due.swap(false, Ordering::AcqRel);
        if is_due && self.is_unusable() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = buf.filled().len() - before;
        self.state.received.fetch_add(came as u64, Ordering::Relaxed);
        poll
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

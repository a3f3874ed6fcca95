//! The TCP stream below a connection to the upstream, with two facts that hyper does not tell:
//! whether it is still open at this instant, and how many bytes were received.

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

use confide_http::{Watch, WatchedStream};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

/// A stream to the upstream.
pub(crate) type Wire = WatchedStream<TcpStream, WireWatch>;

/// Counts the bytes of a [`Wire`], and tests on request whether it is still open.
pub(crate) struct WireWatch(Arc<WireState>);

/// The state of a [`Wire`] for those who do not own it.
#[derive(Debug, Default)]
pub(crate) struct WireState {
    test_is_due: AtomicBool,
    received: AtomicU64,
}

impl WireState {
    /// Makes the stream test whether it is open before its next use.
    ///
    /// The runtime learns of a closed connection when it next asks the kernel, which may be after
    /// a request was written. hyper reads before it writes, and so meets the end that the test
    /// reports while the request is still in its queue, from where it comes back unsent.
    pub(crate) fn test_before_use(&self) {
        self.test_is_due.store(true, Ordering::Release);
    }

    /// The number of bytes received since the stream was opened.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Watches a stream to the upstream from now on.
pub(crate) fn watch_wire(stream: TcpStream) -> (Wire, Arc<WireState>) {
    let state = Arc::new(WireState::default());
    (Wire::with_watch(stream, WireWatch(state.clone())), state)
}

/// Asks the kernel whether the stream has ended or holds bytes that nobody asked for. Such bytes
/// are no better than an end: they would be taken for the beginning of the next answer.
fn is_unusable(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(stream).peek(&mut byte) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        }
    }
}

impl Watch<TcpStream> for WireWatch {
    fn poll_read(
        &mut self,
        stream: Pin<&mut TcpStream>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self(state) = self;
        let is_due = state.test_is_due.load(Ordering::Acquire)
            && state.test_is_due.swap(false, Ordering::AcqRel);
        if is_due && is_unusable(&stream) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let poll = stream.poll_read(cx, buf);
        let came = buf.filled().len() - before;
        state.received.fetch_add(came as u64, Ordering::Relaxed);
        poll
    }
}

//! The TCP stream below a connection to the upstream. It adds two facts that hyper does not expose:
//! whether the stream is open at this instant, and how many bytes were received.

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

use confide_http::{ObservedStream, StreamObserver};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

/// A stream to the upstream.
pub(crate) type UpstreamStream = ObservedStream<TcpStream, UpstreamStreamObserver>;

/// Counts the bytes of an [`UpstreamStream`], and tests on request whether it is still open.
pub(crate) struct UpstreamStreamObserver(Arc<UpstreamStreamState>);

/// The state of an [`UpstreamStream`], shared with its connection.
#[derive(Debug, Default)]
pub(crate) struct UpstreamStreamState {
    test_is_due: AtomicBool,
    received: AtomicU64,
}

impl UpstreamStreamState {
    /// Makes the stream test whether it is open before its next use.
    ///
    /// The runtime notices a closed connection when it next asks the kernel, which may be after a
    /// request was written. hyper reads before it writes, so it sees the end that the test reports
    /// while the request is still queued, and returns the request unsent.
    pub(crate) fn schedule_liveness_test(&self) {
        self.test_is_due.store(true, Ordering::Release);
    }

    /// The number of bytes received since the stream was opened.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Wraps a stream to the upstream in an observer.
pub(crate) fn observe_upstream_stream(
    stream: TcpStream,
) -> (UpstreamStream, Arc<UpstreamStreamState>) {
    let state = Arc::new(UpstreamStreamState::default());
    (UpstreamStream::with_observer(stream, UpstreamStreamObserver(state.clone())), state)
}

/// Asks the kernel whether the stream has ended or holds unexpected bytes, which would be taken for
/// the beginning of the next answer.
fn is_unusable(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(stream).peek(&mut byte) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        }
    }
}

impl StreamObserver<TcpStream> for UpstreamStreamObserver {
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

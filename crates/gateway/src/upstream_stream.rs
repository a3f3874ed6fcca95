//! The streams below a connection to the upstream. They add two facts that hyper does not expose:
//! whether the stream is open at this instant, and how many bytes of HTTP were received.
//!
//! There are two observers, because TLS lies between them where it is used: the outer one sees
//! HTTP, the inner one the socket.

use std::{
    io::{self, Read},
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

/// A stream of HTTP to the upstream, over a [`SocketStream`] or over TLS on one.
pub(crate) type UpstreamStream<S> = ObservedStream<S, UpstreamStreamObserver>;

/// A TCP stream to the upstream.
pub(crate) type SocketStream = ObservedStream<TcpStream, SocketObserver>;

/// Counts the bytes of an [`UpstreamStream`], and tests on request whether it is still open.
pub(crate) struct UpstreamStreamObserver(Arc<UpstreamStreamState>);

/// Reads from the socket itself while a test runs.
///
/// The runtime asks the kernel only after the kernel has reported a change, so that it may not know
/// yet what has arrived.
pub(crate) struct SocketObserver(Arc<UpstreamStreamState>);

/// The state of an [`UpstreamStream`], shared with its connection.
#[derive(Debug, Default)]
pub(crate) struct UpstreamStreamState {
    test_is_due: AtomicBool,
    /// Whether a test runs that has not seen the end of what the kernel holds.
    reads_socket: AtomicBool,
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

    /// The number of bytes of HTTP received since the stream was opened.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Wraps a socket to the upstream in its observer. `state` is that of the stream above it.
pub(crate) fn observe_socket(stream: TcpStream, state: &Arc<UpstreamStreamState>) -> SocketStream {
    SocketStream::with_observer(stream, SocketObserver(state.clone()))
}

/// Wraps a stream of HTTP to the upstream in its observer.
pub(crate) fn observe_upstream_stream<S>(
    stream: S,
    state: &Arc<UpstreamStreamState>,
) -> UpstreamStream<S> {
    UpstreamStream::with_observer(stream, UpstreamStreamObserver(state.clone()))
}

impl<S: AsyncRead> StreamObserver<S> for UpstreamStreamObserver {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self(state) = self;
        let is_test = state.test_is_due.load(Ordering::Acquire)
            && state.test_is_due.swap(false, Ordering::AcqRel);
        if is_test {
            state.reads_socket.store(true, Ordering::Relaxed);
        }
        let before = buf.filled().len();
        let poll = stream.poll_read(cx, buf);
        if is_test && poll.is_ready() {
            // The stream has ended, or holds unexpected bytes, which would be taken for the
            // beginning of the next answer. Session tickets of TLS are read and not seen here.
            buf.set_filled(before);
            return Poll::Ready(Ok(()));
        }
        let came = buf.filled().len() - before;
        state.received.fetch_add(came as u64, Ordering::Relaxed);
        poll
    }
}

impl StreamObserver<TcpStream> for SocketObserver {
    fn poll_read(
        &mut self,
        stream: Pin<&mut TcpStream>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self(state) = self;
        if state.reads_socket.load(Ordering::Relaxed) {
            let socket = SockRef::from(&*stream);
            match (&*socket).read(buf.initialize_unfilled()) {
                Ok(bytes) => {
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_about_to_wait(&error) => {
                    state.reads_socket.store(false, Ordering::Relaxed);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        stream.poll_read(cx, buf)
    }
}

fn is_about_to_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

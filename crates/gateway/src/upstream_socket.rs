//! A TCP connection to the upstream, with TLS on it for an https upstream.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A stream of HTTP to the upstream.
pub(crate) enum UpstreamSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl UpstreamSocket {
    /// Whether the stream is open and no byte of HTTP waits to be read.
    ///
    /// The kernel is asked: the runtime only knows what the kernel has reported so far. Session
    /// tickets of TLS are read and do not count.
    pub(crate) fn is_open_and_silent(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                let peeked = SockRef::from(&*stream).peek(&mut [MaybeUninit::uninit()]);
                peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(stream) => is_session_open_and_silent(stream),
        }
    }

    /// Waits until the stream may hold bytes or has ended.
    pub(crate) async fn wait_for_bytes_or_end(&self) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        // An error ends the stream too.
        let _ = stream.readable().await;
    }
}

/// The number of probes that have to stay unanswered.
const PROBES: u32 = 3;

/// Has the kernel end a connection whose other end gives no sign of life for `silence`: after half of
/// it, three probes are sent (RFC 9293 section 3.8.4). Bytes that are not acknowledged are sent again
/// instead, and their end takes longer.
pub(crate) fn probe_at_silence(stream: &TcpStream, silence: Duration) {
    let begin = silence / 2;
    let probes = TcpKeepalive::new().with_time(begin).with_interval(begin / PROBES);
    // Where the kernel has no probes, the deadlines of answers remain.
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes.with_retries(PROBES));
}

fn is_session_open_and_silent(stream: &mut TlsStream<TcpStream>) -> bool {
    let (tcp, session) = stream.get_mut();
    let socket = SockRef::from(&*tcp);
    loop {
        match session.process_new_packets() {
            Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
            _ => return false,
        }
        match session.read_tls(&mut &*socket) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_looks_for_a_vanished_upstream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        probe_at_silence(&stream, Duration::from_secs(60));
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    }
}

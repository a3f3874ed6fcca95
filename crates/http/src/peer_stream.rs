//! An accepted connection that acknowledges its first bytes promptly.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

use crate::{
    observed_stream::{ObservedStream, StreamObserver},
    os,
};

/// The number of prompt acknowledgements. A handshake and a first request in two pieces need four;
/// later ones would only cost a packet for each request.
const PROMPT_ACKNOWLEDGEMENTS: u8 = 4;

/// A TCP connection that acknowledges its first received bytes at once.
///
/// A client that leaves Nagle's algorithm on (RFC 9293 section 3.7.4) holds its request back until
/// the end of its handshake is acknowledged. The server sends nothing after that end, so the kernel
/// would delay the acknowledgement by 40 ms. If this end has read bytes, has written nothing since
/// and waits for more, the acknowledgement is sent at once (`TCP_QUICKACK`).
pub type PeerStream = ObservedStream<TcpStream, AcknowledgementObserver>;

/// Acknowledges received bytes early, and returns bytes that were already read from the connection.
#[derive(Debug)]
pub struct AcknowledgementObserver {
    /// Bytes that were read before the stream was made, and the number of them already returned.
    early: (Vec<u8>, usize),
    unanswered: bool,
    acknowledgements_left: u8,
    announced: Option<SocketAddr>,
}

impl PeerStream {
    /// Wraps a connection, the bytes that were already read from it, and the client that a proxy announced.
    pub(crate) fn new(tcp: TcpStream, early: Vec<u8>, announced: Option<SocketAddr>) -> Self {
        let watch = AcknowledgementObserver {
            early: (early, 0),
            unanswered: false,
            acknowledgements_left: PROMPT_ACKNOWLEDGEMENTS,
            announced,
        };
        Self::with_observer(tcp, watch)
    }

    /// The client's address: the one that a listed proxy announced, else the other end of the connection.
    ///
    /// # Errors
    /// If the connection has already ended.
    pub fn client_address(&self) -> io::Result<SocketAddr> {
        self.watch.announced.map_or_else(|| self.inner.peer_addr(), Ok)
    }

    /// The TCP connection, for its options and for peeking at bytes.
    pub fn tcp(&self) -> &TcpStream {
        &self.inner
    }
}

impl AcknowledgementObserver {
    fn acknowledge(&mut self, tcp: &TcpStream) {
        if self.unanswered && self.acknowledgements_left > 0 {
            self.unanswered = false;
            self.acknowledgements_left -= 1;
            os::acknowledge(tcp);
        }
    }
}

impl From<TcpStream> for PeerStream {
    fn from(tcp: TcpStream) -> Self {
        Self::new(tcp, Vec::new(), None)
    }
}

impl StreamObserver<TcpStream> for AcknowledgementObserver {
    fn poll_read(
        &mut self,
        mut tcp: Pin<&mut TcpStream>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (early, given) = &mut self.early;
        let rest = early.get(*given..).unwrap_or_default();
        if !rest.is_empty() {
            let take = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..take]);
            *given += take;
            self.unanswered = true;
            if *given == early.len() {
                self.early = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let poll = tcp.as_mut().poll_read(cx, buf);
        match &poll {
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.unanswered = true,
            Poll::Pending => self.acknowledge(&tcp),
            Poll::Ready(_) => {}
        }
        poll
    }

    fn after_write(
        &mut self,
        _cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if matches!(poll, Poll::Ready(Ok(1..))) {
            self.unanswered = false;
        }
        poll
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    async fn pair() -> (PeerStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().await.expect("a connection");
        (PeerStream::from(server), client)
    }

    #[tokio::test]
    async fn what_was_read_early_comes_first() {
        let (server, mut client) = pair().await;
        let mut server = PeerStream::new(server.inner, b"ab".to_vec(), None);
        client.write_all(b"cd").await.expect("it is open");
        let mut seen = [0; 1];
        server.read_exact(&mut seen).await.expect("the first byte");
        let mut rest = [0; 3];
        server.read_exact(&mut rest).await.expect("the rest");
        assert_eq!((&seen, &rest), (b"a", b"bcd"));
    }

    /// The end of a handshake: the client wrote, and nothing of the server's is to follow.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_end_of_a_handshake_is_acknowledged_at_once_and_later_requests_are_not() {
        let (mut server, mut client) = pair().await;
        for round in 0..u32::from(PROMPT_ACKNOWLEDGEMENTS) + 2 {
            client.write_all(b"hello").await.expect("it is open");
            server.read_exact(&mut [0; 5]).await.expect("it was sent");
            server.write_all(b"answer").await.expect("it is open");
            client.read_exact(&mut [0; 6]).await.expect("it was sent");
            client.write_all(b"done").await.expect("it is open");
            server.read_exact(&mut [0; 4]).await.expect("it was sent");
            assert!(server.watch.unanswered);
            let waited = timeout(Duration::from_millis(1), server.read_u8()).await;
            assert!(waited.is_err(), "nothing more was sent");
            if round < u32::from(PROMPT_ACKNOWLEDGEMENTS) {
                assert!(server.inner.quickack().expect("an option"), "round {round}");
                assert!(!server.watch.unanswered, "round {round}");
            }
        }
        assert_eq!(server.watch.acknowledgements_left, 0);
    }
}

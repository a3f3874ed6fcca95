//! The stream of a connection to the attested end.

use std::{
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    runtime::Handle,
};

/// The time for the other end to take the end of the stream.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// A stream of any kind.
trait AnyStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> AnyStream for S {}

/// A stream that tells the other end when it is dropped, as its protocols want it.
pub(crate) struct RemoteStream {
    stream: Box<dyn AnyStream>,
    is_shut_down: bool,
    runtime: Handle,
}

impl RemoteStream {
    /// Must be called inside a runtime.
    pub(crate) fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self { stream: Box::new(stream), is_shut_down: false, runtime: Handle::current() }
    }

    /// The runtime in which the stream was opened.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        if self.is_shut_down {
            return;
        }
        // Mostly there is room for the few bytes.
        let shut = pin!(self.stream.shutdown());
        if shut.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let mut stream = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        self.runtime.spawn(async move {
            let _ = tokio::time::timeout(CLOSE_DEADLINE, stream.shutdown()).await;
        });
    }
}

impl AsyncRead for RemoteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for RemoteStream {
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
        slices: &[IoSlice<'_>],
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
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.is_shut_down |= shut.is_ready();
        shut
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, BufWriter, duplex};

    use super::*;

    #[tokio::test]
    async fn a_stream_that_is_dropped_ends_even_if_there_is_no_room_for_its_last_bytes() {
        for bytes in [1, 100] {
            let (near, mut far) = duplex(4);
            let mut stream = RemoteStream::new(BufWriter::new(near));
            stream.write_all(&vec![b'x'; bytes]).await.unwrap();
            drop(stream);
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            assert_eq!(received.len(), bytes);
        }
    }
}

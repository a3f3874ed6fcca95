//! A stream whose peer may not stay silent for ever.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Gives up when nothing came from the peer for `limit`, whatever this end was doing.
///
/// The limit has to be longer than an answer takes: a peer that waits for one is silent, too.
pub struct IdleGuard<S> {
    inner: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> IdleGuard<S> {
    /// Guards `inner`; writes pass through. Has to be called inside a runtime.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, timer: Box::pin(tokio::time::sleep(limit)), waiting: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_ready() {
            self.waiting = false;
            return poll;
        }
        if !self.waiting {
            self.waiting = true;
            let until = Instant::now() + self.limit;
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut guarded = IdleGuard::new(near, Duration::from_secs(10));
        let speaks = tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                far.write_all(b"x").await.expect("the near end is open");
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        });
        let mut bytes = [0; 3];
        guarded.read_exact(&mut bytes).await.expect("8 s is less than the limit");
        let error = guarded.read_u8().await.expect_err("nothing more comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        speaks.abort();
    }
}

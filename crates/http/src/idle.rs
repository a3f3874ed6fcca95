//! A stream that fails if its peer is silent for too long.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::{
    observed_stream::{ObservedStream, StreamObserver},
    pace::{BodyClock, BodyPace},
};

/// Fails with `TimedOut` when nothing was received for a time limit, even if this end was sending.
///
/// The limit has to exceed the time of an answer, because a peer that waits for one is silent.
pub type IdleGuard<S> = ObservedStream<S, IdleObserver>;

/// The observer of an [`IdleGuard`].
pub struct IdleObserver(BodyClock);

impl<S> IdleGuard<S> {
    /// Guards `inner`; writes pass through.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self::with_observer(inner, IdleObserver(BodyClock::new(BodyPace::without_rate(limit))))
    }
}

impl<S> StreamObserver<S> for IdleObserver {
    fn poll_read(
        &mut self,
        inner: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        let poll = inner.poll_read(cx, buf);
        self.0.limit_wait(cx, poll)
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

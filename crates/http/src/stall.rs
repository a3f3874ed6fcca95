//! A stream that fails if its peer does not read for too long.

use std::{
    io,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    observed_stream::{ObservedStream, StreamObserver},
    pace::{BodyClock, BodyPace},
};

/// Fails with `TimedOut` when the peer has accepted no byte for a time limit. It costs nothing
/// while writes succeed.
pub type StallGuard<S> = ObservedStream<S, StallObserver>;

/// The observer of a [`StallGuard`].
pub struct StallObserver(BodyClock);

impl<S> StallGuard<S> {
    /// Guards `inner`; reads pass through.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self::with_observer(inner, StallObserver(BodyClock::new(BodyPace::without_rate(limit))))
    }
}

impl<S> StreamObserver<S> for StallObserver {
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.0.limit_wait(cx, poll)
    }

    fn after_flush(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        self.0.limit_wait(cx, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_given_up() {
        let (near, _far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, Duration::from_millis(20));
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

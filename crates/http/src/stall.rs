//! A stream whose peer may not refuse to read for ever.

use std::{
    io,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    pace::{BodyClock, BodyPace},
    watched_stream::{Watch, WatchedStream},
};

/// Fails with `TimedOut` when no written byte was taken for a time limit. Costs nothing while
/// writes go through.
pub type StallGuard<S> = WatchedStream<S, StallWatch>;

/// The watch of a [`StallGuard`].
pub struct StallWatch(BodyClock);

impl<S> StallGuard<S> {
    /// Guards `inner`; reads pass through.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self::with_watch(inner, StallWatch(BodyClock::new(BodyPace::without_rate(limit))))
    }
}

impl<S> Watch<S> for StallWatch {
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

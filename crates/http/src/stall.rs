//! A stream whose peer may not refuse to read for ever.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use crate::watched_stream::{Watch, WatchedStream};

/// Fails with `TimedOut` when no written byte was taken for a time limit. Costs nothing while
/// writes go through.
pub type StallGuard<S> = WatchedStream<S, StallWatch>;

/// The watch of a [`StallGuard`].
pub struct StallWatch {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl<S> StallGuard<S> {
    /// Guards `inner`; reads pass through.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self::with_watch(inner, StallWatch { limit, timer: None, stalled: false })
    }
}

impl StallWatch {
    fn watch<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = false;
            return poll;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + limit);
        }
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S> Watch<S> for StallWatch {
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.watch(cx, poll)
    }

    fn after_flush(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        self.watch(cx, poll)
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

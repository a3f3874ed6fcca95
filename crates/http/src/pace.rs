//! Limits on how slowly a body may arrive.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// The longest pause of a body, and the rate that its sender has to reach on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPace {
    /// The longest pause between two pieces of the body.
    pub pause: Duration,
    /// The time that a sender has in addition to the time that its bytes earn.
    pub grace: Duration,
    /// The lowest average rate in bytes a second, over the time spent waiting for the sender; 0
    /// allows any rate.
    pub bytes_per_s: u64,
}

impl BodyPace {
    /// A pace with bounded pauses and any rate, for answers whose sender may take long.
    pub const fn without_rate(pause: Duration) -> Self {
        Self { pause, grace: Duration::ZERO, bytes_per_s: 0 }
    }
}

/// The reason why a body is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaceFault {
    /// No bytes of the body arrived for too long.
    #[error("body paused too long: wanted at most {limit:?}")]
    Paused {
        /// The longest pause.
        limit: Duration,
    },
    /// The average rate was too low.
    #[error(
        "body arrived too slowly: wanted at least {bytes_per_s} bytes a second after {grace:?}"
    )]
    Slow {
        /// The lowest rate, in bytes a second.
        bytes_per_s: u64,
        /// The time before the rate applies.
        grace: Duration,
    },
}

/// Measures the pace of one body, or of one direction of a stream. The timer is made at the first
/// pause, so a body that arrives at once needs none.
///
/// Only the time in which this end waits for the sender counts, since a slow upstream may hold an
/// upload back.
#[derive(Debug)]
pub struct BodyClock {
    pace: BodyPace,
    received: u64,
    waited: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The start of the current wait for the sender, and the fault with which it ends at the
    /// deadline.
    waiting: Option<(Instant, PaceFault)>,
}

impl BodyClock {
    /// A clock for a body of which nothing has been received yet.
    pub fn new(pace: BodyPace) -> Self {
        Self { pace, received: 0, waited: Duration::ZERO, timer: None, waiting: None }
    }

    /// Counts a piece that was received.
    pub fn count_received(&mut self, bytes: u64) {
        self.received = self.received.saturating_add(bytes);
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
    }

    /// Has to be polled whenever no bytes are available; is ready when the wait has lasted too
    /// long.
    pub fn poll_fault(&mut self, cx: &mut Context<'_>) -> Poll<PaceFault> {
        let (since, fault) = match self.waiting {
            Some(waiting) => waiting,
            None => {
                let (until, fault) = self.next_deadline();
                let now = Instant::now();
                match &mut self.timer {
                    Some(timer) => timer.as_mut().reset(now + until),
                    None => self.timer = Some(Box::pin(tokio::time::sleep(until))),
                }
                (now, fault)
            }
        };
        self.waiting = Some((since, fault));
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| fault),
            None => Poll::Pending,
        }
    }

    /// Passes on the outcome of a read or write; a wait that lasts too long fails with `TimedOut`.
    pub(crate) fn limit_wait<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.count_received(0);
            return poll;
        }
        self.poll_fault(cx).map(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The longest duration of a wait that begins now, and the fault with which it ends.
    fn next_deadline(&self) -> (Duration, PaceFault) {
        let BodyPace { pause, grace, bytes_per_s } = self.pace;
        let paused = (pause, PaceFault::Paused { limit: pause });
        if bytes_per_s == 0 {
            return paused;
        }
        let earned_ms = self.received.saturating_mul(1000) / bytes_per_s;
        let allowed = grace.saturating_add(Duration::from_millis(earned_ms));
        match allowed.saturating_sub(self.waited) {
            left if left < pause => (left, PaceFault::Slow { bytes_per_s, grace }),
            _ => paused,
        }
    }
}

/// A body that ends with a [`PaceFault`] if it arrives too slowly.
#[derive(Debug)]
pub struct PacedBody<B> {
    inner: B,
    clock: BodyClock,
}

impl<B> PacedBody<B> {
    /// Wraps `inner`.
    pub fn new(inner: B, pace: BodyPace) -> Self {
        Self { inner, clock: BodyClock::new(pace) }
    }
}

impl<B> Body for PacedBody<B>
where
    B: Body + Unpin,
    B::Data: AsRef<[u8]>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.as_ref().len() as u64);
                self.clock.count_received(bytes);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.clock.poll_fault(cx).map(|fault| Some(Err(fault.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Finds the pace fault among the causes of an HTTP client's error.
pub fn find_pace_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a PaceFault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<PaceFault>() {
            return Some(fault);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PACE: BodyPace = BodyPace {
        pause: Duration::from_secs(60),
        grace: Duration::from_secs(30),
        bytes_per_s: 1000,
    };

    /// Pieces of `bytes` every `every`; returns the fault and after how many seconds it came.
    async fn drip(bytes: u64, every: Duration, most: u32) -> Option<(PaceFault, u64)> {
        let began = Instant::now();
        let mut clock = BodyClock::new(PACE);
        for _ in 0..most {
            let fault = tokio::time::timeout(every, poll_fn(|cx| clock.poll_fault(cx))).await;
            if let Ok(fault) = fault {
                return Some((fault, began.elapsed().as_secs()));
            }
            clock.count_received(bytes);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_ends_after_the_grace() {
        let (fault, after_s) = drip(1, Duration::from_secs(2), 1000).await.expect("it ends");
        assert!(matches!(fault, PaceFault::Slow { .. }), "{fault}");
        assert_eq!(after_s, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_sender_above_the_rate_goes_on_and_a_pause_ends() {
        assert_eq!(drip(20_000, Duration::from_secs(15), 100).await, None);
        let pause = drip(200_000, Duration::from_secs(100), 100).await;
        assert!(matches!(pause, Some((PaceFault::Slow { .. }, 30))), "{pause:?}");
        let mut clock = BodyClock::new(PACE);
        clock.count_received(1_000_000);
        let fault = poll_fn(|cx| clock.poll_fault(cx)).await;
        assert_eq!(fault, PaceFault::Paused { limit: PACE.pause });
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_sender_does_not_count() {
        let mut clock = BodyClock::new(PACE);
        for _ in 0..100 {
            clock.count_received(1);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let waited =
            tokio::time::timeout(Duration::from_secs(29), poll_fn(|cx| clock.poll_fault(cx)));
        assert!(waited.await.is_err());
    }
}

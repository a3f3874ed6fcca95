//! A bounded queue for work of which only a few pieces run at once.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// The bounds of an [`AdmissionQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The largest number of requests that run at once; 0 counts as 1.
    pub concurrent: usize,
    /// The largest number of requests that wait at once.
    pub queued: usize,
    /// The longest wait of one request.
    pub wait: Duration,
}

/// Admits a bounded number of requests at once and lets a bounded number wait for a bounded time.
///
/// Requests are admitted in order of arrival. Clones share one queue.
#[derive(Clone, Debug)]
pub struct AdmissionQueue {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    limits: QueueLimits,
}

/// The permission to run, which is returned when it is dropped.
#[derive(Debug)]
pub struct AdmissionPermit {
    _permit: OwnedSemaphorePermit,
    waited: Duration,
}

/// The reason why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The largest number of requests already waits.
    #[error("queue is full: {queued} requests wait")]
    Full {
        /// The largest number of requests that may wait.
        queued: usize,
    },
    /// No running request ended before the longest wait was over.
    #[error("no running request ended within {} s", .waited.as_secs())]
    TimedOut {
        /// The time that the request waited.
        waited: Duration,
    },
}

impl AdmissionQueue {
    /// Makes an empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        let running = limits.concurrent.clamp(1, Semaphore::MAX_PERMITS);
        let queued = limits.queued.min(Semaphore::MAX_PERMITS);
        Self {
            running: Arc::new(Semaphore::new(running)),
            waiting: Arc::new(Semaphore::new(queued)),
            limits: QueueLimits { queued, ..limits },
        }
    }

    /// The number of requests that wait now.
    pub fn waiting(&self) -> usize {
        self.limits.queued.saturating_sub(self.waiting.available_permits())
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`QueueError::Full`] at once if too many wait, [`QueueError::TimedOut`] after the longest
    /// wait.
    pub async fn enter(&self) -> Result<AdmissionPermit, QueueError> {
        if let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(AdmissionPermit { _permit: permit, waited: Duration::ZERO });
        }
        let QueueLimits { queued, wait, .. } = self.limits;
        let _waiting = self.waiting.try_acquire().map_err(|_| QueueError::Full { queued })?;
        let began = Instant::now();
        let acquire = Arc::clone(&self.running).acquire_owned();
        match tokio::time::timeout(wait, acquire).await {
            Ok(Ok(permit)) => Ok(AdmissionPermit { _permit: permit, waited: began.elapsed() }),
            // The semaphore is never closed, so only the timeout ends a wait.
            Ok(Err(_)) | Err(_) => Err(QueueError::TimedOut { waited: wait }),
        }
    }
}

impl AdmissionPermit {
    /// The time that the request waited for its turn.
    pub fn waiting_time(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(5);

    fn queue(concurrent: usize, queued: usize, wait: Duration) -> AdmissionQueue {
        AdmissionQueue::new(QueueLimits { concurrent, queued, wait })
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_a_length_and_a_deadline() {
        let queue = queue(1, 1, WAIT);
        let held = queue.enter().await.expect("the only place");
        assert_eq!(held.waiting_time(), Duration::ZERO);
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(queue.waiting(), 1);
        assert_eq!(queue.enter().await.unwrap_err(), QueueError::Full { queued: 1 });
        let late = waiting.await.expect("the task ends");
        assert_eq!(late, Err(QueueError::TimedOut { waited: WAIT }));
        assert_eq!(queue.waiting(), 0);
        drop(held);
        assert!(queue.enter().await.is_ok());
    }

    #[tokio::test]
    async fn one_who_stops_waiting_leaves_the_queue() {
        let queue = queue(1, 1, Duration::from_secs(3600));
        let _held = queue.enter().await.expect("the only place");
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(queue.waiting(), 1);
        waiting.abort();
        let _ = waiting.await;
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_freed_goes_to_who_waits_and_the_wait_is_known() {
        let queue = queue(1, 1, WAIT);
        let held = queue.enter().await.expect("the only place");
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter().await.map(|permit| permit.waiting_time()) }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(held);
        assert_eq!(waiting.await.expect("the task ends"), Ok(Duration::from_secs(2)));
    }

    #[tokio::test]
    async fn without_a_queue_nobody_waits_and_no_limit_is_too_large() {
        let queue = queue(0, 0, WAIT);
        let _held = queue.enter().await.expect("one runs in any case");
        assert_eq!(queue.enter().await.unwrap_err(), QueueError::Full { queued: 0 });
        let unbounded = self::queue(usize::MAX, usize::MAX, WAIT);
        assert!(unbounded.enter().await.is_ok());
    }
}

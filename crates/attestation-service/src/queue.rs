//! A bounded queue before the cores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Limits, error::RequestError};

/// So many appraisals run at once, so many more wait, for so long.
pub(crate) struct Queue {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    queued_max: usize,
    wait_max: Duration,
}

impl Queue {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            queued_max: limits.queued,
            wait_max: limits.queue_wait,
        }
    }

    /// How many wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = Waiting::enter(&self.waiting, self.queued_max)?;
        let busy = RequestError::Busy { waited: self.wait_max };
        let place = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(self.wait_max, place).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(busy),
        }
    }
}

/// One place in the queue, left also when the caller goes away.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, limit: usize) -> Result<Self, RequestError> {
        if count.fetch_add(1, Ordering::Relaxed) >= limit {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(RequestError::QueueFull { limit });
        }
        Ok(Self(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_a_length_and_a_deadline_and_is_left_by_those_who_give_up() {
        let limits = Limits { concurrent: 1, queued: 1, ..Limits::default() };
        let queue = Arc::new(Queue::new(&limits));
        let held = queue.enter().await.expect("the only place");
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(matches!(queue.enter().await, Err(RequestError::QueueFull { limit: 1 })));
        assert!(matches!(waiting.await.unwrap(), Err(RequestError::Busy { .. })));
        assert_eq!(queue.waiting(), 0);
        drop(held);
        assert!(queue.enter().await.is_ok());
    }
}

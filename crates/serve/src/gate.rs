use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use confide_engine::EngineError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// Admits so many generations at once and lets so many more wait, for so long.
#[derive(Clone)]
pub(crate) struct Gate {
    slots: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    queued_max: usize,
    wait_max: Duration,
}

/// The right to one running generation, given back when dropped.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    /// How long it was waited for.
    pub(crate) waited: Duration,
}

impl Gate {
    pub(crate) fn new(slots: usize, queued_max: usize, wait_max: Duration) -> Self {
        let slots = Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)));
        Self { slots, waiting: Arc::new(AtomicUsize::new(0)), queued_max, wait_max }
    }

    /// # Errors
    /// `QueueFull` where too many wait already, `Busy` where no slot came free in time.
    pub(crate) async fn enter(&self) -> Result<Slot, ApiError> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(Slot { _permit: permit, waited: Duration::ZERO });
        }
        let asked = Instant::now();
        let _waiting = Waiting::enter(&self.waiting, self.queued_max)?;
        let acquired =
            tokio::time::timeout(self.wait_max, Arc::clone(&self.slots).acquire_owned()).await;
        match acquired {
            Ok(Ok(permit)) => Ok(Slot { _permit: permit, waited: asked.elapsed() }),
            Ok(Err(_closed)) => Err(EngineError::Stopped.into()),
            Err(_late) => Err(ApiError::Busy { waited: self.wait_max }),
        }
    }
}

/// One place in the queue, left when dropped, also where the client goes away while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, limit: usize) -> Result<Self, ApiError> {
        if count.fetch_add(1, Ordering::Relaxed) >= limit {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(EngineError::QueueFull { limit }.into());
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
    async fn the_queue_has_a_length_and_a_deadline() {
        let gate = Gate::new(1, 1, Duration::from_secs(5));
        let held = gate.enter().await.expect("the only slot");
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter().await.map(drop) }
        });
        tokio::task::yield_now().await;
        let full = gate.enter().await;
        assert!(matches!(full, Err(ApiError::Engine(EngineError::QueueFull { limit: 1 }))));
        let late = waiting.await.expect("the task ends");
        assert!(matches!(late, Err(ApiError::Busy { .. })));
        drop(held);
        assert!(gate.enter().await.is_ok());
    }

    #[tokio::test]
    async fn one_who_stops_waiting_leaves_the_queue() {
        let gate = Gate::new(1, 1, Duration::from_secs(3600));
        let _held = gate.enter().await.expect("the only slot");
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter().await.map(drop) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }
}

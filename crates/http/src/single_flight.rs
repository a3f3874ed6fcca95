//! Runs one piece of work per key at a time, and shares its outcome among all callers.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::watch};

/// The running pieces of work, by key. Each is a separate task, which continues if its callers go
/// away.
#[derive(Debug)]
pub struct SingleFlight<K, V> {
    running: Mutex<HashMap<K, SharedOutcome<V>>>,
}

/// The future outcome of one piece of work, which its callers share.
#[derive(Clone, Debug)]
pub struct SharedOutcome<V>(watch::Receiver<Option<V>>);

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes an empty set of work.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { running: Mutex::new(HashMap::new()) })
    }

    /// Joins the work for `key`, or starts `work` on `runtime` if none is running.
    pub fn start<F>(
        self: &Arc<Self>,
        runtime: &Handle,
        key: &K,
        work: impl FnOnce() -> F,
    ) -> SharedOutcome<V>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let admit = |_running| Ok::<(), Infallible>(());
        match self.start_if_admitted(runtime, key, admit, work) {
            Ok(flight) => flight,
            Err(never) => match never {},
        }
    }

    /// Joins the work for `key`. If none is running, `admit` receives the number of keys that have
    /// work and decides whether `work` starts.
    ///
    /// A key is freed after its work has ended and before callers receive the outcome: `admit` sees
    /// the side effects of earlier work, and a caller that has an outcome never gets the same one
    /// again. No other work starts or ends while `admit` runs, so `admit` must not use this value.
    ///
    /// # Errors
    /// The error of `admit`.
    pub fn start_if_admitted<F, E>(
        self: &Arc<Self>,
        runtime: &Handle,
        key: &K,
        admit: impl FnOnce(usize) -> Result<(), E>,
        work: impl FnOnce() -> F,
    ) -> Result<SharedOutcome<V>, E>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut running = self.lock();
        if let Some(flight) = running.get(key) {
            return Ok(flight.clone());
        }
        admit(running.len())?;
        let (outcome, receiver) = watch::channel(None);
        running.insert(key.clone(), SharedOutcome(receiver.clone()));
        drop(running);
        let landing = KeyRelease { flights: self.clone(), key: key.clone() };
        let work = work();
        runtime.spawn(async move {
            let value = work.await;
            // This is also dropped if the work panics or the runtime ends.
            drop(landing);
            outcome.send_replace(Some(value));
        });
        Ok(SharedOutcome(receiver))
    }

    /// Whether work for `key` is running.
    pub fn is_running(&self, key: &K) -> bool {
        self.lock().contains_key(key)
    }
}

impl<K, V> SingleFlight<K, V> {
    /// Locks the map. A panic elsewhere leaves it valid.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, SharedOutcome<V>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Clone> SharedOutcome<V> {
    /// Waits for the outcome; `None` if the work ended without one.
    pub async fn outcome(mut self) -> Option<V> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|value| value.clone())
    }
}

/// Frees a key when its work has ended.
struct KeyRelease<K: Eq + Hash, V> {
    flights: Arc<SingleFlight<K, V>>,
    key: K,
}

impl<K: Eq + Hash, V> Drop for KeyRelease<K, V> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_share_one_piece_of_work() {
        let (flights, runs) = (SingleFlight::<u8, u32>::new(), Arc::new(AtomicU32::new(0)));
        let gate = Arc::new(Notify::new());
        let ask = || {
            let (runs, gate) = (runs.clone(), gate.clone());
            flights.start(&Handle::current(), &1, || async move {
                gate.notified().await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            })
        };
        let waiting: Vec<_> = (0..50).map(|_| ask()).collect();
        gate.notify_one();
        for flight in waiting {
            assert_eq!(flight.outcome().await, Some(1));
        }
        gate.notify_one();
        assert!(!flights.is_running(&1), "a key is free before its outcome is known");
        assert_eq!(ask().outcome().await, Some(2), "the next one works anew");
    }

    #[tokio::test]
    async fn work_that_panics_gives_no_outcome_and_frees_its_key() {
        let flights = SingleFlight::<u8, u32>::new();
        let lost = flights.start(&Handle::current(), &1, || async { panic!("on purpose") });
        assert_eq!(lost.outcome().await, None);
        assert!(!flights.is_running(&1));
    }

    #[tokio::test]
    async fn work_under_way_is_joined_unasked_and_other_work_needs_admission() {
        let flights = SingleFlight::<u8, u32>::new();
        let gate = Arc::new(Notify::new());
        let held = {
            let gate = gate.clone();
            flights.start(&Handle::current(), &1, || async move {
                gate.notified().await;
                7
            })
        };
        let refuse = |running: usize| Err::<(), usize>(running);
        let refused = flights.start_if_admitted(&Handle::current(), &2, refuse, || async { 8 });
        assert_eq!(refused.err(), Some(1), "one piece of work was under way");
        let joined = flights.start_if_admitted(&Handle::current(), &1, refuse, || async { 9 });
        gate.notify_one();
        assert_eq!(joined.expect("it was under way").outcome().await, Some(7));
        assert_eq!(held.outcome().await, Some(7));
        let lone =
            flights.start_if_admitted(&Handle::current(), &2, |_| Ok::<_, ()>(()), || async { 8 });
        assert_eq!(lone.expect("it is admitted").outcome().await, Some(8));
    }
}

//! One piece of work per key at a time, however many ask for it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{runtime::Handle, sync::watch};

/// Work under way, by key. The work is a task of its own: a caller that goes away does not end it.
pub(crate) struct Flights<K, V> {
    running: Mutex<HashMap<K, watch::Receiver<Option<V>>>>,
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { running: Mutex::new(HashMap::new()) })
    }

    /// Starts `work` unless work for `key` is under way; the answer is awaited with [`landed`].
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        runtime: &Handle,
        key: &K,
        work: impl FnOnce() -> F,
    ) -> watch::Receiver<Option<V>>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = running.get(key) {
            return under_way.clone();
        }
        let (answer, receiver) = watch::channel(None);
        running.insert(key.clone(), receiver.clone());
        drop(running);
        let ends = Ends { flights: self.clone(), key: key.clone() };
        let work = work();
        runtime.spawn(async move {
            // Dropped at the end, and also when the work panics or the runtime ends.
            let _ends = ends;
            let value = work.await;
            answer.send_replace(Some(value));
        });
        receiver
    }
}

/// The answer, or none where the work ended without one.
pub(crate) async fn landed<V: Clone>(mut receiver: watch::Receiver<Option<V>>) -> Option<V> {
    receiver.wait_for(Option::is_some).await.ok().and_then(|value| value.clone())
}

struct Ends<K: Eq + Hash, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
}

impl<K: Eq + Hash, V> Drop for Ends<K, V> {
    fn drop(&mut self) {
        let mut running = self.flights.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_share_one_piece_of_work() {
        let (flights, runs) = (Flights::<u8, u32>::new(), Arc::new(AtomicU32::new(0)));
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
        for receiver in waiting {
            assert_eq!(landed(receiver).await, Some(1));
        }
        gate.notify_one();
        while flights.running.lock().unwrap().contains_key(&1) {
            tokio::task::yield_now().await;
        }
        assert_eq!(landed(ask()).await, Some(2), "the next one works anew");
    }

    #[tokio::test]
    async fn work_that_panics_gives_no_answer_and_frees_its_key() {
        let flights = Flights::<u8, u32>::new();
        let lost = flights.start(&Handle::current(), &1, || async { panic!("on purpose") });
        assert_eq!(landed(lost).await, None);
        assert!(flights.running.lock().unwrap().is_empty());
    }
}

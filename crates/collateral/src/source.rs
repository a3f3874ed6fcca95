//! The endorsements that a program holds, and the thread that keeps them fresh.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    cache::Cache,
    client::Client,
    counts::{CollateralCounts, Counters},
    error::CollateralError,
    options::SourceOptions,
    platform::Platform,
    set::EndorsementSet,
};

/// Endorsements by platform: returned at once if they are at hand, otherwise fetched, and refreshed
/// in the background while they are still valid.
///
/// All fetching is done on a thread of its own with a runtime of its own. A caller may therefore
/// wait in any way, in or out of a runtime, without a deadlock.
pub struct Source {
    cache: Arc<Cache>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    /// Reads the store and starts the thread.
    ///
    /// # Errors
    /// If this machine has no root certificates for TLS, or the thread cannot be started.
    pub fn start(options: SourceOptions) -> Result<Self, CollateralError> {
        let failed = |error: std::io::Error| CollateralError::Thread { reason: error.to_string() };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let counters = Arc::<Counters>::default();
        let client = Client::with_counters(options.services.clone(), counters.clone())?;
        let look_every = options.look_every;
        let cache = Cache::open(options, client, counters, runtime.handle().clone());
        let (end, ended) = oneshot::channel::<()>();
        let keeper = cache.clone();
        let thread = thread::Builder::new()
            .name("collateral".into())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        _ = ended => {}
                        () = keeper.refresh_due_sets(look_every) => {}
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Self { cache, end: Some(end), thread: Some(thread) })
    }

    /// The endorsements, if they are at hand and valid now. This takes no lock and never waits; if
    /// a refresh is due, it begins in the background.
    pub fn current_set(&self, platform: &Platform) -> Option<Arc<EndorsementSet>> {
        self.cache.current_set(platform)
    }

    /// Begins to fetch the platform's documents that are missing or due, without waiting.
    pub fn prefetch(&self, platform: &Platform) {
        drop(self.cache.start_refresh(platform));
    }

    /// The endorsements, which are fetched if they are not at hand or no longer valid. Callers that
    /// ask for the same platform at the same time share the work.
    ///
    /// # Errors
    /// If the platform's documents are not at hand and no service provides them.
    pub async fn find_or_fetch(
        &self,
        platform: &Platform,
    ) -> Result<Arc<EndorsementSet>, CollateralError> {
        if let Some(set) = self.current_set(platform) {
            return Ok(set);
        }
        let aborted = CollateralError::Aborted { subject: platform.to_string() };
        self.cache.start_refresh(platform)?.outcome().await.unwrap_or(Err(aborted))
    }

    /// Like [`Source::find_or_fetch`], for a caller without a runtime, or one that may block; `deadline`
    /// bounds the wait.
    ///
    /// # Errors
    /// Those of [`Source::find_or_fetch`], and [`CollateralError::NotAtHand`] at the deadline.
    pub fn find_or_fetch_blocking(
        &self,
        platform: &Platform,
        deadline: Duration,
    ) -> Result<Arc<EndorsementSet>, CollateralError> {
        if let Some(set) = self.current_set(platform) {
            return Ok(set);
        }
        let flight = self.cache.start_refresh(platform)?;
        let (answer, answered) = mpsc::sync_channel(1);
        self.cache.runtime().spawn(async move {
            let _ = answer.send(flight.outcome().await);
        });
        let aborted = || CollateralError::Aborted { subject: platform.to_string() };
        match answered.recv_timeout(deadline) {
            Ok(outcome) => outcome.unwrap_or_else(|| Err(aborted())),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(CollateralError::NotAtHand { subject: platform.to_string() })
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(aborted()),
        }
    }

    /// A number that grows whenever a set is replaced, so that a program that prepared a set can
    /// see whether there is a newer one.
    pub fn generation(&self) -> u64 {
        self.cache.generation()
    }

    /// A receiver for [`Source::generation`], to wait for its changes.
    pub fn watch_generation(&self) -> watch::Receiver<u64> {
        self.cache.watch_generation()
    }

    /// The requests, answers and refusals since the start.
    pub fn counts(&self) -> CollateralCounts {
        self.cache.counts()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

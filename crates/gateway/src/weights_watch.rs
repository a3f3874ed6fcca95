//! The check that a model server on this machine still has the weights that were measured.
//!
//! The evidence attests a digest of files. Before a new connection to the server is used, the
//! process that listens has to be one with these files open or mapped, and it has to be listening
//! still. At intervals the files have to be as they were. A changed file closes every session.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_weights::{ServerProcess, ServerProcessError, WeightsMeasurement};
use tokio::time::Instant;

use crate::{
    failure_log::FailureLog,
    fault::{UpstreamFailure, UpstreamFault},
    manifest::ModelChange,
};

/// The interval of the checks of the files, which read no contents: the longest time for which a
/// changed file goes unnoticed.
const FILES_CHECK: Duration = Duration::from_secs(1);

/// The pause between searches that requests ask for. A search reads the state of all processes,
/// and a server that is away gets requests all the time.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// A search that found no process with the files.
struct FailedSearch {
    /// The time at which it ended.
    at: Instant,
    fault: UpstreamFault,
    reason: String,
}

impl FailedSearch {
    fn failure(&self) -> UpstreamFailure {
        UpstreamFailure::new(self.fault, self.reason.clone())
    }
}

/// The measured weights of one server, and the process that has them.
pub(crate) struct WeightsWatch {
    weights: Arc<WeightsMeasurement>,
    address: SocketAddr,
    change: Arc<ModelChange>,
    /// The process that was last seen with the files.
    process: Mutex<Option<Arc<ServerProcess>>>,
    /// Is held while processes are searched, which all threads wait for together. It has the last
    /// search that found none.
    search: tokio::sync::Mutex<Option<FailedSearch>>,
    failures: FailureLog,
}

impl WeightsWatch {
    pub(crate) fn new(
        weights: Arc<WeightsMeasurement>,
        address: SocketAddr,
        change: Arc<ModelChange>,
    ) -> Self {
        let (process, search, failures) = Default::default();
        Self { weights, address, change, process, search, failures }
    }

    /// Checks that the server's process is one that has the files. It is called when a connection
    /// has been opened and before a request is sent on it: whoever listens now took it.
    ///
    /// # Errors
    /// [`UpstreamFault::ModelChanged`] if the server has weights that were not measured, and
    /// [`UpstreamFault::NotReady`] if no process with the files was found.
    pub(crate) async fn confirm_process(&self) -> Result<(), UpstreamFailure> {
        if self.still_listens() {
            return Ok(());
        }
        let mut failed = self.search.lock().await;
        if self.still_listens() {
            return Ok(());
        }
        match &*failed {
            Some(search) if search.at.elapsed() < SEARCH_PAUSE => Err(search.failure()),
            _ => self.search(&mut failed).await,
        }
    }

    /// Looks at the files every second, and at what the server has open every `interval`, or every
    /// second while no server is known: one that loads its weights is seen with them.
    pub(crate) async fn check_at_intervals(self: &Arc<Self>, interval: Duration) -> Infallible {
        let mut searched = None;
        loop {
            if self.change.has_happened() {
                return std::future::pending().await;
            }
            self.check_files().await;
            let is_due = searched.is_none_or(|at: Instant| at.elapsed() >= interval);
            if is_due || !self.still_listens() {
                let mut failed = self.search.lock().await;
                let now = Instant::now();
                searched = Some(now);
                if let Err(UpstreamFailure { reason, .. }) = self.search(&mut failed).await
                    && let Some(failures) = self.failures.record(now)
                {
                    tracing::warn!(
                        %reason,
                        failures,
                        "the model server gets no requests: no process with the measured weights"
                    );
                }
            }
            tokio::time::sleep(FILES_CHECK).await;
        }
    }

    fn still_listens(&self) -> bool {
        let process = self.process().clone();
        process.is_some_and(|process| process.still_listens())
    }

    fn process(&self) -> MutexGuard<'_, Option<Arc<ServerProcess>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check_files(&self) {
        let weights = self.weights.clone();
        let checked = tokio::task::spawn_blocking(move || weights.check_unchanged()).await;
        match checked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.close(&error.to_string()),
            Err(error) => self.close(&error.to_string()),
        }
    }

    /// Searches the process that listens, and looks at the files that it has open.
    async fn search(&self, failed: &mut Option<FailedSearch>) -> Result<(), UpstreamFailure> {
        let (weights, address) = (self.weights.clone(), self.address);
        let find = move || ServerProcess::find(address, &weights);
        let found = tokio::task::spawn_blocking(find).await;
        let (fault, reason) = match found {
            Ok(Ok(found)) => {
                *self.process() = Some(Arc::new(found));
                *failed = None;
                return Ok(());
            }
            Ok(Err(error @ ServerProcessError::OtherWeights { .. })) => {
                self.close(&error.to_string());
                (UpstreamFault::ModelChanged, error.to_string())
            }
            Ok(Err(error)) => (UpstreamFault::NotReady, error.to_string()),
            Err(error) => (UpstreamFault::NotReady, error.to_string()),
        };
        *self.process() = None;
        let search = FailedSearch { at: Instant::now(), fault, reason };
        let failure = search.failure();
        *failed = Some(search);
        Err(failure)
    }

    fn close(&self, reason: &str) {
        if self.change.mark() {
            tracing::error!(
                %reason,
                "the weights are not those that were measured: every session is closed and nothing \
                 is proxied until the gateway is restarted or reloaded"
            );
        }
    }
}

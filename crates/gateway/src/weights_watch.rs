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

use confide_weights::{ServerProcess, ServerProcessError, WeightsMeasurement, WeightsReaders};
use tokio::time::Instant;

use crate::{
    failure_log::FailureLog,
    fault::{UpstreamFailure, UpstreamFault},
    manifest::ModelChange,
};

/// The interval of the checks of the files, which read no contents: the longest time for which a
/// changed file goes unnoticed.
const FILES_CHECK: Duration = Duration::from_secs(1);

/// The measured weights of one server, and the process that has them.
pub(crate) struct WeightsWatch {
    weights: Arc<WeightsMeasurement>,
    address: SocketAddr,
    change: Arc<ModelChange>,
    /// The process that was last seen with the files.
    process: Mutex<Option<Arc<ServerProcess>>>,
    readers: Arc<WeightsReaders>,
    /// Is held while processes are searched, which all threads wait for together.
    search: tokio::sync::Mutex<()>,
    failures: FailureLog,
}

impl WeightsWatch {
    pub(crate) fn new(
        weights: Arc<WeightsMeasurement>,
        address: SocketAddr,
        change: Arc<ModelChange>,
    ) -> Self {
        let (process, readers, search, failures) = Default::default();
        Self { weights, address, change, process, readers, search, failures }
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
        let _turn = self.search.lock().await;
        match self.still_listens() {
            true => Ok(()),
            false => self.search().await,
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
                let _turn = self.search.lock().await;
                let now = Instant::now();
                searched = Some(now);
                if let Err(UpstreamFailure { reason, .. }) = self.search().await
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
    async fn search(&self) -> Result<(), UpstreamFailure> {
        let (weights, address) = (self.weights.clone(), self.address);
        let readers = self.readers.clone();
        let find = move || ServerProcess::find(address, &weights, &readers);
        let found = tokio::task::spawn_blocking(find);
        let refused = |fault, reason: String| Err(UpstreamFailure::new(fault, reason));
        match found.await {
            Ok(Ok(found)) => {
                *self.process() = Some(Arc::new(found));
                Ok(())
            }
            Ok(Err(error @ ServerProcessError::OtherWeights { .. })) => {
                self.close(&error.to_string());
                refused(UpstreamFault::ModelChanged, error.to_string())
            }
            Ok(Err(error)) => {
                *self.process() = None;
                refused(UpstreamFault::NotReady, error.to_string())
            }
            Err(error) => refused(UpstreamFault::NotReady, error.to_string()),
        }
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

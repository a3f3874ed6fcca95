//! Counts the requests that run on one replica.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use confide_http::AdmissionPermit;

/// The number of running requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningCount(Arc<AtomicU32>);

impl RunningCount {
    pub(crate) fn current(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a request until the returned value is dropped.
    pub(crate) fn begin_request(&self) -> RunningRequest {
        self.0.fetch_add(1, Ordering::Relaxed);
        RunningRequest(self.clone())
    }
}

/// A request that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningRequest(RunningCount);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permission to run a request, which counts for its replica if there is a choice of replicas.
pub(crate) struct RequestPlace {
    _permit: AdmissionPermit,
    _running: Option<RunningRequest>,
}

impl RequestPlace {
    pub(crate) fn new(permit: AdmissionPermit, running: Option<RunningRequest>) -> Self {
        Self { _permit: permit, _running: running }
    }
}

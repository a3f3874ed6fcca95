//! Counters of requests, answers and refusals, for metrics.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A snapshot of all counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollateralCounts {
    /// Requests for a platform whose endorsements were at hand.
    pub hits: u64,
    /// Requests for a platform whose endorsements were not at hand.
    pub misses: u64,
    /// Documents replaced by newer ones.
    pub refreshes: u64,
    /// Fetches that failed.
    pub failures: u64,
    /// Documents that were refused because they were older than the newest one seen.
    pub refused_rollbacks: u64,
    /// Sets that were refused by the program's check.
    pub refused_sets: u64,
    /// Platforms that were not fetched because too many new ones were requested.
    pub refused_platforms: u64,
    /// Failed reads and writes of the store.
    pub store_failures: u64,
    /// The counters of each host, by host and port.
    pub hosts: BTreeMap<String, HostCounts>,
}

/// Counters of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Answers with status 304 (Not Modified).
    pub not_modified: u64,
    /// Answers with status 429 (Too Many Requests).
    pub throttled: u64,
    /// Requests that got no usable answer.
    pub failures: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) refreshes: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) refused_rollbacks: AtomicU64,
    pub(crate) refused_sets: AtomicU64,
    pub(crate) refused_platforms: AtomicU64,
    pub(crate) store_failures: AtomicU64,
    hosts: Mutex<BTreeMap<String, Arc<HostCounters>>>,
}

#[derive(Default)]
pub(crate) struct HostCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) not_modified: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) failures: AtomicU64,
}

pub(crate) fn add_to_counter(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

impl Counters {
    /// The counters of a host. Hosts come from the configuration, so that there are few.
    pub(crate) fn host(&self, host: &str) -> Arc<HostCounters> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.entry(host.to_owned()).or_default().clone()
    }

    pub(crate) fn snapshot(&self) -> CollateralCounts {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        CollateralCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            refreshes: self.refreshes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            refused_rollbacks: self.refused_rollbacks.load(Relaxed),
            refused_sets: self.refused_sets.load(Relaxed),
            refused_platforms: self.refused_platforms.load(Relaxed),
            store_failures: self.store_failures.load(Relaxed),
            hosts: hosts
                .iter()
                .map(|(host, counters)| (host.clone(), counters.snapshot()))
                .collect(),
        }
    }
}

impl HostCounters {
    fn snapshot(&self) -> HostCounts {
        HostCounts {
            requests: self.requests.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            not_modified: self.not_modified.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }
}

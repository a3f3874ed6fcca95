//! The health of a model server: whether connections to it could be used, and whether its last
//! checks at intervals succeeded.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The number of checks in a row that have to fail before a server counts as down. A single one may
/// fail because the server is busy.
const FAILED_CHECKS_MAX: u32 = 2;

/// The health of one server. Servers that are not healthy are tried last.
pub(crate) struct ServerHealth {
    created: Instant,
    /// Milliseconds after `created` until which the server is tried last, because a connection to
    /// it failed.
    avoided_until_ms: AtomicU64,
    connect_failures: AtomicU64,
    failed_checks: AtomicU32,
    is_down: AtomicBool,
}

impl ServerHealth {
    pub(crate) fn new() -> Self {
        Self {
            created: Instant::now(),
            avoided_until_ms: AtomicU64::new(0),
            connect_failures: AtomicU64::new(0),
            failed_checks: AtomicU32::new(0),
            is_down: AtomicBool::new(false),
        }
    }

    /// Whether the last checks succeeded and no connection failed lately.
    pub(crate) fn is_healthy(&self) -> bool {
        let avoided_until_ms = self.avoided_until_ms.load(Ordering::Relaxed);
        let is_avoided = avoided_until_ms > 0 && avoided_until_ms > self.elapsed_ms();
        !is_avoided && !self.is_down.load(Ordering::Relaxed)
    }

    /// The number of requests and checks for which no connection could be used.
    pub(crate) fn connect_failures(&self) -> u64 {
        self.connect_failures.load(Ordering::Relaxed)
    }

    /// Remembers that no connection could be used; the server is tried last for `retry`.
    pub(crate) fn record_connect_failure(&self, retry: Duration) {
        self.connect_failures.fetch_add(1, Ordering::Relaxed);
        let retry_ms = u64::try_from(retry.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.elapsed_ms().saturating_add(retry_ms);
        self.avoided_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Remembers that a check succeeded. Returns whether the server was down before.
    pub(crate) fn record_passed_check(&self) -> bool {
        self.avoided_until_ms.store(0, Ordering::Relaxed);
        self.failed_checks.store(0, Ordering::Relaxed);
        self.is_down.swap(false, Ordering::Relaxed)
    }

    /// Remembers that a check failed. Returns whether the server counts as down only since then.
    pub(crate) fn record_failed_check(&self) -> bool {
        let failed = self.failed_checks.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        failed == FAILED_CHECKS_MAX && !self.is_down.swap(true, Ordering::Relaxed)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failed_checks_take_a_server_down_and_one_brings_it_back() {
        let health = ServerHealth::new();
        assert!(!health.record_failed_check() && health.is_healthy());
        assert!(!health.record_passed_check());
        assert!(!health.record_failed_check() && health.is_healthy());
        assert!(health.record_failed_check() && !health.is_healthy());
        assert!(!health.record_failed_check() && !health.is_healthy());
        assert!(health.record_passed_check() && health.is_healthy());
    }

    #[test]
    fn a_failed_connection_is_held_against_a_server_for_a_while() {
        let health = ServerHealth::new();
        health.record_connect_failure(Duration::ZERO);
        assert!(health.is_healthy());
        health.record_connect_failure(Duration::from_secs(3600));
        health.record_connect_failure(Duration::ZERO);
        assert!(!health.is_healthy());
        assert_eq!(health.connect_failures(), 3);
        health.record_passed_check();
        assert!(health.is_healthy());
    }
}

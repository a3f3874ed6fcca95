//! Failures that can come often, of which a few are logged.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The shortest interval between two log lines on failures.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts the failures of one kind, of which one in an interval is logged.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<FailureCount>);

#[derive(Debug, Default)]
struct FailureCount {
    logged: Option<Instant>,
    /// The failures since the last line.
    failures: u64,
}

impl FailureLog {
    /// Counts a failure. Returns the number of failures since the last line if a line is due.
    pub(crate) fn record(&self, now: Instant) -> Option<u64> {
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count.failures += 1;
        if count.logged.is_some_and(|logged| now.duration_since(logged) < LOG_EVERY) {
            return None;
        }
        count.logged = Some(now);
        Some(std::mem::take(&mut count.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_failing_is_logged_now_and_then() {
        let (log, began) = (FailureLog::default(), Instant::now());
        for (after_s, wanted) in
            [(0, Some(1)), (1, None), (9, None), (10, Some(3)), (11, None), (25, Some(2))]
        {
            let now = began + Duration::from_secs(after_s);
            assert_eq!(log.record(now), wanted, "after {after_s} s");
        }
    }
}

//! Whether a replica may take requests, and when one that is left out is tried again.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Blame, ClientError};

/// The time after which a replica that was left out is tried again, and the longest to which it
/// doubles while the replica stays so.
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The state of one replica.
#[derive(Debug, Default)]
pub(crate) struct ReplicaHealth {
    /// Whether the last connection or key of it was admitted.
    is_admitted: bool,
    failure: Option<ReplicaFailure>,
    /// The wait that leads to `retry_at`.
    backoff: Duration,
    /// When a replica that is not admitted may be tried; `None` for at once.
    retry_at: Option<Instant>,
    is_being_tried: bool,
}

/// The reason why a replica is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFailure {
    /// Whether it was judged and refused; otherwise it could not be reached or judged.
    pub is_refused: bool,
    /// The name of the failed check, if it was judged.
    pub check: Option<String>,
    /// The reason, in words.
    pub reason: String,
}

impl ReplicaFailure {
    fn from_error(error: &ClientError) -> Self {
        Self {
            is_refused: error.blame() == Blame::Evidence,
            check: error.failed_check().map(str::to_owned),
            reason: error.reason(),
        }
    }
}

impl ReplicaHealth {
    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// The reason why it is left out; `None` if it is admitted or was not tried yet.
    pub(crate) fn failure(&self) -> Option<&ReplicaFailure> {
        self.failure.as_ref()
    }

    /// Remembers that the replica was admitted. Returns whether it was left out before.
    pub(crate) fn record_admission(&mut self) -> bool {
        (self.is_admitted, self.backoff, self.retry_at) = (true, Duration::ZERO, None);
        self.failure.take().is_some()
    }

    /// Remembers that nothing could be sent to the replica. Returns the reason if it is news.
    pub(crate) fn record_failure(
        &mut self,
        error: &ClientError,
        now: Instant,
    ) -> Option<ReplicaFailure> {
        self.is_admitted = false;
        // Requests that fail at the same time are one failure.
        if self.retry_at.is_none_or(|retry_at| retry_at <= now) {
            self.backoff = (self.backoff * 2).clamp(RETRY_MIN, RETRY_MAX);
            self.retry_at = Some(now + self.backoff);
        }
        let failure = ReplicaFailure::from_error(error);
        let is_news = self.failure.as_ref() != Some(&failure);
        self.failure = Some(failure.clone());
        is_news.then_some(failure)
    }

    /// Has the replica admitted anew, at once, if it was admitted.
    pub(crate) fn forget_admission(&mut self) {
        if std::mem::take(&mut self.is_admitted) {
            self.retry_at = None;
        }
    }

    /// Begins to try a replica that is left out, if its time has come and nobody else does.
    pub(crate) fn begin_try(&mut self, now: Instant) -> bool {
        let is_due = self.next_try(now).is_some_and(|due| due <= now);
        self.is_being_tried |= is_due;
        is_due
    }

    pub(crate) fn end_try(&mut self) {
        self.is_being_tried = false;
    }

    /// When the replica is to be tried; `None` if it is admitted, or being tried.
    pub(crate) fn next_try(&self, now: Instant) -> Option<Instant> {
        match self.is_admitted || self.is_being_tried {
            true => None,
            false => Some(self.retry_at.unwrap_or(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> ClientError {
        let deadline = Duration::from_secs(1);
        ClientError::DialTimeout { target: "a:1".into(), deadline }
    }

    #[test]
    fn a_replica_is_tried_again_after_a_wait_that_doubles_up_to_a_minute() {
        let (mut health, mut now) = (ReplicaHealth::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            health.record_failure(&unreachable(), now);
            // A second request that fails at the same time changes nothing.
            assert_eq!(health.record_failure(&unreachable(), now), None);
            assert!(!health.begin_try(now));
            let due = health.next_try(now).unwrap();
            waits.push((due - now).as_secs());
            now = due;
            assert!(health.begin_try(now), "its time has come");
            assert!(!health.begin_try(now), "it is being tried");
            health.end_try();
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        assert!(health.record_admission() && health.is_admitted() && health.failure().is_none());
        assert_eq!(health.next_try(now), None);
        health.record_failure(&unreachable(), now);
        assert_eq!(health.next_try(now), Some(now + RETRY_MIN), "the wait begins anew");
    }

    #[test]
    fn a_reason_is_news_once_and_names_the_check() {
        let (mut health, now) = (ReplicaHealth::default(), Instant::now());
        let refused = ClientError::Report { reason: "no".into() };
        let told = health.record_failure(&refused, now).unwrap();
        assert!(told.is_refused && told.reason.contains("no"), "{told:?}");
        assert_eq!(told.check.as_deref(), Some("report"));
        assert_eq!(health.record_failure(&refused, now), None);
        assert!(!health.record_failure(&unreachable(), now).unwrap().is_refused);
        // One that only has to be admitted anew does not wait, and one that is left out still does.
        health.forget_admission();
        assert_eq!(health.next_try(now), Some(now + RETRY_MIN));
        health.record_admission();
        health.forget_admission();
        assert!(health.begin_try(now) && !health.is_admitted());
    }
}

//! Time of one thread by named parts.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Milliseconds by part, since the start of a process.
pub(crate) type DurationsMs = BTreeMap<&'static str, f64>;

/// Books the time of one thread under names.
pub(crate) struct Spans {
    parts: BTreeMap<&'static str, Duration>,
    last: Instant,
}

impl Spans {
    /// Starts the clock with no time booked.
    pub(crate) fn start() -> Self {
        Self { parts: BTreeMap::new(), last: Instant::now() }
    }

    /// Books the time since the last lap under this name.
    pub(crate) fn record_span(&mut self, name: &'static str) {
        let now = Instant::now();
        *self.parts.entry(name).or_default() += now - self.last;
        self.last = now;
    }

    /// The time booked so far, in ms by name.
    pub(crate) fn durations_ms(&self) -> DurationsMs {
        self.parts.iter().map(|(name, time)| (*name, time.as_secs_f64() * 1e3)).collect()
    }
}

/// The time booked after `before` and up to `after`, by part.
pub(crate) fn duration_differences(before: &DurationsMs, after: &DurationsMs) -> DurationsMs {
    let since = |name: &&'static str| before.get(*name).copied().unwrap_or_default();
    after.iter().map(|(name, ms)| (*name, ms - since(name))).collect()
}

//! Counters in Prometheus' text format.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the histogram's buckets, in microseconds: one signature to a busy machine.
const BUCKETS_US: [u64; 10] = [50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000, 100_000, 1_000_000];

/// What the service counts. Names of outcomes are a closed set, so the memory is bounded.
#[derive(Default)]
pub(crate) struct Metrics {
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    buckets: [AtomicU64; BUCKETS_US.len()],
    appraisals: AtomicU64,
    appraisal_us: AtomicU64,
}

impl Metrics {
    /// Counts a request by what came of it.
    pub(crate) fn count(&self, outcome: &'static str) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry(outcome).or_default() += 1;
    }

    /// Notes how long one appraisal took, without its wait.
    pub(crate) fn appraised_in(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (bucket, bound) in self.buckets.iter().zip(BUCKETS_US) {
            if us <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.appraisals.fetch_add(1, Ordering::Relaxed);
        self.appraisal_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn text(&self, waiting: usize) -> String {
        let mut text = String::from(
            "# HELP confide_requests_total Requests by outcome.\n\
             # TYPE confide_requests_total counter\n",
        );
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (outcome, count) in outcomes {
            let _ = writeln!(text, "confide_requests_total{{outcome=\"{outcome}\"}} {count}");
        }
        text += "# HELP confide_requests_waiting Requests that wait for a place.\n\
                 # TYPE confide_requests_waiting gauge\n";
        let _ = writeln!(text, "confide_requests_waiting {waiting}");
        text += "# HELP confide_appraisal_seconds Time of one appraisal, without its wait.\n\
                 # TYPE confide_appraisal_seconds histogram\n";
        const NAME: &str = "confide_appraisal_seconds";
        for (bucket, bound) in self.buckets.iter().zip(BUCKETS_US) {
            let (count, bound) = (bucket.load(Ordering::Relaxed), bound as f64 / 1e6);
            let _ = writeln!(text, "{NAME}_bucket{{le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (&self.appraisals, &self.appraisal_us);
        let (count, sum) = (count.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
        let _ = writeln!(text, "{NAME}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{NAME}_sum {}", sum as f64 / 1e6);
        let _ = writeln!(text, "{NAME}_count {count}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_outcomes_are_counted() {
        let metrics = Metrics::default();
        metrics.count("accepted");
        metrics.count("accepted");
        metrics.appraised_in(Duration::from_micros(60));
        metrics.appraised_in(Duration::from_secs(3));
        let text = metrics.text(7);
        for line in [
            "confide_requests_total{outcome=\"accepted\"} 2",
            "confide_requests_waiting 7",
            "confide_appraisal_seconds_bucket{le=\"0.00005\"} 0",
            "confide_appraisal_seconds_bucket{le=\"0.0001\"} 1",
            "confide_appraisal_seconds_bucket{le=\"1\"} 1",
            "confide_appraisal_seconds_bucket{le=\"+Inf\"} 2",
            "confide_appraisal_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}

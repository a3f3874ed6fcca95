//! The metrics of the service.

use std::time::Duration;

use confide_http::metrics::{Gauge, Histogram, LabelledCounter, MetricsRegistry};

/// The upper bounds of the histogram's buckets, in seconds.
const BUCKETS_S: [f64; 10] =
    [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0];

/// The metrics of the service. Outcomes come from a closed set, so that memory is bounded.
pub(crate) struct Metrics {
    registry: MetricsRegistry,
    requests: LabelledCounter<1>,
    waiting: Gauge,
    appraisal: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = MetricsRegistry::default();
        Self {
            requests: registry.labelled_counter("confide_requests_total", "Requests by outcome."),
            waiting: registry.gauge("confide_requests_waiting", "Requests in the queue."),
            appraisal: registry.histogram(
                "confide_appraisal_seconds",
                "Time of one appraisal, without its wait.",
                BUCKETS_S,
            ),
            registry,
        }
    }

    /// Counts a request by its outcome.
    pub(crate) fn count_request(&self, outcome: &'static str) {
        self.requests.get_or_create(&[("outcome", outcome.into())]).inc();
    }

    /// Records the duration of one appraisal, without its wait in the queue.
    pub(crate) fn observe_appraisal(&self, took: Duration) {
        self.appraisal.observe(took.as_secs_f64());
    }

    /// The text of all metrics; `waiting` is the number of requests in the queue.
    pub(crate) fn encode(&self, waiting: usize) -> String {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.registry.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_outcomes_are_counted() {
        let metrics = Metrics::new();
        metrics.count_request("accepted");
        metrics.count_request("accepted");
        metrics.observe_appraisal(Duration::from_micros(60));
        metrics.observe_appraisal(Duration::from_secs(3));
        let text = metrics.encode(7);
        for line in [
            "confide_requests_total{outcome=\"accepted\"} 2",
            "confide_requests_waiting 7",
            "confide_appraisal_seconds_bucket{le=\"0.00005\"} 0",
            "confide_appraisal_seconds_bucket{le=\"0.0001\"} 1",
            "confide_appraisal_seconds_bucket{le=\"1.0\"} 1",
            "confide_appraisal_seconds_bucket{le=\"+Inf\"} 2",
            "confide_appraisal_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}

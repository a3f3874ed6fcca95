//! The metrics of the service.

use confide_http::metrics::{Counter, Gauge, LabelledCounter, MetricsRegistry, OptionalGauge};

/// The counters and gauges. Labels come from closed sets, so that no client can grow them.
pub(crate) struct Metrics {
    registry: MetricsRegistry,
    requests: LabelledCounter<2>,
    pub(crate) stale: Counter,
    pub(crate) fetched: Counter,
    pub(crate) fetches_failed: Counter,
    pub(crate) rollbacks_refused: Counter,
    pub(crate) database_errors: Counter,
    #[cfg_attr(
        not(feature = "simulate"),
        expect(dead_code, reason = "only a fake root has faults")
    )]
    pub(crate) faults: Counter,
    simulated: Gauge,
    documents: OptionalGauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = MetricsRegistry::default();
        let requests = registry.labelled_counter(
            "confide_pccs_requests_total",
            "Requests answered, by document and status.",
        );
        let mut counter =
            |name: &str, help: &str| registry.counter(&format!("confide_pccs_{name}"), help);
        Self {
            requests,
            stale: counter("stale_total", "Stale documents served."),
            fetched: counter("fetches_total", "Documents fetched from a vendor."),
            fetches_failed: counter("fetches_failed_total", "Fetches that failed."),
            rollbacks_refused: counter("rollbacks_refused_total", "Older documents refused."),
            database_errors: counter("database_errors_total", "Database calls that failed."),
            faults: counter("faults_total", "Simulated faults."),
            simulated: registry.gauge(
                "confide_pccs_simulated",
                "1 if the endorsements are simulated and endorse no real machine, else 0.",
            ),
            documents: registry
                .optional_gauge("confide_pccs_documents", "Documents in the database."),
            registry,
        }
    }

    /// Counts a request by its route and the status of its answer.
    pub(crate) fn count_answer(&self, route: &'static str, status: u16) {
        let labels = [("route", route.into()), ("status", status.to_string().into())];
        self.requests.get_or_create(&labels).inc();
    }

    /// The text of all metrics. `documents` is the number of stored documents, or `None` if the
    /// database did not answer.
    pub(crate) fn encode(&self, is_simulated: bool, documents: Option<u64>) -> String {
        self.simulated.set(is_simulated.into());
        self.documents.set(documents);
        self.registry.encode()
    }
}

//! Counters in Prometheus' text format (version 0.0.4).

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is counted. Labels come from closed sets, so that no client can grow them.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(crate) stale: AtomicU64,
    pub(crate) fetched: AtomicU64,
    pub(crate) fetches_failed: AtomicU64,
    pub(crate) rollbacks_refused: AtomicU64,
    pub(crate) database_errors: AtomicU64,
    pub(crate) faults: AtomicU64,
}

impl Metrics {
    pub(crate) fn answered(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn text(&self, simulated: bool, documents: Option<u64>) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, u64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines: Vec<(String, u64)> = requests
            .into_iter()
            .map(|((route, status), count)| {
                (format!("{{route=\"{route}\",status=\"{status}\"}}"), count)
            })
            .collect();
        let help = "Requests answered, by document and status.";
        family("confide_pccs_requests_total", "counter", help, &lines);
        for (name, help, counter) in [
            ("stale_total", "Documents served past their time.", &self.stale),
            ("fetches_total", "Documents fetched from a vendor.", &self.fetched),
            ("fetches_failed_total", "Fetches that failed.", &self.fetches_failed),
            ("rollbacks_refused_total", "Older editions refused.", &self.rollbacks_refused),
            ("database_errors_total", "Calls that the database failed.", &self.database_errors),
            ("faults_total", "Simulated faults.", &self.faults),
        ] {
            let value = counter.load(Ordering::Relaxed);
            family(&format!("confide_pccs_{name}"), "counter", help, &[(String::new(), value)]);
        }
        let gauge = |value: u64| [(String::new(), value)];
        let help = "1 where the endorsements are simulated and endorse nothing.";
        family("confide_pccs_simulated", "gauge", help, &gauge(simulated.into()));
        if let Some(documents) = documents {
            family("confide_pccs_documents", "gauge", "Documents kept.", &gauge(documents));
        }
        text
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

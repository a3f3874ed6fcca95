//! Counters of the server since its start.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use confide_engine::AdapterReport;
use serde_json::{Value, json};

/// Counters of the whole server.
#[derive(Debug, Default)]
pub struct ServerCounters {
    pub(crate) answers: AtomicU64,
    pub(crate) broken_answers: AtomicU64,
    pub(crate) tokens: AtomicU64,
    adapted: Mutex<AdapterSums>,
}

/// Sums over all answers that used an adapter.
#[derive(Debug, Default)]
struct AdapterSums {
    answers: u64,
    lost: u64,
    he_operations: u64,
    he_rotations: u64,
    answered_vectors: u64,
    round_trips: u64,
    online_bytes: u64,
    steps_ms: BTreeMap<&'static str, f64>,
}

impl ServerCounters {
    /// Starts to count one answer.
    pub fn start_answer_meter(self: &Arc<Self>) -> AnswerMeter {
        AnswerMeter { counters: Arc::clone(self), tokens: 0, ended: false }
    }

    /// Adds an adapter's report on one answer.
    pub fn add_report(&self, adapter: &AdapterReport) {
        let AdapterReport { report, lost, .. } = adapter;
        let mut sums = self.adapted.lock().unwrap_or_else(PoisonError::into_inner);
        sums.answers += 1;
        sums.lost += u64::from(lost.is_some());
        sums.he_operations += report.he_operations;
        sums.he_rotations += report.he_rotations;
        sums.answered_vectors += report.answered_vectors;
        sums.round_trips += report.round_trips;
        sums.online_bytes += report.online_bytes;
        for (step, ms) in &report.steps_ms {
            *sums.steps_ms.entry(step).or_default() += ms;
        }
    }

    /// The counters as one JSON object.
    pub fn to_json(&self) -> Value {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sums = self.adapted.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "answers": of(&self.answers),
            "broken_answers": of(&self.broken_answers),
            "tokens": of(&self.tokens),
            "adapted": {
                "answers": sums.answers,
                "lost": sums.lost,
                "he_operations": sums.he_operations,
                "he_rotations": sums.he_rotations,
                "answered_vectors": sums.answered_vectors,
                "round_trips": sums.round_trips,
                "online_bytes": sums.online_bytes,
                "steps_ms": sums.steps_ms,
            },
        })
    }
}

/// Counts one answer. If it is dropped before the answer has finished, the answer counts as broken.
#[derive(Debug)]
pub struct AnswerMeter {
    counters: Arc<ServerCounters>,
    tokens: u64,
    ended: bool,
}

impl AnswerMeter {
    /// Counts one token.
    pub fn count_token(&mut self) {
        self.tokens += 1;
    }

    /// Marks the answer as complete; `adapter` is the adapter's report, if the answer used one.
    pub fn finish(&mut self, adapter: Option<&AdapterReport>) {
        self.ended = true;
        if let Some(adapter) = adapter {
            self.counters.add_report(adapter);
        }
    }
}

impl Drop for AnswerMeter {
    fn drop(&mut self) {
        let ServerCounters { answers, broken_answers, .. } = &*self.counters;
        let count = if self.ended { answers } else { broken_answers };
        count.fetch_add(1, Ordering::Relaxed);
        self.counters.tokens.fetch_add(self.tokens, Ordering::Relaxed);
    }
}

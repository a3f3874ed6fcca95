use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

/// Milliseconds by part. What no part claims is the remainder, so the parts add up to the total.
pub(crate) struct Spans {
    parts: BTreeMap<&'static str, Duration>,
    last: Instant,
    step: Duration,
    began: Instant,
}

impl Spans {
    /// Nothing booked yet; the clock runs.
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self { parts: BTreeMap::new(), last: now, step: Duration::ZERO, began: now }
    }

    /// The next step begins now; what passed since the last one belongs to none.
    pub(crate) fn resume(&mut self) {
        self.last = Instant::now();
        self.began = self.last;
    }

    /// Books the time since the last lap under this name.
    pub(crate) fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        *self.parts.entry(name).or_default() += now - self.last;
        self.last = now;
    }

    /// `A·x` is there: `step_ms` ends here.
    pub(crate) fn end_of_step(&mut self) {
        let now = Instant::now();
        self.step += now - self.began;
        *self.parts.entry("remainder_ms").or_default() += now - self.last;
        self.last = now;
    }

    /// Of all steps until now.
    pub(crate) fn total_ms(&self) -> f64 {
        self.step.as_secs_f64() * 1e3
    }

    /// Each part's mean over `steps`, with `step_ms`.
    pub(crate) fn means(&self, steps: usize) -> Map<String, Value> {
        let mean = |time: &Duration| json!(time.as_secs_f64() * 1e3 / steps.max(1) as f64);
        let mut means: Map<String, Value> =
            self.parts.iter().map(|(name, time)| ((*name).to_owned(), mean(time))).collect();
        if !self.step.is_zero() {
            means.insert("step_ms".into(), mean(&self.step));
        }
        means
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_step_add_up_to_it() {
        let mut spans = Spans::start();
        for _ in 0..3 {
            spans.resume();
            spans.lap("encrypt_ms");
            std::thread::sleep(Duration::from_millis(1));
            spans.lap("decrypt_ms");
            spans.end_of_step();
            spans.lap("b_ms");
        }
        let means = spans.means(3);
        let of = |name: &str| means[name].as_f64().expect("a number");
        let parts = ["encrypt_ms", "decrypt_ms", "remainder_ms"].map(of);
        assert!((parts.iter().sum::<f64>() - of("step_ms")).abs() < 1e-3, "{means:?}");
        assert!(of("step_ms") >= 1.0);
    }
}

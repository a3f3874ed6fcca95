//! The content of a run for other crates: its rows and every number, without its layout.

use serde_json::Value;

use super::LoadedRecord;
use crate::{
    rows::row::{Row, RowEstimate},
    samples::{Slice, columns::samples_by_slice},
    suite::bench::CostForm,
    validity::Validity,
};

/// The facts of a run and of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// The SHA-256 of the text of `record.json`, decompressed, by which the run is known.
    pub sha256: String,
    /// The suite's name.
    pub suite: String,
    /// The hash of the suite's text.
    pub suite_sha256: String,
    /// The hash of the plan: two runs with the same one were to measure the same.
    pub plan_sha256: String,
    /// Processor, CPUs, memory and kernel in one line.
    pub machine: String,
    /// The program's version.
    pub version: String,
    /// The commit of the working folder; `unknown` outside a repository.
    pub commit: String,
    /// `quick` or `full`.
    pub effort: String,
    /// The seed of the plan.
    pub seed: u64,
    /// The wall clock at the start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The duration of all sessions, in seconds.
    pub wall_s: f64,
    /// The number of sessions: how often the run was started or resumed.
    pub sessions: usize,
    /// The reason why it stopped before its plan was done.
    pub partial: Option<String>,
    /// The judgement of its A/A rows: `valid`, `invalid` or `not_judged`.
    pub validity: String,
    /// Its rows, A/A rows among them.
    pub rows: Vec<RowFacts>,
}

/// The facts of one row: one arm against the reference arm.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFacts {
    /// The label that people read.
    pub label: String,
    /// The bench.
    pub bench: String,
    /// The point of its grid, `size=1`; empty without a grid.
    pub case: String,
    /// The id of the definition in MODELS.md.
    pub model: String,
    /// The metric, its unit last in the name.
    pub metric: String,
    /// The statistic that turned the samples of a run into one number.
    pub stat: String,
    /// `lower` or `higher`.
    pub better: String,
    /// The reference arm.
    pub reference: String,
    /// The arm.
    pub arm: String,
    /// The arm's name for people.
    pub arm_label: String,
    /// True for the A/A row.
    pub twin: bool,
    /// True where the row is in the printed table.
    pub headline: bool,
    /// The reference arm's value over blocks; absent for a percentile without a tail.
    pub clear: Option<f64>,
    /// This arm's value, taken the same way.
    pub protected: Option<f64>,
    /// The number of paired blocks.
    pub blocks: usize,
    /// True where the cost is written as a difference rather than as a ratio.
    pub as_difference: bool,
    /// The cost as a ratio: above 1 is slower, or less of what should be more.
    pub ratio: Option<IntervalEstimate>,
    /// The cost as a difference, in the metric's unit.
    pub difference: Option<IntervalEstimate>,
    /// `within`, `above`, `below`, `undecided` or `not_evaluated`.
    pub verdict: String,
    /// True where the row rests on something simulated.
    pub simulated: bool,
    /// True where the client's CPU was the limit.
    pub client_bound: bool,
}

/// An estimate, with its 95 % interval where there are blocks enough to print one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalEstimate {
    /// The estimate.
    pub value: f64,
    /// The lower and the upper end.
    pub interval: Option<[f64; 2]>,
}

/// One number that an arm gave: of a sample, or of a whole run of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue<'a> {
    /// The bench.
    pub bench: &'a str,
    /// The point of its grid.
    pub case: &'a str,
    /// The block; those of the warm-up are counted.
    pub block: u32,
    /// The arm.
    pub arm: &'a str,
    /// True for the A/A arm.
    pub twin: bool,
    /// An index into the run's sessions.
    pub session: u32,
    /// The position of the slice in its block, from 0.
    pub order: u32,
    /// The seconds from the start of the run to that of the slice.
    pub slice_started_s: f64,
    /// True where the slice is left out of every estimate, as part of the warm-up.
    pub warmup: bool,
    /// The reason why the slice gives no pair.
    pub void: Option<&'a str>,
    /// The index of the sample; `None` for a number of the whole run.
    pub sample: Option<u32>,
    /// The seconds from the slice's start to the instant at which the request was scheduled.
    pub at_s: Option<f64>,
    /// True where the request failed.
    pub failed: bool,
    /// The metric, its unit last in the name.
    pub metric: &'a str,
    /// The value, in the unit of the metric.
    pub value: f64,
}

impl LoadedRecord {
    /// Returns the facts of the run and of its rows.
    pub fn facts(&self) -> RunFacts {
        let record = &self.record;
        let machine = &record.machine;
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        RunFacts {
            sha256: self.sha256.clone(),
            suite: record.suite.name.clone(),
            suite_sha256: record.suite.sha256.clone(),
            plan_sha256: record.plan.sha256.clone(),
            machine: format!(
                "{}, {} CPUs, {gib:.0} GiB, Linux {}",
                machine.describe_processor(),
                machine.cpus_online,
                machine.kernel
            ),
            version: record.version.clone(),
            commit: record.commit.clone(),
            effort: serialised_name(&record.effort),
            seed: record.seed,
            started_unix_s: record.started_unix_s,
            wall_s: record.wall_s,
            sessions: record.sessions.len(),
            partial: record.partial.clone(),
            validity: match record.validity {
                Validity::Valid { .. } => "valid",
                Validity::Invalid { .. } => "invalid",
                Validity::NotJudged { .. } => "not_judged",
            }
            .to_owned(),
            rows: record.rows.iter().map(row_facts).collect(),
        }
    }

    /// Lists every number of every slice, in the order of the slices.
    pub fn metric_values(&self) -> Vec<MetricValue<'_>> {
        let mut numbers = Vec::new();
        for (slice, mine) in self.slices.iter().zip(samples_by_slice(&self.samples, &self.slices)) {
            for sample in mine {
                numbers.extend(sample.metrics.iter().map(|(metric, value)| MetricValue {
                    sample: Some(sample.index),
                    at_s: sample.at_s,
                    failed: sample.error.is_some(),
                    ..new_metric_value(slice, metric, *value)
                }));
            }
            numbers.extend(
                slice.metrics.iter().map(|(metric, v)| new_metric_value(slice, metric, *v)),
            );
        }
        numbers
    }
}

fn new_metric_value<'a>(slice: &'a Slice, metric: &'a str, value: f64) -> MetricValue<'a> {
    MetricValue {
        bench: &slice.place.bench,
        case: &slice.place.case,
        block: slice.place.block,
        arm: &slice.place.arm,
        twin: slice.place.twin,
        session: slice.session,
        order: slice.order,
        slice_started_s: slice.started_s,
        warmup: slice.warmup,
        void: slice.void.as_deref(),
        sample: None,
        at_s: None,
        failed: false,
        metric,
        value,
    }
}

fn row_facts(row: &Row) -> RowFacts {
    let is_figure = !row.is_without_tail();
    let estimated = |ends: &RowEstimate| IntervalEstimate {
        value: ends.value,
        interval: row.has_interval().then_some([ends.low, ends.high]),
    };
    RowFacts {
        label: row.label.clone(),
        bench: row.bench.clone(),
        case: row.case.clone(),
        model: row.model.clone(),
        metric: row.metric.clone(),
        stat: serialised_name(&row.stat),
        better: serialised_name(&row.better),
        reference: row.reference.clone(),
        arm: row.arm.clone(),
        arm_label: row.arm_label.clone(),
        twin: row.twin,
        headline: row.headline,
        clear: is_figure.then_some(row.clear),
        protected: is_figure.then_some(row.protected),
        blocks: row.blocks,
        as_difference: row.show == CostForm::Difference || row.ratio.is_none(),
        ratio: row.ratio.as_ref().filter(|_| is_figure).map(estimated),
        difference: is_figure.then(|| estimated(&row.difference)),
        verdict: match serde_json::to_value(row.outcome) {
            Ok(outcome) => outcome["verdict"].as_str().unwrap_or_default().to_owned(),
            Err(_) => String::new(),
        },
        simulated: row.simulated,
        client_bound: row.client_bound,
    }
}

/// Returns the word that stands for a choice in the record.
fn serialised_name(choice: &impl serde::Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

//! One workload of a suite, its metrics and the lines through them.

use std::collections::BTreeMap;

use confide_estimate::{mean, quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A value for commands: a text, or a choice by whether a path exists.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum CommandValue {
    Text(String),
    Choice { if_exists: String, then: String, otherwise: String },
}

/// Parameters of one point of a grid, by name.
pub(crate) type Params = BTreeMap<String, Value>;

/// `[[bench]]`: one workload over a grid of parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bench {
    pub(crate) name: String,
    /// The layer of the report page, where it is not the suite's.
    pub(crate) layer: Option<String>,
    /// The id of the definition in MODELS.md.
    pub(crate) model: String,
    pub(crate) load: LoadModel,
    /// The arms, of which the first is the reference.
    pub(crate) arms: Vec<String>,
    pub(crate) requests: u32,
    /// A param that `requests` is multiplied by, for work that grows with its callers.
    pub(crate) requests_times: Option<String>,
    pub(crate) blocks: EffortBlocks,
    /// The number of blocks that run first and are left out of every estimate.
    #[serde(default = "default_one")]
    pub(crate) warmup: u32,
    /// The number of blocks after which services and arms are started again; 0 keeps them. A process
    /// has luck of its own (memory, threads, neighbours) that would otherwise pass for a property
    /// of its arm.
    #[serde(default = "default_one")]
    pub(crate) restart_every: u32,
    #[serde(default)]
    pub(crate) params: Params,
    #[serde(default)]
    pub(crate) grid: BTreeMap<String, Vec<Value>>,
    /// The lists that replace those of `grid` in a quick run.
    #[serde(default)]
    pub(crate) quick_grid: BTreeMap<String, Vec<Value>>,
    /// The variables that override the suite's `vars` for this bench.
    #[serde(default)]
    pub(crate) vars: BTreeMap<String, CommandValue>,
    #[serde(default)]
    pub(crate) expect: Params,
    #[serde(default = "default_true")]
    pub(crate) same_answer: bool,
    #[serde(default = "default_deadline_s")]
    pub(crate) deadline_s: u32,
    /// `load`: the arm is a client whose CPU must not be the limit. `subject`: it is measured.
    #[serde(default)]
    pub(crate) client: CpuTimeSource,
    #[serde(rename = "metric")]
    pub(crate) metrics: Vec<Metric>,
    /// Lines of cost over work that the report prints.
    #[serde(default, rename = "fit")]
    pub(crate) fits: Vec<CostPerWork>,
}

/// The number of blocks for each effort; with 0 in a quick run the bench is left to full ones.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EffortBlocks {
    pub(crate) quick: u32,
    pub(crate) full: u32,
}

/// When the load generator sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoadModel {
    /// The next request waits for the last answer.
    Closed,
    /// Requests start on a schedule; latency counts from the scheduled instant.
    Open,
}

/// The process whose CPU time the arm reports: the load generator, or the subject itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CpuTimeSource {
    Load,
    #[default]
    Subject,
}

/// `[[bench.metric]]`: one number per run, and how it is judged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) stat: RunStatistic,
    #[serde(default)]
    pub(crate) better: BetterDirection,
    #[serde(default)]
    pub(crate) show: CostForm,
    /// The relative equivalence margin: 0.02 is 2 %.
    #[serde(default = "default_margin")]
    pub(crate) margin: f64,
    /// One-sided limits on the difference by arm, in the metric's unit, in place of `margin`.
    #[serde(default)]
    pub(crate) adds_at_most: BTreeMap<String, f64>,
    /// True where rows of this metric stand in the printed table and judge the run's A/A.
    #[serde(default)]
    pub(crate) headline: bool,
    /// A second reference arm, which the arms of the bench are compared with as well.
    pub(crate) also_against: Option<String>,
    /// True where the arms stand in the order of their threads and this is a figure per thread,
    /// which more threads do not raise: what rises is marked.
    #[serde(default)]
    pub(crate) scales: bool,
    /// False where only the values are shown, because the reference arm does not have the figure.
    #[serde(default = "default_true")]
    pub(crate) compare: bool,
}

/// The statistic that turns the samples of one run into one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Stat")]
pub(crate) enum RunStatistic {
    #[default]
    Mean,
    P50,
    P95,
    P99,
    Min,
    Max,
    Sum,
}

/// The direction of the metric that is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Better")]
pub(crate) enum BetterDirection {
    Higher,
    #[default]
    Lower,
}

/// The form in which the cost is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Show")]
pub(crate) enum CostForm {
    Difference,
    #[default]
    Ratio,
}

/// `[[bench.fit]]`: a metric over another one that counts work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostPerWork {
    /// The metric that costs.
    pub(crate) cost: String,
    /// The metric that counts work.
    pub(crate) work: String,
    /// The name of one unit of work, for people.
    pub(crate) unit: String,
    /// The arms that it is made for; absent for all of the bench.
    pub(crate) arms: Option<Vec<String>>,
    /// The points of the grid that it goes through, by param; absent for all. Works of different
    /// kinds have lines of their own.
    #[serde(default)]
    pub(crate) only: BTreeMap<String, Vec<Value>>,
    /// The name of those points.
    pub(crate) label: Option<String>,
}

impl CostPerWork {
    /// Checks that the bench has what the fit names; the error says what it lacks.
    pub(crate) fn check(&self, bench: &Bench) -> Result<(), String> {
        for name in [&self.cost, &self.work] {
            let is_known = bench.metrics.iter().any(|metric| metric.name == *name);
            ensure(is_known, || format!("fit names {name}, not a metric of the bench"))?;
        }
        for (name, values) in &self.only {
            let grid = bench.grid.get(name).map(Vec::as_slice).unwrap_or_default();
            let is_known = values.iter().all(|value| grid.contains(value));
            ensure(is_known, || format!("fit names a value of {name} that is not in the grid"))?;
        }
        for arm in self.arms.iter().flatten() {
            let is_known = bench.arms.contains(arm);
            ensure(is_known, || format!("fit names {arm}, which is not in the bench"))?;
        }
        Ok(())
    }
}

impl Metric {
    /// Checks the margin and that the bench has the arms that the metric names.
    pub(super) fn check(&self, bench: &Bench) -> Result<(), String> {
        let is_margin = self.margin > 0.0 && self.margin < 1.0;
        ensure(is_margin, || format!("margin of {} must be between 0 and 1", self.name))?;
        if let Some(arm) = &self.also_against {
            let is_second = bench.arms.iter().skip(1).any(|known| known == arm);
            ensure(is_second, || format!("also_against names {arm}, not an arm after the first"))?;
        }
        for arm in self.adds_at_most.keys() {
            let is_known = bench.arms.contains(arm);
            ensure(is_known, || format!("adds_at_most names {arm}, which is not in the bench"))?;
        }
        Ok(())
    }
}

/// Returns the message as an error if a check does not hold.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

impl RunStatistic {
    /// Reduces many numbers to one; `None` for no numbers.
    pub(crate) fn reduce(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean => mean(values),
            Self::P50 => quantile(values, 0.5),
            Self::P95 => quantile(values, 0.95),
            Self::P99 => quantile(values, 0.99),
            Self::Min => quantile(values, 0.0),
            Self::Max => quantile(values, 1.0),
            Self::Sum => (!values.is_empty()).then(|| values.iter().sum()),
        }
    }
}

fn default_one() -> u32 {
    1
}

fn default_deadline_s() -> u32 {
    60
}

fn default_true() -> bool {
    true
}

fn default_margin() -> f64 {
    0.02
}

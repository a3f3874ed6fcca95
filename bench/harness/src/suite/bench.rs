//! One workload of a suite, its metrics and the lines through them.

use std::collections::BTreeMap;

use confide_estimate::{mean, quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A value for commands: a text, or a choice by whether a path exists.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Var {
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
    /// Another layer of the report page than the suite's.
    pub(crate) layer: Option<String>,
    /// Definition in MODELS.md.
    pub(crate) model: String,
    pub(crate) load: Load,
    /// The first is the reference.
    pub(crate) arms: Vec<String>,
    pub(crate) requests: u32,
    /// A param that `requests` is multiplied by, for work that grows with its callers.
    pub(crate) requests_times: Option<String>,
    pub(crate) blocks: Blocks,
    /// Blocks that run first and are kept out of every estimate.
    #[serde(default = "default_one")]
    pub(crate) warmup: u32,
    /// Blocks after which services and arms are started anew; 0 keeps them. A process has luck of
    /// its own (memory, threads, neighbours) that would otherwise pass for a property of its arm.
    #[serde(default = "default_one")]
    pub(crate) restart_every: u32,
    #[serde(default)]
    pub(crate) params: Params,
    #[serde(default)]
    pub(crate) grid: BTreeMap<String, Vec<Value>>,
    /// Replaces lists of `grid` in a quick run.
    #[serde(default)]
    pub(crate) quick_grid: BTreeMap<String, Vec<Value>>,
    /// Override the suite's `vars` for this bench.
    #[serde(default)]
    pub(crate) vars: BTreeMap<String, Var>,
    #[serde(default)]
    pub(crate) expect: Params,
    #[serde(default = "default_true")]
    pub(crate) same_answer: bool,
    #[serde(default = "default_deadline_s")]
    pub(crate) deadline_s: u32,
    /// `load`: the arm is a client whose CPU must not be the limit. `subject`: it is measured.
    #[serde(default)]
    pub(crate) client: Client,
    #[serde(rename = "metric")]
    pub(crate) metrics: Vec<Metric>,
    /// Lines of cost over work that the report prints.
    #[serde(default, rename = "fit")]
    pub(crate) fits: Vec<Fit>,
}

/// Blocks per effort; none in a quick run leaves the bench to full ones.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Blocks {
    pub(crate) quick: u32,
    pub(crate) full: u32,
}

/// When the load generator sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// The next request waits for the last answer.
    Closed,
    /// Requests start on a schedule; latency counts from the scheduled instant.
    Open,
}

/// Whose CPU time the arm's process reports: the load generator's or the subject's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Client {
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
    pub(crate) stat: Stat,
    #[serde(default)]
    pub(crate) better: Better,
    #[serde(default)]
    pub(crate) show: Show,
    /// Relative equivalence margin.
    #[serde(default = "default_margin")]
    pub(crate) margin: f64,
    /// By arm: a one-sided limit on the difference, in the metric's unit, instead of `margin`.
    #[serde(default)]
    pub(crate) adds_at_most: BTreeMap<String, f64>,
    /// Rows of this metric stand in the printed table and judge the run's A/A.
    #[serde(default)]
    pub(crate) headline: bool,
    /// A second reference: the arms of the bench are set against this one as well.
    pub(crate) also_against: Option<String>,
    /// The arms stand in the order of their threads and this is a figure per thread, which more
    /// threads do not raise: what rises is marked.
    #[serde(default)]
    pub(crate) scales: bool,
    /// False: shown with its values only, for figures that the reference arm does not have.
    #[serde(default = "default_true")]
    pub(crate) compare: bool,
}

/// The statistic that turns the samples of one run into one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stat {
    #[default]
    Mean,
    P50,
    P95,
    Min,
    Max,
    Sum,
}

/// Which direction costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    Higher,
    #[default]
    Lower,
}

/// How the cost is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Show {
    Difference,
    #[default]
    Ratio,
}

/// `[[bench.fit]]`: a metric over another one that counts work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fit {
    /// The metric that costs.
    pub(crate) cost: String,
    /// The metric that counts work.
    pub(crate) work: String,
    /// One unit of work, for people.
    pub(crate) unit: String,
    /// Arms that it is made for; absent: all of the bench.
    pub(crate) arms: Option<Vec<String>>,
    /// Points of the grid that it goes through, by param; absent: all. Unlike works have lines of
    /// their own.
    #[serde(default)]
    pub(crate) only: BTreeMap<String, Vec<Value>>,
    /// What those points are called.
    pub(crate) label: Option<String>,
}

impl Fit {
    /// Checks that the bench has what the fit names; the error says what it lacks.
    pub(crate) fn check(&self, bench: &Bench) -> Result<(), String> {
        for name in [&self.cost, &self.work] {
            let is_known = bench.metrics.iter().any(|metric| metric.name == *name);
            ensure(is_known, || format!("fit names {name}, which is no metric of the bench"))?;
        }
        for (name, values) in &self.only {
            let grid = bench.grid.get(name).map(Vec::as_slice).unwrap_or_default();
            let is_known = values.iter().all(|value| grid.contains(value));
            ensure(is_known, || format!("fit wants a value of {name} that the grid has not"))?;
        }
        for arm in self.arms.iter().flatten() {
            let is_known = bench.arms.contains(arm);
            ensure(is_known, || format!("fit names {arm}, which the bench does not"))?;
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
            ensure(is_second, || format!("also_against names {arm}, which is no second arm"))?;
        }
        for arm in self.adds_at_most.keys() {
            let is_known = bench.arms.contains(arm);
            ensure(is_known, || format!("adds_at_most names {arm}, which the bench does not"))?;
        }
        Ok(())
    }
}

/// The error of a check that did not hold.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

impl Stat {
    /// One number of many; `None` of nothing.
    pub(crate) fn reduce(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean => mean(values),
            Self::P50 => quantile(values, 0.5),
            Self::P95 => quantile(values, 0.95),
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

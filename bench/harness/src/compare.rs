//! Two machines, by their records alone: what may be compared, what may not, and why.
//!
//! Arms of one run met in the same blocks; these never did. With one machine on each side nothing
//! tells the treatment (a TEE switched on) from the machine, so that the difference is printed with
//! the words `confounded: machine` and no interval. With several records on each side the boots or
//! machines are the unit, and they are resampled.

mod figures;
pub(crate) mod refusal;
pub(crate) mod scope;
mod show;
#[cfg(test)]
mod tests;

use self::refusal::{Refusal, RefusalReason};
use confide_estimate::{ClusterEstimate, ClusterMethod, Clusters};
use serde::Serialize;

use crate::{
    loaded::LoadedRecord,
    plan::{Case, Effort, cases},
    rows::{
        BOOTSTRAP_SEED,
        row::{AaVerdict, RowNote},
    },
    suite::bench::{Bench, BetterDirection, Metric},
};

use figures::{ComparedFigure, SideFigures};
use scope::{CompareOptions, ComparedCase, FigureOrigin};

/// The words of the verdict where there is nothing to resample.
pub(crate) const CONFOUNDED: &str = "confounded: machine";

/// The comparison of two sides, each of one or more records.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The side that is compared with.
    pub(crate) a: Vec<FigureOrigin>,
    /// The side whose cost is asked for.
    pub(crate) b: Vec<FigureOrigin>,
    /// The reasons for which nothing can be compared; then there are no rows.
    pub(crate) refused: Vec<Refusal>,
    /// What a reader must know of the two sides: that their commits differ, or their suites' texts.
    pub(crate) says: Vec<String>,
    /// What differs between the machines besides the treatment, as far as the records tell.
    pub(crate) differs: Vec<String>,
    pub(crate) rows: Vec<ComparedRow>,
}

/// A figure as both sides measured it, and the result of its comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComparedRow {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) model: String,
    pub(crate) label: String,
    pub(crate) arm: String,
    pub(crate) metric: String,
    pub(crate) better: BetterDirection,
    pub(crate) a: ComparedFigure,
    pub(crate) b: ComparedFigure,
    pub(crate) result: ComparisonResult,
    /// The ratio of both sides after each is divided by a floor measured next to it.
    pub(crate) to_floor: Option<FloorAdjustedCost>,
    /// Remarks that a reader needs in order to understand the figures.
    pub(crate) says: Vec<String>,
}

/// The result for two figures.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub(crate) enum ComparisonResult {
    /// The figures are not compared.
    Refused { reasons: Vec<Refusal> },
    /// Both figures are shown, without a ratio.
    Columns { reason: Refusal },
    /// One cluster on a side: a ratio and a difference, without an interval.
    Confounded { ratio: Option<f64>, difference: f64 },
    /// Both sides have several clusters, which were resampled.
    Clustered { ratio: Option<ClusteredEstimate>, difference: ClusteredEstimate },
}

/// An estimate over clusters.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ClusteredEstimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) clusters: [usize; 2],
    /// `bca` or `student`.
    pub(crate) method: &'static str,
    /// True where the clusters are too few for a verdict, however far apart they lie.
    pub(crate) few: bool,
}

/// The cost after each side is divided by its own floor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FloorAdjustedCost {
    pub(crate) name: String,
    pub(crate) a: f64,
    pub(crate) b: f64,
    /// The cost of B over A, as shares of their floors.
    pub(crate) ratio: f64,
}

/// Compares what `b` measured with what `a` measured.
pub fn compare(a: &[LoadedRecord], b: &[LoadedRecord], options: &CompareOptions) -> Comparison {
    let refused = refusal::refuse_records(a, b, options);
    let mut comparison = Comparison {
        a: a.iter().map(figures::figure_origin).collect(),
        b: b.iter().map(figures::figure_origin).collect(),
        refused,
        says: refusal::describe_version_differences(a, b),
        differs: figures::machine_differences(a, b),
        rows: Vec::new(),
    };
    let parsed = a.first().map(|first| first.record.parse_suite());
    let suite = match parsed {
        Some(Ok(suite)) => suite,
        Some(Err(error)) => {
            comparison.refused.push(Refusal::new(RefusalReason::DifferentSuite, error.to_string()));
            return comparison;
        }
        None => return comparison,
    };
    if !comparison.refused.is_empty() {
        return comparison;
    }
    let across = refusal::refuse_different_hardware(a, b);
    let sides = [SideFigures::new(&suite, a), SideFigures::new(&suite, b)];
    for bench in &suite.benches {
        let wanted = options.bench.as_ref().is_none_or(|name| *name == bench.name);
        for case in all_cases(bench).iter().filter(|_| wanted) {
            for metric in bench.metrics.iter().filter(|metric| is_selected_metric(metric, options))
            {
                for arm in &bench.arms {
                    let one = ComparedCase { suite: &suite, bench, case, metric, arm };
                    comparison.rows.extend(one.compare_sides(&sides, across.as_ref(), options));
                }
            }
        }
    }
    comparison
}

impl Comparison {
    /// Tells whether any row has a ratio or a difference.
    pub fn has_compared_rows(&self) -> bool {
        self.rows.iter().any(|row| {
            matches!(
                row.result,
                ComparisonResult::Confounded { .. } | ComparisonResult::Clustered { .. }
            )
        })
    }

    /// Returns the reasons for which nothing was compared.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refused
    }

    /// Lists the reasons for which rows were not compared, row by row, each once per row.
    pub fn row_refusal_reasons(&self) -> Vec<RefusalReason> {
        let reasons = |row: &ComparedRow| match &row.result {
            ComparisonResult::Refused { reasons } => {
                let mut kinds: Vec<RefusalReason> =
                    reasons.iter().map(|refusal| refusal.reason).collect();
                kinds.sort_unstable();
                kinds.dedup();
                kinds
            }
            ComparisonResult::Columns { reason } => vec![reason.reason],
            _ => Vec::new(),
        };
        self.rows.iter().flat_map(reasons).collect()
    }
}

/// Lists the points of the full grid, then those that only a quick run visits.
pub(crate) fn all_cases(bench: &Bench) -> Vec<Case> {
    let mut all = cases(bench, Effort::Full);
    for case in cases(bench, Effort::Quick) {
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

fn is_selected_metric(metric: &Metric, options: &CompareOptions) -> bool {
    match &options.metric {
        Some(name) => *name == metric.name,
        None => options.all || metric.headline,
    }
}

impl ComparedCase<'_> {
    /// Compares one figure of both sides; `None` if neither side measured it.
    fn compare_sides(
        &self,
        [a, b]: &[SideFigures<'_>; 2],
        across: Option<&Refusal>,
        options: &CompareOptions,
    ) -> Option<ComparedRow> {
        let (of_a, of_b) = (a.gather_case(self), b.gather_case(self));
        if of_a.values.is_empty() && of_b.values.is_empty() {
            return None;
        }
        let mut reasons = refusal::refuse_row(self, [&of_a, &of_b]);
        if reasons.is_empty() {
            reasons.extend(refusal::refuse_unequal_work(self, [a, b]));
        }
        let result = match across.filter(|_| !options.dangerous_across_hardware) {
            _ if !reasons.is_empty() => ComparisonResult::Refused { reasons },
            Some(reason) => ComparisonResult::Columns { reason: reason.clone() },
            None => self.compute_result(&of_a.values, &of_b.values),
        };
        let mut says = collect_remarks(&of_a, &of_b);
        if let (Some(reason), true) = (across, options.dangerous_across_hardware) {
            says.insert(0, format!("different hardware, so not an overhead: {}", reason.detail));
        }
        let label = crate::format::fill_label(&self.metric.label, &self.case.params);
        let arm_label = self.suite.arm(self.arm).map_or(self.arm, |arm| arm.label.as_str());
        Some(ComparedRow {
            bench: self.bench.name.clone(),
            case: self.case.key.clone(),
            model: self.bench.model.clone(),
            label: format!("{label}: {arm_label}"),
            arm: self.arm.to_owned(),
            metric: self.metric.name.clone(),
            better: self.metric.better,
            to_floor: match result {
                ComparisonResult::Refused { .. } => None,
                _ => self.compare_relative_to_floor(&of_a, &of_b),
            },
            a: of_a.to_compared_figure(),
            b: of_b.to_compared_figure(),
            result,
            says,
        })
    }

    /// Computes the cost of B over A: above 1 is slower, or less of what should be more.
    fn compute_result(&self, a: &[Vec<f64>], b: &[Vec<f64>]) -> ComparisonResult {
        let (from, to) = match self.metric.better {
            BetterDirection::Lower => (a, b),
            BetterDirection::Higher => (b, a),
        };
        let positive = a.iter().chain(b).flatten().all(|value| *value > 0.0);
        let log = |clusters: &[Vec<f64>]| figures::mean_of_means(clusters, f64::ln);
        let confounded = || ComparisonResult::Confounded {
            ratio: positive.then(|| (log(to) - log(from)).exp()),
            difference: figures::central_value(b) - figures::central_value(a),
        };
        let Ok(difference) = Clusters::new(a, b, BOOTSTRAP_SEED).and_then(|both| both.difference())
        else {
            return confounded();
        };
        let ratio = Clusters::new(from, to, BOOTSTRAP_SEED).and_then(|both| both.ratio());
        ComparisonResult::Clustered {
            ratio: ratio.ok().map(ClusteredEstimate::from),
            difference: difference.into(),
        }
    }

    fn compare_relative_to_floor(
        &self,
        a: &figures::GatheredFigures,
        b: &figures::GatheredFigures,
    ) -> Option<FloorAdjustedCost> {
        let (name, of_a) = a.floor.clone()?;
        let (other, of_b) = b.floor.clone()?;
        let ratio = match self.metric.better {
            BetterDirection::Lower => of_b / of_a,
            BetterDirection::Higher => of_a / of_b,
        };
        (name == other && ratio.is_finite()).then_some(FloorAdjustedCost {
            name,
            a: of_a,
            b: of_b,
            ratio,
        })
    }
}

impl From<ClusterEstimate> for ClusteredEstimate {
    fn from(estimate: ClusterEstimate) -> Self {
        Self {
            value: estimate.value,
            low: estimate.interval.low,
            high: estimate.interval.high,
            clusters: estimate.clusters,
            method: match estimate.method {
                ClusterMethod::Bca => "bca",
                ClusterMethod::Student => "student",
            },
            few: estimate.few,
        }
    }
}

/// Collects the remarks of both sides, each once.
fn collect_remarks(a: &figures::GatheredFigures, b: &figures::GatheredFigures) -> Vec<String> {
    let mut says: Vec<String> = Vec::new();
    for (side, gathered) in [("A", a), ("B", b)] {
        let notes = gathered.notes.iter().filter(|note| !matches!(note, RowNote::ThinTail { .. }));
        let all = notes.map(RowNote::long_text).chain(gathered.marks.iter().cloned());
        for text in all {
            match says.iter_mut().find(|known| known.ends_with(&format!(": {text}"))) {
                Some(known) => *known = format!("A and B: {text}"),
                None => says.push(format!("{side}: {text}")),
            }
        }
        let blocks = gathered.block_count();
        if blocks < confide_estimate::INTERVAL_BLOCKS_MIN && blocks > 0 {
            says.push(format!("{side}: {blocks} blocks"));
        }
        if gathered.aa.iter().any(|aa| *aa == Some(AaVerdict::TooFewBlocks) || aa.is_none()) {
            says.push(format!("{side}: its A/A row is not judged"));
        }
    }
    if a.simulated && b.simulated {
        says.push("simulated".into());
    }
    says
}

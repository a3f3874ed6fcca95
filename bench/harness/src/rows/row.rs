//! A row, its estimate, its verdict and what stands with them in a record.

use std::collections::BTreeMap;

use confide_estimate::{
    AaJudgement, Estimate, INTERVAL_BLOCKS_MIN, Verdict, minimum_detectable_effect,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    disturbed::Disturbance,
    suite::bench::{BetterDirection, CostForm, RunStatistic},
};

/// One arm against the reference arm, by one metric, at one point of the grid.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Row {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) model: String,
    pub(crate) load: String,
    pub(crate) label: String,
    pub(crate) metric: String,
    pub(crate) stat: RunStatistic,
    pub(crate) better: BetterDirection,
    pub(crate) show: CostForm,
    pub(crate) reference: String,
    pub(crate) arm: String,
    pub(crate) arm_label: String,
    pub(crate) twin: bool,
    pub(crate) headline: bool,
    /// The reference arm's mean over blocks: geometric where a ratio is shown, else arithmetic.
    pub(crate) clear: f64,
    /// This arm's mean over blocks, taken the same way.
    pub(crate) protected: f64,
    pub(crate) blocks: usize,
    /// Cost: above 1 is slower or less, whichever way the metric counts.
    pub(crate) ratio: Option<RowEstimate>,
    /// This arm minus the reference arm, in the metric's unit.
    pub(crate) difference: RowEstimate,
    pub(crate) margin: f64,
    pub(crate) adds_at_most: Option<f64>,
    pub(crate) outcome: RowVerdict,
    /// The judgement of an A/A row; for another row, that of the A/A row that it belongs to.
    pub(crate) aa: Option<AaVerdict>,
    /// The correlation between the two arms' blocks, which says what pairing gains.
    pub(crate) correlation: Option<f64>,
    pub(crate) simulated: bool,
    pub(crate) client_bound: bool,
    pub(crate) floor: Option<FloorRatio>,
    pub(crate) round_trips: [Option<f64>; 2],
    /// The smallest effect that this row could have seen, in four of five runs: its own, or that of its A/A row where
    /// that is greater. Relative where a ratio is shown (0.02 is 2 %), else in the metric's unit; absent below ten
    /// blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) smallest_effect: Option<f64>,
    /// The remarks of the arms that a reader of these figures must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<String>,
    /// True where the blocks are too few: the ends stand in the record and are not printed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_interval: bool,
    /// The widths of the 95 % interval of the log ratio, with pairing and without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) widths: Option<[f64; 2]>,
    /// The median of the means of all pairs of blocks' ratios, which outliers do not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hodges_lehmann: Option<f64>,
    /// The p-value of Wilcoxon's signed-rank test of the ratios against 1, two-sided: secondary to
    /// the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p: Option<f64>,
    /// The same p-value with all headline rows of the suite tried together (Holm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p_holm: Option<f64>,
    /// The reasons in its own samples to doubt it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<RowNote>,
    /// CPU time, memory and disturbed slices of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<Box<RunCosts>>,
}

impl Row {
    /// Returns what a row is about: bench, case, metric, arm and reference.
    pub(crate) fn key(&self) -> [&str; 5] {
        [&self.bench, &self.case, &self.metric, &self.arm, &self.reference]
    }

    /// True where its interval may be printed.
    pub(crate) fn has_interval(&self) -> bool {
        self.blocks >= INTERVAL_BLOCKS_MIN
    }

    /// The ratio where the cost is shown as one; `None` where the difference is.
    pub(crate) fn ratio_if_shown(&self) -> Option<&RowEstimate> {
        self.ratio.as_ref().filter(|_| self.show == CostForm::Ratio)
    }

    /// The smallest effect that the row's own interval could have seen, in the scale in which intervals are symmetric:
    /// the logarithm of a shown ratio, else the metric's unit. `None` below ten blocks.
    pub(crate) fn own_minimum_detectable_effect(&self) -> Option<f64> {
        let half = match self.ratio_if_shown() {
            Some(ends) => (ends.high / ends.low).ln() / 2.0,
            None => (self.difference.high - self.difference.low) / 2.0,
        };
        let wanted = self.has_interval() && half.is_finite();
        wanted.then(|| minimum_detectable_effect(half, self.blocks)).flatten()
    }

    /// True where the cost is smaller than the smallest effect that the row could have seen.
    pub(crate) fn is_indistinguishable(&self) -> bool {
        let effect = match self.ratio_if_shown() {
            Some(ends) => ends.value.ln().abs().exp_m1(),
            None => self.difference.value.abs(),
        };
        !self.twin && self.smallest_effect.is_some_and(|smallest| effect < smallest)
    }

    /// True where the interval of its ratio lies above its margin, whatever limit its difference is judged by.
    pub(crate) fn exceeds_margin(&self) -> bool {
        self.ratio.is_some_and(|ends| ends.low > 1.0 + self.margin)
    }

    /// True for a percentile of runs whose tail holds too little: it is not a figure at all.
    pub(crate) fn is_without_tail(&self) -> bool {
        self.notes.iter().any(|note| matches!(note, RowNote::ThinTail { .. }))
    }
}

/// An estimate with its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Ends")]
pub(crate) struct RowEstimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) low_999: f64,
    pub(crate) high_999: f64,
    pub(crate) block_sd: f64,
}

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub(crate) enum RowVerdict {
    #[serde(rename = "within")]
    WithinMargin,
    #[serde(rename = "above")]
    AboveMargin,
    #[serde(rename = "below")]
    BelowMargin,
    Undecided {
        blocks_wanted: Option<u64>,
    },
    /// No ratio can be made of zeros, or no margin was set.
    NotEvaluated,
}

/// The judgement of an A/A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AaVerdict {
    Valid,
    OutsideMargin,
    ExcludesOne,
    TooFewBlocks,
}

/// The arm's figure over a floor measured next to it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct FloorRatio {
    pub(crate) name: String,
    pub(crate) value: f64,
}

/// All samples of one arm at one point of the grid, pooled.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Figure")]
pub(crate) struct PooledFigure {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) arm: String,
    pub(crate) twin: bool,
    pub(crate) metric: String,
    pub(crate) n: usize,
    pub(crate) mean: f64,
    /// The median; like the other percentiles, absent if its tail holds fewer than ten samples.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// The 95 % intervals of p50, p95 and p99 by the binomial count, where the tails hold enough.
    /// Samples are taken as independent, which those of one run seldom are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) percentile_ends: Option<[Option<[f64; 2]>; 3]>,
    pub(crate) simulated: bool,
}

impl From<Estimate> for RowEstimate {
    fn from(estimate: Estimate) -> Self {
        Self {
            value: estimate.value,
            low: estimate.interval.low,
            high: estimate.interval.high,
            low_999: estimate.wide.low,
            // Two blocks may leave it open: JSON has no infinity, and a record has to be readable.
            high_999: estimate.wide.high.min(f64::MAX),
            block_sd: estimate.block_sd,
        }
    }
}

impl From<Verdict> for RowVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::WithinMargin => Self::WithinMargin,
            Verdict::AboveMargin => Self::AboveMargin,
            Verdict::BelowMargin => Self::BelowMargin,
            Verdict::Undecided { blocks_wanted } => Self::Undecided { blocks_wanted },
        }
    }
}

impl From<AaJudgement> for AaVerdict {
    fn from(judgement: AaJudgement) -> Self {
        match judgement {
            AaJudgement::Valid => Self::Valid,
            AaJudgement::OutsideMargin => Self::OutsideMargin,
            AaJudgement::ExcludesOne => Self::ExcludesOne,
            AaJudgement::TooFewBlocks => Self::TooFewBlocks,
        }
    }
}

/// The costs of the runs of the reference arm and of this one, in that order; absent if a record
/// does not tell.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct RunCosts {
    /// CPU seconds of the arm with all processes below it, mean over its slices.
    pub(crate) cpu_s: [Option<f64>; 2],
    /// CPU seconds of the services while the arm ran.
    pub(crate) services_cpu_s: [Option<f64>; 2],
    /// The mean number of CPUs that arm and services kept busy.
    pub(crate) cores: [Option<f64>; 2],
    /// The largest peak of the arm's memory in any slice.
    pub(crate) memory_mib: [Option<f64>; 2],
    pub(crate) services_memory_mib: [Option<f64>; 2],
    /// For a rate, the work for each CPU second of arm and services.
    pub(crate) per_cpu_s: [Option<f64>; 2],
    /// CPU seconds of the harness while these slices ran, mean, and its largest peak.
    pub(crate) harness_cpu_s: Option<f64>,
    pub(crate) harness_memory_mib: Option<f64>,
    /// The number of slices of both arms, and how many of them were disturbed.
    pub(crate) slices: usize,
    pub(crate) disturbed: usize,
    /// The number of slices in which each disturbance was seen.
    pub(crate) disturbances: BTreeMap<Disturbance, usize>,
    /// The estimate of the blocks in which neither slice was disturbed, where that leaves some out
    /// and at least two in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) without_disturbed: Option<UndisturbedEstimate>,
}

/// An estimate of fewer blocks, for comparison; the row's own stays the one with all.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "QuietEstimate")]
pub(crate) struct UndisturbedEstimate {
    pub(crate) blocks: usize,
    pub(crate) ratio: Option<RowEstimate>,
    pub(crate) difference: RowEstimate,
}

/// A remark on one row.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "note")]
#[schemars(rename = "Note")]
pub(crate) enum RowNote {
    /// In a closed loop with this many users the latency is users / rate: it repeats the rate, and
    /// says nothing of the time of service.
    LittlesLaw { users: f64 },
    /// A run has so few samples that the tail of the percentile holds fewer than ten.
    ThinTail { samples: f64 },
    /// An open load whose requests were scheduled when the last one ended: a stall hides the requests
    /// that should have come meanwhile (coordinated omission).
    NotOpen { share: f64 },
    /// The ratio changed for good at this block, in the second half of the run.
    Unsteady { block: usize, blocks: usize },
    /// Neighbouring blocks resemble each other: the interval may be too narrow.
    Alike { correlation: f64 },
    /// The median of the pairs (Hodges and Lehmann) lies outside the interval of the mean.
    Outliers { hodges_lehmann: f64 },
    /// More per thread than the reference arm's: no scaling does that, the reference is the odd one.
    Superlinear { times: f64 },
    /// Both neighbours on the grid lie on the same side, beyond the intervals.
    NonMonotone { param: String },
}

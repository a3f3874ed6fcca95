//! From samples to rows: pairs, estimates, verdicts, and the judgement of the A/A rows.

mod beside;
mod notes;

use std::collections::{BTreeMap, BTreeSet};

use confide_estimate::{
    AaJudgement, Estimate, INTERVAL_BLOCKS_MIN, Margin, Paired, Verdict, hodges_lehmann, holm,
    mean, outside_by_chance, quantile, quantile_interval, signed_rank_p, supported_quantile,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use beside::Beside;
pub(crate) use notes::{Note, is_cache_served};

use crate::{
    Effort, Validity,
    format::label,
    plan::{Case, cases},
    record::Void,
    samples::{Sample, Slice},
    suite::{Bench, Better, Client, Metric, Show, Stat, Suite},
};

/// Client CPU above this share marks a row client-bound (DESIGN section 4).
const CLIENT_BOUND: f64 = 0.8;
/// The bootstrap's own seed: the same samples give the same row for ever.
const BOOTSTRAP_SEED: u64 = 0xc0ff_ee00;

/// One arm against the reference arm, by one metric, at one point of the grid.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Row {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) model: String,
    pub(crate) load: String,
    pub(crate) label: String,
    pub(crate) metric: String,
    pub(crate) stat: Stat,
    pub(crate) better: Better,
    pub(crate) show: Show,
    pub(crate) reference: String,
    pub(crate) arm: String,
    pub(crate) arm_label: String,
    pub(crate) twin: bool,
    pub(crate) headline: bool,
    /// Of the reference arm, over blocks: geometric mean where a ratio is shown, else arithmetic.
    pub(crate) clear: f64,
    /// Of this arm, likewise.
    pub(crate) protected: f64,
    pub(crate) blocks: usize,
    /// Cost: above 1 is slower or less, whichever way the metric counts.
    pub(crate) ratio: Option<Ends>,
    /// This arm minus the reference arm, in the metric's unit.
    pub(crate) difference: Ends,
    pub(crate) margin: f64,
    pub(crate) adds_at_most: Option<f64>,
    pub(crate) outcome: Outcome,
    /// For an A/A row its own judgement, for others that of the A/A row beside it.
    pub(crate) aa: Option<Aa>,
    /// Of the two arms' blocks: what pairing gains.
    pub(crate) correlation: Option<f64>,
    pub(crate) simulated: bool,
    pub(crate) client_bound: bool,
    pub(crate) floor: Option<FloorRatio>,
    pub(crate) round_trips: [Option<f64>; 2],
    /// What the arms said that a reader of these figures must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<String>,
    /// Too few blocks: the ends stand in the record and are not printed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_interval: bool,
    /// Widths of the 95 % interval of the log ratio, with pairing and without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) widths: Option<[f64; 2]>,
    /// The median of the means of all pairs of blocks' ratios, which outliers do not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hodges_lehmann: Option<f64>,
    /// Wilcoxon's signed-rank test of the ratios against 1, two-sided: secondary to the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p: Option<f64>,
    /// The same with all headline rows of the suite tried together (Holm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p_holm: Option<f64>,
    /// What its own samples say against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<Note>,
    /// CPU time, memory and disturbed slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<Box<Beside>>,
}

impl Row {
    /// Whether its interval may be printed.
    pub(crate) fn has_interval(&self) -> bool {
        self.blocks >= INTERVAL_BLOCKS_MIN
    }

    /// A percentile of runs whose tail holds too little: not a figure at all.
    pub(crate) fn is_without_tail(&self) -> bool {
        self.notes.iter().any(|note| matches!(note, Note::ThinTail { .. }))
    }
}

/// An estimate with its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Ends {
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
pub(crate) enum Outcome {
    Within,
    Above,
    Below,
    Undecided {
        blocks_wanted: Option<u64>,
    },
    /// No ratio can be made of zeros, or no margin was set.
    NotEvaluated,
}

/// The judgement of an A/A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aa {
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
pub(crate) struct Figure {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) arm: String,
    pub(crate) twin: bool,
    pub(crate) metric: String,
    pub(crate) n: usize,
    pub(crate) mean: f64,
    /// Only where the tail holds ten samples.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// 95 % intervals of p50, p95 and p99 by the binomial count, where the tails hold enough; of
    /// samples taken as independent, which those of one run seldom are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) percentile_ends: Option<[Option<[f64; 2]>; 3]>,
    pub(crate) simulated: bool,
}

/// Everything that is computed of a run.
pub(crate) struct Judged {
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) voids: Vec<Void>,
    pub(crate) validity: Validity,
}

/// Computes every row of a suite.
pub(crate) fn judge(suite: &Suite, effort: Effort, samples: &[Sample], slices: &[Slice]) -> Judged {
    let runs = Runs::new(samples, slices);
    let mut rows = Vec::new();
    for bench in &suite.benches {
        let cases = cases(bench, effort);
        for case in &cases {
            for metric in bench.metrics.iter().filter(|metric| metric.compare) {
                rows.extend(rows_of(suite, bench, case, metric, &runs));
            }
        }
        notes::mark_non_monotone(bench, &cases, &mut rows);
    }
    correct(&mut rows);
    beside::without_disturbed(suite, effort, samples, slices, &mut rows);
    let validity = validity(&rows);
    Judged { rows, figures: figures(&runs), voids: voids(slices), validity }
}

/// Holm's correction over the headline rows: trying twenty rows finds one in twenty by chance.
fn correct(rows: &mut [Row]) {
    let tried: Vec<usize> = (0..rows.len())
        .filter(|&i| rows[i].headline && !rows[i].twin && rows[i].p.is_some())
        .collect();
    let p: Vec<f64> = tried.iter().filter_map(|&i| rows[i].p).collect();
    for (index, adjusted) in tried.into_iter().zip(holm(&p)) {
        rows[index].p_holm = Some(adjusted);
    }
}

/// Runs by bench, case, arm and block; warm-up left out.
pub(crate) struct Runs<'a> {
    by_arm: BTreeMap<ArmKey<'a>, BTreeMap<u32, Run<'a>>>,
}

type ArmKey<'a> = (&'a str, &'a str, &'a str, bool);

pub(crate) struct Run<'a> {
    pub(crate) slice: &'a Slice,
    pub(crate) samples: Vec<&'a Sample>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(samples: &'a [Sample], slices: &'a [Slice]) -> Self {
        let mut by_arm: BTreeMap<ArmKey<'a>, BTreeMap<u32, Run<'a>>> = BTreeMap::new();
        for slice in slices.iter().filter(|slice| !slice.warmup) {
            let run = Run { slice, samples: Vec::new() };
            by_arm.entry(key(&slice.place)).or_default().insert(slice.place.block, run);
        }
        for sample in samples.iter().filter(|sample| !sample.warmup) {
            let blocks = by_arm.get_mut(&key(&sample.place));
            if let Some(run) = blocks.and_then(|blocks| blocks.get_mut(&sample.place.block)) {
                run.samples.push(sample);
            }
        }
        Self { by_arm }
    }

    /// The runs of one arm that count, block by block.
    pub(crate) fn of<'s>(
        &'s self,
        bench: &'s Bench,
        case: &'s Case,
        arm: &'s str,
        twin: bool,
    ) -> Vec<&'s Run<'s>> {
        let key = (bench.name.as_str(), case.key.as_str(), arm, twin);
        let blocks = self.by_arm.get(&key);
        let valid = |run: &&Run<'s>| run.slice.void.is_none();
        blocks.map(|blocks| blocks.values().filter(valid).collect()).unwrap_or_default()
    }
}

impl Run<'_> {
    /// The one number of this run: of its samples, else of the whole run.
    pub(crate) fn value(&self, metric: &Metric) -> Option<f64> {
        let values: Vec<f64> =
            self.samples.iter().filter_map(|s| s.metrics.get(&metric.name).copied()).collect();
        metric.stat.of(&values).or_else(|| self.slice.metrics.get(&metric.name).copied())
    }
}

fn key(place: &crate::samples::Place) -> ArmKey<'_> {
    (&place.bench, &place.case, &place.arm, place.twin)
}

/// The A/A row first, then one row per other arm.
fn rows_of(
    suite: &Suite,
    bench: &Bench,
    case: &Case,
    metric: &Metric,
    runs: &Runs<'_>,
) -> Vec<Row> {
    let Some(first) = bench.arms.first() else { return Vec::new() };
    let twin = (first.as_str(), first.as_str(), true);
    let others = bench.arms.iter().skip(1).map(|arm| (first.as_str(), arm.as_str(), false));
    let second = metric.also_against.iter().flat_map(|second| {
        let others = bench.arms.iter().skip(1).filter(move |arm| *arm != second);
        others.map(move |arm| (second.as_str(), arm.as_str(), false))
    });
    let mut rows: Vec<Row> = std::iter::once(twin)
        .chain(others)
        .chain(second)
        .filter_map(|(reference, arm, twin)| {
            let theirs = runs.of(bench, case, reference, false);
            let mine = runs.of(bench, case, arm, twin);
            row(suite, bench, case, metric, (&theirs, &mine), (reference, arm, twin))
        })
        .collect();
    let aa = rows.iter().find(|row| row.twin).and_then(|row| row.aa);
    for row in &mut rows {
        row.aa = aa;
    }
    if metric.scales {
        mark_risers(&mut rows, first);
    }
    rows
}

fn row(
    suite: &Suite,
    bench: &Bench,
    case: &Case,
    metric: &Metric,
    (reference, mine): (&[&Run<'_>], &[&Run<'_>]),
    (against, arm, twin): (&str, &str, bool),
) -> Option<Row> {
    let pairs = pairs(metric, reference, mine);
    let (clear, protected): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let paired = Paired::new(&clear, &protected, BOOTSTRAP_SEED).ok()?;
    let difference = paired.difference().ok()?;
    let cost = match metric.better {
        Better::Lower => paired.clone(),
        Better::Higher => Paired::new(&protected, &clear, BOOTSTRAP_SEED).ok()?,
    };
    let ratio = cost.ratio().ok();
    let logs = cost.log_ratios().ok();
    let hodges_lehmann = logs.as_deref().and_then(hodges_lehmann).map(f64::exp);
    let ends = ratio.as_ref().map(|ratio| (ratio.interval.low, ratio.interval.high));
    let notes = notes::notes(bench, case, metric, (reference, mine), &paired, hodges_lehmann, ends);
    let adds_at_most = metric.adds_at_most.get(arm).copied().filter(|_| !twin);
    let outcome = match notes.iter().any(|note| matches!(note, Note::ThinTail { .. })) {
        true => Outcome::NotEvaluated,
        false => outcome(metric, adds_at_most, ratio.as_ref(), &difference),
    };
    let aa = ratio.as_ref().map(|ratio| Aa::from(AaJudgement::of(ratio, metric.margin)));
    let of = |values: &[f64]| centre(values, metric.show == Show::Ratio && ratio.is_some());
    let [arm_label, reference_label] =
        [arm, against].map(|name| suite.arm(name).map_or(name, |arm| arm.label.as_str()));
    let both = reference.iter().chain(mine);
    Some(Row {
        bench: bench.name.clone(),
        case: case.key.clone(),
        model: bench.model.clone(),
        load: format!("{:?}", bench.load).to_lowercase(),
        label: name(bench, case, metric, (against, reference_label), arm_label, twin),
        metric: metric.name.clone(),
        stat: metric.stat,
        better: metric.better,
        show: metric.show,
        reference: against.to_owned(),
        arm: arm.to_owned(),
        arm_label: arm_label.to_owned(),
        twin,
        headline: metric.headline,
        clear: of(&clear),
        protected: of(&protected),
        blocks: clear.len(),
        no_interval: clear.len() < INTERVAL_BLOCKS_MIN,
        correlation: paired.log_correlation(),
        widths: paired.widths(),
        hodges_lehmann,
        p: logs.as_deref().and_then(signed_rank_p),
        p_holm: None,
        notes,
        beside: beside::beside(metric, [reference, mine]),
        ratio: ratio.map(Ends::from),
        difference: difference.into(),
        margin: metric.margin,
        adds_at_most,
        outcome,
        aa: aa.filter(|_| twin),
        marks: marks([(reference_label, reference), (arm_label, mine)]),
        simulated: both.clone().any(|run| run.slice.simulated),
        client_bound: bench.client == Client::Load && (bound(reference) || bound(mine)),
        floor: floor(metric, mine),
        round_trips: [round_trips(reference), round_trips(mine)],
    })
}

/// A figure per thread above that of fewer threads by more than this is no scaling.
const RISES: f64 = 1.05;

/// Marks what gives more per thread than the arm before it: more threads share caches, memory and
/// power, so either the arm before is an outlier or the two do not do the same work.
fn mark_risers(rows: &mut [Row], first: &str) {
    let mut before: Option<(f64, String)> = None;
    for row in rows.iter_mut().filter(|row| !row.twin && row.reference == first) {
        let (least, of) = before.get_or_insert((row.clear, "the reference".to_owned()));
        if row.protected > *least * RISES {
            let mark = format!("out of line: more per thread than {of}");
            row.marks.push(mark);
        }
        before = Some((row.protected, row.arm_label.clone()));
    }
}

/// Each mark once: bare where all runs of the row bear it, with the arm's name where all of that arm
/// do, else with how many runs.
fn marks(sides: [(&str, &[&Run<'_>]); 2]) -> Vec<String> {
    let total: usize = sides.iter().map(|(_, runs)| runs.len()).sum();
    let mut counted: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (side, (_, runs)) in sides.iter().enumerate() {
        for mark in runs.iter().flat_map(|run| &run.slice.marks) {
            counted.entry(mark).or_default()[side] += 1;
        }
    }
    let shown = |(mark, of): (&str, [usize; 2])| {
        let whole = [0, 1].map(|side| of[side] > 0 && of[side] >= sides[side].1.len());
        match (whole, of) {
            ([true, true], _) => mark.to_owned(),
            ([true, false], [_, 0]) => format!("{}: {mark}", sides[0].0),
            ([false, true], [0, _]) => format!("{}: {mark}", sides[1].0),
            (_, [one, two]) => format!("{mark} ({} of {total} runs)", one + two),
        }
    };
    counted.into_iter().map(shown).collect()
}

/// What a row is called: its arm where there are several, its reference where that is a second one.
fn name(
    bench: &Bench,
    case: &Case,
    metric: &Metric,
    (against, reference_label): (&str, &str),
    arm_label: &str,
    twin: bool,
) -> String {
    let mut text = label(&metric.label, &case.params);
    if bench.arms.len() > 2 && !twin {
        text = format!("{text}: {arm_label}");
    }
    if bench.arms.first().is_some_and(|first| first != against) {
        text = format!("{text}, against {reference_label}");
    }
    text
}

fn outcome(
    metric: &Metric,
    adds_at_most: Option<f64>,
    ratio: Option<&Estimate>,
    difference: &Estimate,
) -> Outcome {
    match (adds_at_most, ratio) {
        (Some(limit), _) => Verdict::of(difference, Margin::AtMost(limit)).into(),
        (None, Some(ratio)) => Verdict::of(ratio, Margin::Relative(metric.margin)).into(),
        (None, None) => Outcome::NotEvaluated,
    }
}

/// The blocks in which both arms gave this number.
pub(crate) fn pairs(metric: &Metric, reference: &[&Run<'_>], mine: &[&Run<'_>]) -> Vec<(f64, f64)> {
    let by_block: BTreeMap<u32, f64> =
        mine.iter().filter_map(|run| Some((run.slice.place.block, run.value(metric)?))).collect();
    reference
        .iter()
        .filter_map(|run| Some((run.value(metric)?, *by_block.get(&run.slice.place.block)?)))
        .collect()
}

fn centre(values: &[f64], geometric: bool) -> f64 {
    let n = values.len().max(1) as f64;
    if geometric {
        (values.iter().map(|value| value.ln()).sum::<f64>() / n).exp()
    } else {
        values.iter().sum::<f64>() / n
    }
}

fn bound(runs: &[&Run<'_>]) -> bool {
    let shares: Vec<f64> = runs.iter().filter_map(|run| run.slice.client_cpu).collect();
    quantile(&shares, 0.5).is_some_and(|share| share > CLIENT_BOUND)
}

fn floor(metric: &Metric, runs: &[&Run<'_>]) -> Option<FloorRatio> {
    let mut name = None;
    let logs: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            let floor = run.slice.floor.as_ref().filter(|floor| floor.metric == metric.name)?;
            name.get_or_insert_with(|| floor.name.clone());
            let ratio = run.value(metric)? / floor.value;
            (ratio > 0.0).then(|| ratio.ln())
        })
        .collect();
    Some(FloorRatio { name: name?, value: mean(&logs)?.exp() })
}

fn round_trips(runs: &[&Run<'_>]) -> Option<f64> {
    let trips: Vec<f64> = runs.iter().filter_map(|run| run.slice.round_trips).collect();
    quantile(&trips, 0.5)
}

fn figures(runs: &Runs<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ((bench, case, arm, twin), blocks) in &runs.by_arm {
        let valid: Vec<&Run<'_>> = blocks.values().filter(|run| run.slice.void.is_none()).collect();
        let mut metrics: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let of_samples = valid.iter().flat_map(|run| run.samples.iter().map(|s| &s.metrics));
        let of_runs = valid.iter().map(|run| &run.slice.metrics);
        for (name, value) in of_samples.chain(of_runs).flatten() {
            metrics.entry(name).or_default().push(*value);
        }
        for (metric, values) in metrics {
            let Some(mean) = mean(&values) else { continue };
            figures.push(Figure {
                bench: (*bench).to_owned(),
                case: (*case).to_owned(),
                arm: (*arm).to_owned(),
                twin: *twin,
                metric: metric.to_owned(),
                n: values.len(),
                mean,
                p50: supported_quantile(&values, 0.5),
                p95: supported_quantile(&values, 0.95),
                p99: supported_quantile(&values, 0.99),
                percentile_ends: percentile_ends(&values),
                simulated: valid.iter().any(|run| run.slice.simulated),
            });
        }
    }
    figures
}

fn percentile_ends(values: &[f64]) -> Option<[Option<[f64; 2]>; 3]> {
    let ends = [0.5, 0.95, 0.99].map(|p| {
        supported_quantile(values, p)?;
        quantile_interval(values, p, 0.95).map(|interval| [interval.low, interval.high])
    });
    ends.iter().any(Option::is_some).then_some(ends)
}

fn voids(slices: &[Slice]) -> Vec<Void> {
    let void = |slice: &Slice| {
        Some(Void {
            bench: slice.place.bench.clone(),
            case: slice.place.case.clone(),
            block: slice.place.block,
            arm: format!("{}{}", slice.place.arm, if slice.place.twin { " (A/A)" } else { "" }),
            reason: slice.void.clone()?,
        })
    };
    slices.iter().filter_map(void).collect()
}

/// By the headline A/A rows; where there is none at all, the run is not judged.
///
/// One row outside its margin makes a run of one row invalid (DESIGN section 4). Of many honest rows
/// one in twenty lies outside by chance, so that a run of many is invalid from the number on that
/// chance does not explain, or at one row whose 99.9 % interval excludes 1.
fn validity(rows: &[Row]) -> Validity {
    let twins: Vec<&Row> = rows.iter().filter(|row| row.twin && row.headline).collect();
    let of = |aa: Aa| twins.iter().filter(move |row| row.aa == Some(aa));
    let mut reasons: Vec<String> = of(Aa::ExcludesOne)
        .map(|row| format!("{}: its 99.9 % interval excludes 1", row.label))
        .collect();
    let outside: Vec<String> = of(Aa::OutsideMargin)
        .map(|row| format!("{}: its 95 % interval lies outside the margin", row.label))
        .collect();
    let failed = outside.len();
    let wide = of(Aa::OutsideMargin)
        .any(|row| row.ratio.is_some_and(|ends| ends.low_999 > 1.0 || ends.high_999 < 1.0));
    if wide || !reasons.is_empty() || failed > outside_by_chance(twins.len()) {
        reasons.extend(outside);
        return Validity::Invalid { reasons };
    }
    let few: BTreeSet<usize> = of(Aa::TooFewBlocks).map(|row| row.blocks).collect();
    if let Some(blocks) = few.first() {
        let wanted = confide_estimate::AA_BLOCKS_MIN;
        let reason = format!("an A/A row has {blocks} blocks, a judgement wants {wanted}");
        return Validity::NotJudged { reason };
    }
    if twins.is_empty() {
        return Validity::NotJudged { reason: "no A/A row has two blocks".into() };
    }
    Validity::Valid { judged: twins.len(), failed }
}

impl Stat {
    /// One number of many; `None` of nothing.
    pub(crate) fn of(self, values: &[f64]) -> Option<f64> {
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

impl From<Estimate> for Ends {
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

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Within => Self::Within,
            Verdict::Above => Self::Above,
            Verdict::Below => Self::Below,
            Verdict::Undecided { blocks_wanted } => Self::Undecided { blocks_wanted },
        }
    }
}

impl From<AaJudgement> for Aa {
    fn from(judgement: AaJudgement) -> Self {
        match judgement {
            AaJudgement::Valid => Self::Valid,
            AaJudgement::OutsideMargin => Self::OutsideMargin,
            AaJudgement::ExcludesOne => Self::ExcludesOne,
            AaJudgement::TooFewBlocks => Self::TooFewBlocks,
        }
    }
}

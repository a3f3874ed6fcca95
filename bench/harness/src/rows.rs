//! From samples to rows: pairs, estimates, verdicts, and the judgement of the A/A rows.

pub(crate) mod notes;
pub(crate) mod row;
pub(crate) mod run_costs;
pub(crate) mod runs;
pub(crate) mod text;

use std::collections::{BTreeMap, BTreeSet};

use confide_estimate::{
    AaJudgement, Estimate, INTERVAL_BLOCKS_MIN, Margin, PairedBlocks, Verdict, hodges_lehmann,
    holm, max_outside_by_chance, mean, quantile, quantile_interval, signed_rank_p,
    supported_quantile,
};

use self::{
    row::{
        AaVerdict, FloorRatio, PooledFigure, Row, RowEstimate, RowNote, RowVerdict,
        UndisturbedEstimate,
    },
    runs::{ArmPair, ArmRuns, Run, Runs},
};
use crate::{
    format::fill_label,
    plan::{Case, Effort, cases},
    samples::{Sample, Slice},
    suite::{
        Suite,
        bench::{Bench, BetterDirection, CostForm, CpuTimeSource, Metric},
    },
    validity::{Exclusion, Validity},
};

/// The share of its CPU above which a client marks a row client-bound (bench/METHODOLOGY.md).
const CLIENT_BOUND: f64 = 0.8;
/// The seed of the bootstrap: the same samples give the same row for ever.
pub(crate) const BOOTSTRAP_SEED: u64 = 0xc0ff_ee00;

/// Everything that is computed of a run.
pub(crate) struct RunAnalysis {
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<PooledFigure>,
    pub(crate) voids: Vec<Exclusion>,
    pub(crate) validity: Validity,
}

/// Computes every row of a suite.
pub(crate) fn analyse_run(
    suite: &Suite,
    effort: Effort,
    samples: &[Sample],
    slices: &[Slice],
) -> RunAnalysis {
    let runs = Runs::new(samples, slices);
    let mut rows = compute_suite_rows(suite, effort, &runs, |_, _, _| true);
    for bench in &suite.benches {
        notes::mark_non_monotone(bench, &cases(bench, effort), &mut rows);
    }
    adjust_p_values(&mut rows);
    add_undisturbed_estimates(suite, effort, samples, slices, &mut rows);
    let validity = judge_validity(&rows);
    RunAnalysis { rows, figures: pool_figures(&runs), voids: collect_exclusions(slices), validity }
}

/// Applies Holm's correction to the headline rows: trying twenty rows finds one in twenty by
/// chance.
fn adjust_p_values(rows: &mut [Row]) {
    let tried: Vec<usize> = (0..rows.len())
        .filter(|&i| rows[i].headline && !rows[i].twin && rows[i].p.is_some())
        .collect();
    let p: Vec<f64> = tried.iter().filter_map(|&i| rows[i].p).collect();
    for (index, adjusted) in tried.into_iter().zip(holm(&p)) {
        rows[index].p_holm = Some(adjusted);
    }
}

/// Adds the estimates without disturbed slices to the rows that have some.
fn add_undisturbed_estimates(
    suite: &Suite,
    effort: Effort,
    samples: &[Sample],
    slices: &[Slice],
    rows: &mut [Row],
) {
    let quiet: Vec<Slice> =
        slices.iter().filter(|slice| slice.disturbed.is_empty()).cloned().collect();
    if quiet.len() == slices.len() {
        return;
    }
    let is_disturbed = |row: &Row| row.beside.as_ref().is_some_and(|costs| costs.disturbed > 0);
    let is_wanted = |bench: &Bench, case: &Case, metric: &Metric| {
        let is_here = |row: &Row| {
            (&row.bench, &row.case, &row.metric) == (&bench.name, &case.key, &metric.name)
        };
        rows.iter().any(|row| is_here(row) && is_disturbed(row))
    };
    let quiet_rows = compute_suite_rows(suite, effort, &Runs::new(samples, &quiet), is_wanted);
    for row in rows.iter_mut().filter(|row| is_disturbed(row)) {
        let same =
            quiet_rows.iter().find(|other| (other.twin, other.key()) == (row.twin, row.key()));
        let estimate =
            same.filter(|other| other.blocks < row.blocks).map(|other| UndisturbedEstimate {
                blocks: other.blocks,
                ratio: other.ratio,
                difference: other.difference,
            });
        if let Some(costs) = &mut row.beside {
            costs.without_disturbed = estimate;
        }
    }
}

/// Computes the rows of every metric at every point of the grid that `is_wanted` chooses.
fn compute_suite_rows(
    suite: &Suite,
    effort: Effort,
    runs: &Runs<'_>,
    is_wanted: impl Fn(&Bench, &Case, &Metric) -> bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for bench in &suite.benches {
        for case in &cases(bench, effort) {
            for metric in bench.metrics.iter().filter(|metric| metric.compare) {
                if is_wanted(bench, case, metric) {
                    rows.extend(compute_metric_rows(suite, bench, case, metric, runs));
                }
            }
        }
    }
    rows
}

/// Computes the A/A row first, then one row for each other arm.
fn compute_metric_rows(
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
            let label = |name| suite.arm(name).map_or(name, |arm| arm.label.as_str());
            let arm_runs = |(name, twin)| ArmRuns {
                name,
                label: label(name),
                runs: runs.valid_runs(bench, case, name, twin),
            };
            let [reference, arm] = [(reference, false), (arm, twin)].map(arm_runs);
            compute_row(&ArmPair { bench, case, metric, reference, arm, twin })
        })
        .collect();
    let twin = rows.iter().find(|row| row.twin);
    let aa = twin.and_then(|row| row.aa);
    let noise = twin.and_then(|twin| {
        Some((twin.ratio_if_shown().is_some(), twin.own_minimum_detectable_effect()?))
    });
    for row in &mut rows {
        row.aa = aa;
        let is_ratio = row.ratio_if_shown().is_some();
        // What the same arm differs from itself by, no other arm's cost can be told from: where both are in one scale.
        let noise =
            noise.filter(|(is_of_ratio, _)| *is_of_ratio == is_ratio).map(|(_, noise)| noise);
        let own = row.own_minimum_detectable_effect();
        let smallest = own.map(|own| own.max(noise.unwrap_or_default()));
        row.smallest_effect = smallest.map(|log| if is_ratio { log.exp_m1() } else { log });
    }
    if metric.scales {
        mark_rising_per_thread(&mut rows, first);
    }
    rows
}

/// Computes one row; `None` if no two blocks have both figures.
fn compute_row(pair: &ArmPair<'_>) -> Option<Row> {
    let ArmPair { bench, case, metric, twin, .. } = *pair;
    let (reference, mine) = (pair.reference.runs.as_slice(), pair.arm.runs.as_slice());
    let pairs = pair_values(metric, reference, mine);
    let (clear, protected): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let paired = PairedBlocks::new(&clear, &protected, BOOTSTRAP_SEED).ok()?;
    let difference = paired.difference().ok()?;
    let cost = match metric.better {
        BetterDirection::Lower => paired.clone(),
        BetterDirection::Higher => PairedBlocks::new(&protected, &clear, BOOTSTRAP_SEED).ok()?,
    };
    let ratio = cost.ratio().ok();
    let logs = cost.log_ratios().ok();
    let hodges_lehmann = logs.as_deref().and_then(hodges_lehmann).map(f64::exp);
    let ends = ratio.as_ref().map(|ratio| (ratio.interval.low, ratio.interval.high));
    let notes = notes::compute_notes(pair, &paired, hodges_lehmann, ends);
    let adds_at_most = metric.adds_at_most.get(pair.arm.name).copied().filter(|_| !twin);
    let has_thin_tail = notes.iter().any(|note| matches!(note, RowNote::ThinTail { .. }));
    let outcome = if has_thin_tail {
        RowVerdict::NotEvaluated
    } else {
        compute_verdict(metric, adds_at_most, ratio.as_ref(), &difference)
    };
    let aa =
        ratio.as_ref().map(|ratio| AaVerdict::from(AaJudgement::from_ratio(ratio, metric.margin)));
    let of = |values: &[f64]| block_mean(values, metric.show == CostForm::Ratio && ratio.is_some());
    let both = reference.iter().chain(mine);
    Some(Row {
        bench: bench.name.clone(),
        case: case.key.clone(),
        model: bench.model.clone(),
        load: format!("{:?}", bench.load).to_lowercase(),
        label: label_row(pair),
        metric: metric.name.clone(),
        stat: metric.stat,
        better: metric.better,
        show: metric.show,
        reference: pair.reference.name.to_owned(),
        arm: pair.arm.name.to_owned(),
        arm_label: pair.arm.label.to_owned(),
        twin,
        headline: metric.headline,
        clear: of(&clear),
        protected: of(&protected),
        blocks: clear.len(),
        no_interval: clear.len() < INTERVAL_BLOCKS_MIN,
        correlation: paired.log_correlation(),
        widths: paired.paired_and_unpaired_widths(),
        hodges_lehmann,
        p: logs.as_deref().and_then(signed_rank_p),
        p_holm: None,
        notes,
        beside: run_costs::summarise_costs(metric, [reference, mine]),
        ratio: ratio.map(RowEstimate::from),
        difference: difference.into(),
        margin: metric.margin,
        adds_at_most,
        outcome,
        aa: aa.filter(|_| twin),
        marks: summarise_marks([(pair.reference.label, reference), (pair.arm.label, mine)]),
        simulated: both.clone().any(|run| run.slice.simulated),
        client_bound: bench.client == CpuTimeSource::Load
            && (is_client_bound(reference) || is_client_bound(mine)),
        floor: ratio_to_floor(metric, mine),
        smallest_effect: None,
        round_trips: [median_round_trips(reference), median_round_trips(mine)],
    })
}

/// The factor by which a figure per thread may exceed that of fewer threads; what exceeds it more
/// is not a scaling.
const RISES: f64 = 1.05;

/// Marks rows that give more per thread than the arm before: more threads share caches, memory and
/// power, so either the arm before is an outlier or the two do not do the same work.
fn mark_rising_per_thread(rows: &mut [Row], first: &str) {
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

/// Lists each mark once: bare where all runs of the row bear it, with the arm's name where all of
/// that arm do, else with how many runs.
fn summarise_marks(sides: [(&str, &[&Run<'_>]); 2]) -> Vec<String> {
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

/// Names a row: by its arm where there are several, by its reference where that is a second one.
fn label_row(pair: &ArmPair<'_>) -> String {
    let arms = &pair.bench.arms;
    let mut text = fill_label(&pair.metric.label, &pair.case.params);
    if arms.len() > 2 && !pair.twin {
        text = format!("{text}: {}", pair.arm.label);
    }
    if arms.first().is_some_and(|first| first != pair.reference.name) {
        text = format!("{text}, against {}", pair.reference.label);
    }
    text
}

fn compute_verdict(
    metric: &Metric,
    adds_at_most: Option<f64>,
    ratio: Option<&Estimate>,
    difference: &Estimate,
) -> RowVerdict {
    match (adds_at_most, ratio) {
        (Some(limit), _) => Verdict::from_estimate(difference, Margin::AtMost(limit)).into(),
        (None, Some(ratio)) => {
            Verdict::from_estimate(ratio, Margin::Relative(metric.margin)).into()
        }
        (None, None) => RowVerdict::NotEvaluated,
    }
}

/// Pairs the values of the blocks in which both arms gave this number.
pub(crate) fn pair_values(
    metric: &Metric,
    reference: &[&Run<'_>],
    mine: &[&Run<'_>],
) -> Vec<(f64, f64)> {
    let by_block: BTreeMap<u32, f64> = mine
        .iter()
        .filter_map(|run| Some((run.slice.place.block, run.metric_value(metric)?)))
        .collect();
    reference
        .iter()
        .filter_map(|run| Some((run.metric_value(metric)?, *by_block.get(&run.slice.place.block)?)))
        .collect()
}

fn block_mean(values: &[f64], geometric: bool) -> f64 {
    let n = values.len().max(1) as f64;
    if geometric {
        (values.iter().map(|value| value.ln()).sum::<f64>() / n).exp()
    } else {
        values.iter().sum::<f64>() / n
    }
}

fn is_client_bound(runs: &[&Run<'_>]) -> bool {
    let shares: Vec<f64> = runs.iter().filter_map(|run| run.slice.client_cpu).collect();
    quantile(&shares, 0.5).is_some_and(|share| share > CLIENT_BOUND)
}

fn ratio_to_floor(metric: &Metric, runs: &[&Run<'_>]) -> Option<FloorRatio> {
    let mut name = None;
    let logs: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            let floor = run.slice.floor.as_ref().filter(|floor| floor.metric == metric.name)?;
            name.get_or_insert_with(|| floor.name.clone());
            let ratio = run.metric_value(metric)? / floor.value;
            (ratio > 0.0).then(|| ratio.ln())
        })
        .collect();
    Some(FloorRatio { name: name?, value: mean(&logs)?.exp() })
}

fn median_round_trips(runs: &[&Run<'_>]) -> Option<f64> {
    let trips: Vec<f64> = runs.iter().filter_map(|run| run.slice.round_trips).collect();
    quantile(&trips, 0.5)
}

fn pool_figures(runs: &Runs<'_>) -> Vec<PooledFigure> {
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
            figures.push(PooledFigure {
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
                percentile_ends: percentile_intervals(&values),
                simulated: valid.iter().any(|run| run.slice.simulated),
            });
        }
    }
    figures
}

fn percentile_intervals(values: &[f64]) -> Option<[Option<[f64; 2]>; 3]> {
    let ends = [0.5, 0.95, 0.99].map(|p| {
        supported_quantile(values, p)?;
        quantile_interval(values, p, 0.95).map(|interval| [interval.low, interval.high])
    });
    ends.iter().any(Option::is_some).then_some(ends)
}

fn collect_exclusions(slices: &[Slice]) -> Vec<Exclusion> {
    let void = |slice: &Slice| {
        Some(Exclusion {
            bench: slice.place.bench.clone(),
            case: slice.place.case.clone(),
            block: slice.place.block,
            arm: format!("{}{}", slice.place.arm, if slice.place.twin { " (A/A)" } else { "" }),
            reason: slice.void.clone()?,
        })
    };
    slices.iter().filter_map(void).collect()
}

/// Judges a run by its headline A/A rows; where there is none at all, the run is not judged.
///
/// One row outside its margin makes a run of one row invalid (bench/METHODOLOGY.md, "A/A"). Of many
/// honest rows one in twenty lies outside by chance, so that a run of many is invalid from the
/// number on that chance does not explain, or at one row whose 99.9 % interval excludes 1.
fn judge_validity(rows: &[Row]) -> Validity {
    let twins: Vec<&Row> = rows.iter().filter(|row| row.twin && row.headline).collect();
    let of = |aa: AaVerdict| twins.iter().filter(move |row| row.aa == Some(aa));
    let mut reasons: Vec<String> = of(AaVerdict::ExcludesOne)
        .map(|row| format!("{}: its 99.9 % interval excludes 1", row.label))
        .collect();
    let outside: Vec<String> = of(AaVerdict::OutsideMargin)
        .map(|row| format!("{}: its 95 % interval lies outside the margin", row.label))
        .collect();
    let failed = outside.len();
    let wide = of(AaVerdict::OutsideMargin)
        .any(|row| row.ratio.is_some_and(|ends| ends.low_999 > 1.0 || ends.high_999 < 1.0));
    if wide || !reasons.is_empty() || failed > max_outside_by_chance(twins.len()) {
        reasons.extend(outside);
        return Validity::Invalid { reasons };
    }
    let few: BTreeSet<usize> = of(AaVerdict::TooFewBlocks).map(|row| row.blocks).collect();
    if let Some(blocks) = few.first() {
        let wanted = confide_estimate::AA_BLOCKS_MIN;
        let reason = format!("an A/A row has {blocks} blocks, a judgement needs {wanted}");
        return Validity::NotJudged { reason };
    }
    if twins.is_empty() {
        return Validity::NotJudged { reason: "no A/A row has two blocks".into() };
    }
    Validity::Valid { judged: twins.len(), failed }
}

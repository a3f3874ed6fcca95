//! Remarks on a row that are computed from its own samples, in addition to those of the arms.

use serde_json::Value;

use super::{
    row::{Row, RowNote},
    runs::{ArmPair, Run},
};
use crate::{
    plan::Case,
    suite::bench::{Bench, BetterDirection, LoadModel, Metric, RunStatistic},
};
use confide_estimate::{PairedBlocks, Steadiness, assess_steadiness, autocorrelation, quantile};

/// The params that say how many callers a closed loop has.
const USERS: &[&str] = &["concurrency", "users", "workers", "clients"];
/// The rate that a closed loop's latency may merely repeat.
const RATE: &str = "rate_per_s";
/// Metrics of scaling: a rate divided by the threads that made it.
const PER_THREAD: &str = "_per_thread";
/// The relative distance within which users / rate is the latency.
const LITTLE_WITHIN: f64 = 0.02;
/// The number of samples that the tail of a percentile must hold.
const TAIL_SAMPLES_MIN: f64 = 10.0;
/// The share of requests that start when the last one ended, from which a run that calls itself
/// open is a closed loop.
const FOLLOWING_SHARE: f64 = 0.9;
/// The number of requests below which no schedule can be seen.
const SCHEDULE_REQUESTS_MIN: usize = 10;
/// The standard deviations beyond which a correlation of neighbours is not chance: one in 200.
const ALIKE_BEYOND: f64 = 2.58;

/// The marks by which arms say that reads did not come from the disk.
const CACHED: &[&str] = &[
    "cache-served",
    "through the page cache",
    "the file fits into memory",
    "the device did not see the reads",
    "faster than a disk of this kind can be",
];

/// True where an arm's mark says that a cache answered.
pub(crate) fn is_cache_served(mark: &str) -> bool {
    CACHED.iter().any(|words| mark.contains(words))
}

impl RowNote {
    /// Returns a word or two, for the end of a verdict.
    pub(crate) fn short_text(&self) -> &'static str {
        match self {
            Self::LittlesLaw { .. } => "Little's law",
            Self::ThinTail { .. } => "percentile without a tail",
            Self::NotOpen { .. } => "not open",
            Self::Unsteady { .. } => "no steady ratio",
            Self::Alike { .. } => "neighbouring blocks correlated",
            Self::Outliers { .. } => "outliers",
            Self::Superlinear { .. } => "superlinear",
            Self::NonMonotone { .. } => "non-monotone",
        }
    }

    /// Returns a sentence for a reader.
    pub(crate) fn long_text(&self) -> String {
        match self {
            Self::LittlesLaw { users } => format!(
                "latency equals {users:.0} users / rate (Little's law): in a closed loop it says \
                 no more than the rate"
            ),
            Self::ThinTail { samples } => format!(
                "{samples:.0} samples a run leave fewer than ten in the tail of this percentile"
            ),
            Self::NotOpen { share } => format!(
                "{:.0} % of its requests were scheduled when the one before ended: this is a \
                 closed loop, whose latencies omit the delay of a stall",
                share * 100.0
            ),
            Self::Unsteady { block, blocks } => format!(
                "the ratio changed for good at block {block} of {blocks}: there is no steady state"
            ),
            Self::Alike { correlation } => format!(
                "neighbouring blocks resemble each other (r = {correlation:.2}): the interval may be too \
                 narrow"
            ),
            Self::Outliers { hodges_lehmann } => format!(
                "the median of pairs, x{hodges_lehmann:.3}, lies outside the interval of the mean: \
                 outliers move the mean"
            ),
            Self::Superlinear { times } => format!(
                "each thread does x{times:.2} of what the reference does, more than scaling can give: the \
                 reference uses another algorithm or state; take the efficiency from the second \
                 reference"
            ),
            Self::NonMonotone { param } => {
                format!(
                    "the next smaller and the next larger {param} both give a result on the same side, \
                     outside the intervals"
                )
            }
        }
    }
}

/// Computes the notes of one row; those that need its neighbours come later
/// ([`mark_non_monotone`]).
pub(super) fn compute_notes(
    pair: &ArmPair<'_>,
    paired: &PairedBlocks<'_>,
    location: Option<f64>,
    row: Option<(f64, f64)>,
) -> Vec<RowNote> {
    let ArmPair { bench, case, metric, .. } = *pair;
    let (reference, mine) = (&pair.reference.runs, &pair.arm.runs);
    let both: Vec<&Run<'_>> = reference.iter().chain(mine).copied().collect();
    let mut notes = Vec::new();
    notes.extend(littles_law_note(bench, case, metric, reference).filter(|_| !mine.is_empty()));
    notes.extend(thin_tail_note(metric, &both));
    notes.extend(not_open_note(bench, metric, &both));
    if let Ok(logs) = paired.log_ratios() {
        notes.extend(unsteady_note(&logs));
        notes.extend(autocorrelation_note(&logs));
    }
    let arm = |runs: &[&Run<'_>]| runs.first().map(|run| run.slice.place.arm.clone());
    if let Some((_, high)) = row.filter(|_| arm(reference) != arm(mine))
        && metric.name.contains(PER_THREAD)
        && metric.better == BetterDirection::Higher
        && high < 1.0
        && let Ok(ratio) = paired.log_ratios()
    {
        let times = (ratio.iter().sum::<f64>() / ratio.len() as f64).exp();
        notes.push(RowNote::Superlinear { times });
    }
    if let (Some(hodges_lehmann), Some((low, high))) = (location, row)
        && (hodges_lehmann < low || hodges_lehmann > high)
    {
        notes.push(RowNote::Outliers { hodges_lehmann });
    }
    notes
}

fn littles_law_note(
    bench: &Bench,
    case: &Case,
    metric: &Metric,
    runs: &[&Run<'_>],
) -> Option<RowNote> {
    let users = USERS.iter().find_map(|name| case.params.get(*name).and_then(Value::as_f64));
    let users = users.filter(|users| *users > 1.0 && bench.load == LoadModel::Closed)?;
    let per_second = seconds_per_unit(&metric.name)?;
    let products: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            let rate = run.slice.metrics.get(RATE)?;
            Some(run.metric_value(metric)? * per_second * rate / users)
        })
        .collect();
    let share = quantile(&products, 0.5)?;
    ((share - 1.0).abs() <= LITTLE_WITHIN).then_some(RowNote::LittlesLaw { users })
}

/// Returns the seconds in a unit of a metric that is a duration.
fn seconds_per_unit(metric: &str) -> Option<f64> {
    let per = |scale: f64| (!metric.ends_with("_per_s")).then_some(scale);
    match metric.rsplit_once('_')?.1 {
        "s" => per(1.0),
        "ms" => Some(1e-3),
        "us" => Some(1e-6),
        _ => None,
    }
}

fn thin_tail_note(metric: &Metric, runs: &[&Run<'_>]) -> Option<RowNote> {
    let tail = match metric.stat {
        RunStatistic::P95 => 0.05,
        RunStatistic::P99 => 0.01,
        _ => return None,
    };
    let having = |run: &&Run<'_>| {
        run.samples.iter().filter(|s| s.metrics.contains_key(&metric.name)).count() as f64
    };
    let counts: Vec<f64> = runs.iter().map(having).filter(|count| *count > 0.0).collect();
    let samples = quantile(&counts, 0.5)?;
    (samples * tail + 1e-9 < TAIL_SAMPLES_MIN).then_some(RowNote::ThinTail { samples })
}

/// Notes an open load that waits for its answers: latency counts from the scheduled instant, and a
/// schedule that waits is none.
fn not_open_note(bench: &Bench, metric: &Metric, runs: &[&Run<'_>]) -> Option<RowNote> {
    if bench.load != LoadModel::Open {
        return None;
    }
    let total = ["total_ms", metric.name.as_str()];
    let (mut following, mut all) = (0, 0);
    for run in runs {
        let mut requests: Vec<(f64, f64)> = run
            .samples
            .iter()
            .filter_map(|sample| {
                let name = total.into_iter().find(|name| sample.metrics.contains_key(*name))?;
                Some((sample.at_s?, sample.metrics.get(name)? * seconds_per_unit(name)?))
            })
            .collect();
        requests.sort_by(|x, y| x.0.total_cmp(&y.0));
        for pair in requests.windows(2) {
            let ended = pair[0].0 + pair[0].1;
            let near = (0.01 * pair[0].1).max(1e-4);
            following += usize::from((pair[1].0 - ended).abs() <= near);
            all += 1;
        }
    }
    let share = following as f64 / all as f64;
    (all >= SCHEDULE_REQUESTS_MIN && share >= FOLLOWING_SHARE).then_some(RowNote::NotOpen { share })
}

fn unsteady_note(logs: &[f64]) -> Option<RowNote> {
    match assess_steadiness(logs) {
        Steadiness::Never { last_change } => {
            Some(RowNote::Unsteady { block: last_change + 1, blocks: logs.len() })
        }
        _ => None,
    }
}

fn autocorrelation_note(logs: &[f64]) -> Option<RowNote> {
    let correlation = autocorrelation(logs)?;
    let beyond = ALIKE_BEYOND / (logs.len() as f64).sqrt();
    (logs.len() >= 12 && correlation > beyond).then_some(RowNote::Alike { correlation })
}

/// Marks rows of one arm and metric over a grid of one number that stick out between neighbours: a
/// figure that is dearer (or cheaper) than those of the next smaller and the next larger point, with
/// no overlap of intervals. Such a point is more often a property of the tool than of the machine.
pub(super) fn mark_non_monotone(bench: &Bench, cases: &[Case], rows: &mut [Row]) {
    let numeric = |values: &Vec<Value>| values.len() > 2 && values.iter().all(Value::is_number);
    let mut grid = bench.grid.iter().filter(|(_, values)| values.len() > 1);
    let (Some((param, values)), None) = (grid.next(), grid.next()) else { return };
    if !numeric(values) {
        return;
    }
    let at = |row: &Row| {
        let case = cases.iter().find(|case| case.key == row.case)?;
        case.params.get(param).and_then(Value::as_f64)
    };
    let series = |row: &Row| (row.arm.clone(), row.reference.clone(), row.metric.clone());
    let mut points: Vec<(f64, usize)> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.bench == bench.name && !row.twin && row.ratio.is_some())
        .filter_map(|(index, row)| Some((at(row)?, index)))
        .collect();
    points.sort_by(|x, y| x.0.total_cmp(&y.0));
    let mut outside = Vec::new();
    for (_, index) in &points {
        let of: Vec<usize> = points
            .iter()
            .map(|(_, other)| *other)
            .filter(|other| series(&rows[*other]) == series(&rows[*index]))
            .collect();
        for three in of.windows(3).filter(|three| three[1] == *index) {
            let ends = |i: usize| rows[three[i]].ratio;
            let (Some(left), Some(this), Some(right)) = (ends(0), ends(1), ends(2)) else {
                continue;
            };
            let above = this.low > left.high && this.low > right.high;
            let below = this.high < left.low && this.high < right.low;
            if above || below {
                outside.push(*index);
            }
        }
    }
    for index in outside {
        rows[index].notes.push(RowNote::NonMonotone { param: param.clone() });
    }
}

//! A record judged by margins, for a program that wants a yes or a no.

use confide_estimate::{Bca, Estimate, INTERVAL_BLOCKS_MIN, Interval, Margin, RESAMPLES, Verdict};
use serde::Serialize;

use crate::{
    compare::{
        all_cases,
        refusal::{Reason, Refusal},
    },
    error::BenchError,
    format::{digits, ratio_places},
    loaded::LoadedRecord,
    rows::{
        BOOTSTRAP_SEED, pairs,
        row::{Aa, Ends, Outcome, Row},
        runs::Runs,
        text::{cost, verdict},
    },
    suite::{Suite, bench::Better},
    validity::Validity,
};

/// Selection of the rows to check, and how strictly.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// A relative margin in place of those of the suite; 0.02 is 2 %.
    pub margin: Option<f64>,
    /// Checks only this metric, whether it is a headline metric or not.
    pub metric: Option<String>,
    /// Checks only this bench.
    pub bench: Option<String>,
    /// Fails rows that are cheaper than their margin as well.
    pub both_ways: bool,
}

/// The result of a check, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The record, or the A/A row of a checked one, is invalid: nothing can be said.
    Invalid,
    /// At least one row lies outside its margin.
    Outside,
    /// No row lies outside, but at least one is undecided, or there are no rows.
    Undecided,
    /// Every row lies within its margin, or is cheaper.
    Within,
}

impl CheckOutcome {
    fn mark(self) -> &'static str {
        match self {
            Self::Within => "ok",
            Self::Outside => "OUTSIDE",
            Self::Undecided => "undecided",
            Self::Invalid => "INVALID",
        }
    }
}

/// The results of a check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The worst result of all rows.
    pub checked: CheckOutcome,
    pub(crate) rows: Vec<CheckedRow>,
    /// Remarks on the record as a whole.
    pub(crate) says: Vec<String>,
}

/// A row of the record with its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckedRow {
    pub(crate) label: String,
    pub(crate) checked: CheckOutcome,
    pub(crate) cost: String,
    pub(crate) verdict: String,
}

impl CheckReport {
    /// Formats one line for each row, then a summary; ends in a newline.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mark = row.checked.mark();
            text.push_str(&format!("{mark:<10} {}  {}  {}\n", row.label, row.cost, row.verdict));
        }
        for line in &self.says {
            text.push_str(&format!("{line}\n"));
        }
        let count = |wanted| self.rows.iter().filter(|row| row.checked == wanted).count();
        text + &format!(
            "checked {} rows: {} within, {} outside, {} undecided, {} invalid\n",
            self.rows.len(),
            count(CheckOutcome::Within),
            count(CheckOutcome::Outside),
            count(CheckOutcome::Undecided),
            count(CheckOutcome::Invalid)
        )
    }

    /// Formats all of it as indented JSON; ends in a newline.
    ///
    /// # Errors
    /// When a field cannot be written as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    fn from_rows(rows: Vec<CheckedRow>, mut says: Vec<String>, validity: &[&Validity]) -> Self {
        let mut worst = rows.iter().map(|row| row.checked).min().unwrap_or(CheckOutcome::Undecided);
        if rows.is_empty() {
            says.push("no row was checked".into());
        }
        for validity in validity {
            match validity {
                Validity::Invalid { reasons } => {
                    worst = CheckOutcome::Invalid;
                    says.push(format!("the record is invalid: {}", reasons.join("; ")));
                }
                Validity::NotJudged { reason } => {
                    worst = worst.min(CheckOutcome::Undecided);
                    says.push(format!("its A/A rows are not judged: {reason}"));
                }
                Validity::Valid { .. } => {}
            }
        }
        Self { checked: worst, rows, says }
    }
}

/// Judges the rows of one record by their margins.
///
/// # Errors
/// When the record's suite cannot be read by this version.
pub fn check_record(
    loaded: &LoadedRecord,
    options: &CheckOptions,
) -> Result<CheckReport, BenchError> {
    let record = &loaded.record;
    let suite = record.parse_suite()?;
    let judged = loaded.judge(&suite);
    let mut says = Vec::new();
    let rows = judged.rows.into_iter().filter(|row| is_wanted(row, options)).map(|mut row| {
        if let (Some(margin), Some(ends), true) = (options.margin, row.ratio, row.has_interval()) {
            row.margin = margin;
            row.adds_at_most = None;
            if !row.is_without_tail() {
                row.outcome =
                    Verdict::from_estimate(&ends.estimate(row.blocks), Margin::Relative(margin))
                        .into();
            }
        }
        CheckedRow {
            label: row.label.clone(),
            checked: judge_row(&row, options),
            cost: cost(&row),
            verdict: verdict(&row),
        }
    });
    let rows: Vec<CheckedRow> = rows.collect();
    if let Some(partial) = &record.partial {
        says.push(format!("partial: {partial}"));
    }
    let mut check = CheckReport::from_rows(rows, says, &[&judged.validity]);
    if record.partial.is_some() || !record.not_run.is_empty() {
        add_not_run(&mut check, &record.not_run());
    }
    Ok(check)
}

fn add_not_run(check: &mut CheckReport, not_run: &[String]) {
    check.says.extend(not_run.iter().map(|what| format!("not run: {what}")));
    if check.checked == CheckOutcome::Within {
        check.checked = CheckOutcome::Undecided;
    }
}

fn judge_row(row: &Row, options: &CheckOptions) -> CheckOutcome {
    if has_failed_twin(row) {
        return CheckOutcome::Invalid;
    }
    if row.client_bound { CheckOutcome::Undecided } else { check_outcome(row.outcome, options) }
}

fn has_failed_twin(row: &Row) -> bool {
    matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne))
}

fn check_outcome(outcome: Outcome, options: &CheckOptions) -> CheckOutcome {
    match outcome {
        Outcome::WithinMargin => CheckOutcome::Within,
        Outcome::AboveMargin => CheckOutcome::Outside,
        Outcome::BelowMargin if options.both_ways => CheckOutcome::Outside,
        Outcome::BelowMargin => CheckOutcome::Within,
        Outcome::Undecided { .. } | Outcome::NotEvaluated => CheckOutcome::Undecided,
    }
}

fn is_wanted(row: &Row, options: &CheckOptions) -> bool {
    let metric = match &options.metric {
        Some(name) => *name == row.metric,
        None => row.headline,
    };
    !row.twin && metric && options.bench.as_ref().is_none_or(|name| *name == row.bench)
}

/// Compares the costs of one record with those of an earlier one.
///
/// A cost is a ratio within one run, of two arms that met in its blocks, so that the state of the
/// machine cancels out. What is compared is the ratio of the two ratios, over the blocks of both
/// runs, each resampled on its own. Another boot is not in its interval, and the lines say so.
///
/// # Errors
/// When the suite of either record cannot be read by this version.
pub fn check_against(
    loaded: &LoadedRecord,
    baseline: &LoadedRecord,
    options: &CheckOptions,
) -> Result<CheckReport, BenchError> {
    let (now, before) = (loaded.record.parse_suite()?, baseline.record.parse_suite()?);
    let mut says: Vec<String> =
        refuse_records(loaded, baseline).iter().map(ToString::to_string).collect();
    if !says.is_empty() {
        let checked = CheckOutcome::Undecided;
        return Ok(CheckReport { checked, rows: Vec::new(), says });
    }
    let (judged, earlier) = (loaded.judge(&now), baseline.judge(&before));
    let runs = [loaded, baseline].map(|loaded| Runs::new(&loaded.samples, &loaded.slices));
    let sides = [(&now, &runs[0]), (&before, &runs[1])];
    let mut rows = Vec::new();
    for row in judged.rows.iter().filter(|row| is_wanted(row, options)) {
        let same = |other: &&Row| !other.twin && other.key() == row.key();
        let Some(old) = earlier.rows.iter().find(same) else {
            says.push(format!("{}: not in the baseline", row.label));
            continue;
        };
        rows.push(compare_costs(row, old, sides, options));
    }
    says.push(
        "costs relative to the baseline's: blocks of both runs are resampled; the intervals do not \
         cover another boot or machine"
            .into(),
    );
    Ok(CheckReport::from_rows(rows, says, &[&judged.validity, &earlier.validity]))
}

/// Returns the reasons for which costs of two records cannot be compared.
fn refuse_records(loaded: &LoadedRecord, baseline: &LoadedRecord) -> Vec<Refusal> {
    let (now, before) = (&loaded.record, &baseline.record);
    let mut refused = Vec::new();
    let mut say = |reason, detail: String| refused.push(Refusal { reason, detail });
    if now.suite.name != before.suite.name {
        say(Reason::DifferentSuite, format!("{} against {}", now.suite.name, before.suite.name));
    }
    let [a, b] =
        [now, before].map(|record| (&record.machine.cpu_model, record.machine.cpus_online));
    if a != b {
        say(Reason::DifferentHardware, format!("{} against {}", a.0, b.0));
    }
    if now.partial.is_some() || before.partial.is_some() {
        say(Reason::Partial, "a record ended before its plan was complete".into());
    }
    refused
}

/// Compares one row's cost with that of the same row in the baseline; `sides` are both records'
/// suites and runs.
fn compare_costs(
    row: &Row,
    old: &Row,
    sides: [(&Suite, &Runs<'_>); 2],
    options: &CheckOptions,
) -> CheckedRow {
    let checked_row = |checked, cost: String, verdict: &str| CheckedRow {
        label: row.label.clone(),
        checked,
        cost,
        verdict: verdict.to_owned(),
    };
    if has_failed_twin(row) || has_failed_twin(old) {
        return checked_row(CheckOutcome::Invalid, cost(row), "its A/A row failed");
    }
    let [Some(now), Some(before)] = sides.map(|(suite, runs)| log_costs(row, suite, runs)) else {
        return checked_row(CheckOutcome::Undecided, cost(row), "it has no ratio");
    };
    let blocks = now.len().min(before.len());
    let Ok(bca) = Bca::of_difference(&before, &now, RESAMPLES, BOOTSTRAP_SEED) else {
        return checked_row(CheckOutcome::Undecided, cost(row), "too few blocks");
    };
    let interval = bca.expanded_interval(0.95).map(f64::exp);
    let value = bca.estimate().exp();
    let places = ratio_places(interval.low, interval.high);
    if blocks < INTERVAL_BLOCKS_MIN {
        let cost = format!("x{value:.places$} of the baseline's cost");
        return checked_row(CheckOutcome::Undecided, cost, &format!("no interval: {blocks}"));
    }
    let change = format!(
        "x{value:.places$} [{:.places$}, {:.places$}] of the baseline's cost",
        interval.low, interval.high
    );
    let estimate = Estimate { value, interval, wide: interval, block_sd: 0.0, blocks };
    let margin = options.margin.unwrap_or(row.margin);
    let outcome = Outcome::from(Verdict::from_estimate(&estimate, Margin::Relative(margin)));
    let place = match outcome {
        Outcome::WithinMargin => "within",
        Outcome::AboveMargin => "above",
        Outcome::BelowMargin => "below",
        Outcome::Undecided { .. } | Outcome::NotEvaluated => "undecided at",
    };
    let cheaper = if outcome == Outcome::BelowMargin { ", cheaper" } else { "" };
    let verdict = format!("{place} {} %{cheaper}", digits(margin * 100.0));
    checked_row(check_outcome(outcome, options), change, &verdict)
}

/// Computes the logarithm of the cost for each block; `None` if a ratio is not defined.
fn log_costs(row: &Row, suite: &Suite, runs: &Runs<'_>) -> Option<Vec<f64>> {
    let bench = suite.bench(&row.bench)?;
    let metric = bench.metrics.iter().find(|metric| metric.name == row.metric)?;
    let cases = all_cases(bench);
    let case = cases.iter().find(|case| case.key == row.case)?;
    let reference = runs.valid_runs(bench, case, &row.reference, false);
    let mine = runs.valid_runs(bench, case, &row.arm, false);
    let logs: Option<Vec<f64>> = pairs(metric, &reference, &mine)
        .into_iter()
        .map(|(clear, protected)| {
            let log = (protected / clear).ln();
            let cost = if metric.better == Better::Lower { log } else { -log };
            cost.is_finite().then_some(cost)
        })
        .collect();
    logs.filter(|logs| logs.len() > 1)
}

impl Ends {
    fn estimate(&self, blocks: usize) -> Estimate {
        let ends = |low, high, level| Interval { low, high, level };
        Estimate {
            value: self.value,
            interval: ends(self.low, self.high, 0.95),
            wide: ends(self.low_999, self.high_999, 0.999),
            block_sd: self.block_sd,
            blocks,
        }
    }
}

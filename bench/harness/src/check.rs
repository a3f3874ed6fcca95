//! A record held against margins, for a program that wants a yes or a no.

use confide_estimate::{Bca, Estimate, INTERVAL_BLOCKS_MIN, Interval, Margin, RESAMPLES, Verdict};
use serde::Serialize;

use crate::{
    compare::{
        all_cases,
        refusal::{Reason, Refusal},
    },
    error::BenchError,
    format::ratio_places,
    loaded::Loaded,
    rows::{
        judge, pairs,
        row::{Aa, Ends, Outcome, Row},
        runs::Runs,
        text::{cost, verdict},
    },
    suite::{Suite, bench::Better},
    validity::Validity,
};

/// The bootstrap's own seed, as for rows.
const BOOTSTRAP_SEED: u64 = 0xc0ff_ee00;

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Instead of the margins of the suite: 0.02 is 2 %.
    pub margin: Option<f64>,
    /// Only this metric; headline or not.
    pub metric: Option<String>,
    /// Only this bench.
    pub bench: Option<String>,
    /// Cheaper than the margin fails too.
    pub both_ways: bool,
}

/// What a check came to, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// The record, or an A/A row beside a checked one, is invalid: nothing can be said.
    Invalid,
    /// At least one row lies outside its margin.
    Outside,
    /// None outside, at least one not decided, or none there.
    Undecided,
    /// Every row lies within its margin, or is cheaper.
    Within,
}

/// A check with its lines.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The worst of all rows.
    pub checked: Checked,
    pub(crate) rows: Vec<CheckedRow>,
    /// What is said of the record as a whole.
    pub(crate) says: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckedRow {
    pub(crate) label: String,
    pub(crate) checked: Checked,
    pub(crate) cost: String,
    pub(crate) verdict: String,
}

impl Check {
    /// One line a row, then the sum of it; ends in a newline.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mark = match row.checked {
                Checked::Within => "ok",
                Checked::Outside => "OUTSIDE",
                Checked::Undecided => "undecided",
                Checked::Invalid => "INVALID",
            };
            text.push_str(&format!("{mark:<10} {}  {}  {}\n", row.label, row.cost, row.verdict));
        }
        for line in &self.says {
            text.push_str(&format!("{line}\n"));
        }
        let count = |wanted| self.rows.iter().filter(|row| row.checked == wanted).count();
        text + &format!(
            "checked {} rows: {} within, {} outside, {} undecided, {} invalid\n",
            self.rows.len(),
            count(Checked::Within),
            count(Checked::Outside),
            count(Checked::Undecided),
            count(Checked::Invalid)
        )
    }

    /// Everything, for programs.
    ///
    /// # Errors
    /// serde_json's, where a field cannot be JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    fn of(rows: Vec<CheckedRow>, mut says: Vec<String>, validity: &[&Validity]) -> Self {
        let mut worst = rows.iter().map(|row| row.checked).min().unwrap_or(Checked::Undecided);
        if rows.is_empty() {
            says.push("no row was checked".into());
        }
        for validity in validity {
            match validity {
                Validity::Invalid { reasons } => {
                    worst = Checked::Invalid;
                    says.push(format!("the record is invalid: {}", reasons.join("; ")));
                }
                Validity::NotJudged { reason } => {
                    worst = worst.min(Checked::Undecided);
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
pub fn check(loaded: &Loaded, options: &CheckOptions) -> Result<Check, BenchError> {
    let record = &loaded.record;
    let suite = Suite::parse(&record.suite.name, &record.suite.text)?;
    let judged = judge(&suite, record.effort, &loaded.samples, &loaded.slices);
    let mut says = Vec::new();
    let rows = judged.rows.into_iter().filter(|row| is_wanted(row, options)).map(|mut row| {
        if let (Some(margin), Some(ends), true) = (options.margin, row.ratio, row.has_interval()) {
            row.margin = margin;
            row.adds_at_most = None;
            if !row.is_without_tail() {
                row.outcome =
                    Verdict::of(&ends.estimate(row.blocks), Margin::Relative(margin)).into();
            }
        }
        CheckedRow {
            label: row.label.clone(),
            checked: of_row(&row, options),
            cost: cost(&row),
            verdict: verdict(&row),
        }
    });
    let rows: Vec<CheckedRow> = rows.collect();
    if let Some(partial) = &record.partial {
        says.push(format!("partial: {partial}"));
    }
    let mut check = Check::of(rows, says, &[&judged.validity]);
    if record.partial.is_some() || !record.not_run.is_empty() {
        says_not_run(&mut check, &record.not_run());
    }
    Ok(check)
}

fn says_not_run(check: &mut Check, not_run: &[String]) {
    check.says.extend(not_run.iter().map(|what| format!("not run: {what}")));
    if check.checked == Checked::Within {
        check.checked = Checked::Undecided;
    }
}

fn of_row(row: &Row, options: &CheckOptions) -> Checked {
    if matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne)) {
        return Checked::Invalid;
    }
    if row.client_bound {
        return Checked::Undecided;
    }
    match row.outcome {
        Outcome::Within => Checked::Within,
        Outcome::Above => Checked::Outside,
        Outcome::Below if options.both_ways => Checked::Outside,
        Outcome::Below => Checked::Within,
        Outcome::Undecided { .. } | Outcome::NotEvaluated => Checked::Undecided,
    }
}

fn is_wanted(row: &Row, options: &CheckOptions) -> bool {
    let metric = match &options.metric {
        Some(name) => *name == row.metric,
        None => row.headline,
    };
    !row.twin && metric && options.bench.as_ref().is_none_or(|name| *name == row.bench)
}

/// Holds the costs of one record against those of an earlier one.
///
/// A cost is a ratio within one run, of two arms that met in its blocks, so that the machine and its
/// mood cancel out of it. What is compared is the ratio of the two ratios, over the blocks of both
/// runs, each resampled on its own. Another boot is not in its interval, and the lines say so.
///
/// # Errors
/// When the suite of either record cannot be read by this version.
pub fn check_against(
    loaded: &Loaded,
    baseline: &Loaded,
    options: &CheckOptions,
) -> Result<Check, BenchError> {
    let parsed = |loaded: &Loaded| {
        let record = &loaded.record;
        Suite::parse(&record.suite.name, &record.suite.text)
    };
    let (now, before) = (parsed(loaded)?, parsed(baseline)?);
    let mut says: Vec<String> = unlike(loaded, baseline).iter().map(ToString::to_string).collect();
    if !says.is_empty() {
        let checked = Checked::Undecided;
        return Ok(Check { checked, rows: Vec::new(), says });
    }
    let judged = judge(&now, loaded.record.effort, &loaded.samples, &loaded.slices);
    let earlier = judge(&before, baseline.record.effort, &baseline.samples, &baseline.slices);
    let runs = [loaded, baseline].map(|loaded| Runs::new(&loaded.samples, &loaded.slices));
    let mut rows = Vec::new();
    for row in judged.rows.iter().filter(|row| is_wanted(row, options)) {
        let same = |other: &&Row| {
            other.bench == row.bench
                && other.case == row.case
                && other.metric == row.metric
                && other.arm == row.arm
                && other.reference == row.reference
                && !other.twin
        };
        let Some(old) = earlier.rows.iter().find(same) else {
            says.push(format!("{}: not in the baseline", row.label));
            continue;
        };
        rows.push(against(row, old, [&now, &before], &runs, options));
    }
    says.push(
        "costs against the baseline's: blocks of both runs are resampled; another boot or machine \
         is not in these intervals"
            .into(),
    );
    Ok(Check::of(rows, says, &[&judged.validity, &earlier.validity]))
}

/// What makes costs of two records no change of one thing.
fn unlike(loaded: &Loaded, baseline: &Loaded) -> Vec<Refusal> {
    let (now, before) = (&loaded.record, &baseline.record);
    let mut refused = Vec::new();
    let mut say = |reason, detail: String| refused.push(Refusal { reason, detail });
    if now.suite.name != before.suite.name {
        say(Reason::DifferentSuite, format!("{} against {}", now.suite.name, before.suite.name));
    }
    let model = |record: &crate::record::Record| record.machine.cpu_model.clone();
    if model(now) != model(before) || now.machine.cpus_online != before.machine.cpus_online {
        say(Reason::DifferentHardware, format!("{} against {}", model(now), model(before)));
    }
    if now.partial.is_some() || before.partial.is_some() {
        say(Reason::Partial, "a record stopped before its plan was done".into());
    }
    refused
}

fn against(
    row: &Row,
    old: &Row,
    suites: [&Suite; 2],
    runs: &[Runs<'_>; 2],
    options: &CheckOptions,
) -> CheckedRow {
    let margin = options.margin.unwrap_or(row.margin);
    let logs = |side: usize| log_costs(row, suites[side], &runs[side]);
    let done = |checked, cost: String, verdict: &str| CheckedRow {
        label: row.label.clone(),
        checked,
        cost,
        verdict: verdict.to_owned(),
    };
    let failed = |row: &Row| matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne));
    if failed(row) || failed(old) {
        return done(Checked::Invalid, cost(row), "an A/A row beside it failed");
    }
    let (Some(now), Some(before)) = (logs(0), logs(1)) else {
        return done(Checked::Undecided, cost(row), "no ratio can be made of it");
    };
    let least = now.len().min(before.len());
    let Ok(bca) = Bca::of_difference(&before, &now, RESAMPLES, BOOTSTRAP_SEED) else {
        return done(Checked::Undecided, cost(row), "too few blocks");
    };
    let interval = bca.expanded_interval(0.95).map(f64::exp);
    let value = bca.estimate().exp();
    let places = ratio_places(interval.low, interval.high);
    let change = format!(
        "x{value:.places$} [{:.places$}, {:.places$}] of the baseline's cost",
        interval.low, interval.high
    );
    if least < INTERVAL_BLOCKS_MIN {
        let text = format!("no interval: {least}");
        return done(
            Checked::Undecided,
            format!("x{value:.places$} of the baseline's cost"),
            &text,
        );
    }
    let estimate = Estimate { value, interval, wide: interval, block_sd: 0.0, blocks: least };
    let percent = crate::format::digits(margin * 100.0);
    match Verdict::of(&estimate, Margin::Relative(margin)) {
        Verdict::Within => done(Checked::Within, change, &format!("within {percent} %")),
        Verdict::Above => done(Checked::Outside, change, &format!("above {percent} %")),
        Verdict::Below => {
            let checked = if options.both_ways { Checked::Outside } else { Checked::Within };
            done(checked, change, &format!("below {percent} %, cheaper"))
        }
        Verdict::Undecided { .. } => {
            done(Checked::Undecided, change, &format!("undecided at {percent} %"))
        }
    }
}

/// The logarithm of the cost, block by block.
fn log_costs(row: &Row, suite: &Suite, runs: &Runs<'_>) -> Option<Vec<f64>> {
    let bench = suite.benches.iter().find(|bench| bench.name == row.bench)?;
    let metric = bench.metrics.iter().find(|metric| metric.name == row.metric)?;
    let cases = all_cases(bench);
    let case = cases.iter().find(|case| case.key == row.case)?;
    let reference = runs.of(bench, case, &row.reference, false);
    let mine = runs.of(bench, case, &row.arm, false);
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

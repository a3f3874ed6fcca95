//! A record judged by margins, for a program that wants a yes or a no.

use confide_estimate::{
    Estimate, INTERVAL_BLOCKS_MIN, Interval, Margin, Verdict, mean, normal_quantile, quantile,
};
use serde::Serialize;

use crate::{
    compare::{
        all_cases,
        refusal::{Reason, Refusal, is_same_run},
    },
    disturbed::{DISTURBED_MOST, DISTURBED_WARNS},
    error::BenchError,
    format::{digits, scale_of},
    loaded::LoadedRecord,
    plan::{blocks, cases},
    record::Record,
    rows::{
        pair_values,
        row::{AaVerdict, Ends, Row, RowVerdict},
        runs::Runs,
        text::{cost, ratio, verdict},
    },
    suite::{
        Gate, Suite,
        bench::{Bench, Better},
    },
    validity::Validity,
};

/// The least digits by which a chain of hashes is named: 64 bits.
const CHAIN_DIGITS_MIN: usize = 16;

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
    /// The end of the record's chain of hashes, or its beginning of at least 16 digits, kept apart from the record.
    pub chain: Option<String>,
    /// Gives a verdict also where more than half of the runs were disturbed.
    pub accept_disturbed: bool,
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

    /// Compares the end of the record's chain with the one that was kept apart from it.
    fn judge_chain(&mut self, record: &Record, options: &CheckOptions) {
        let Some(wanted) = &options.chain else { return };
        let end = record.chain_end();
        let is_wanted = |end: &str| end.starts_with(wanted.to_ascii_lowercase().as_str());
        if wanted.len() >= CHAIN_DIGITS_MIN && end.is_some_and(is_wanted) {
            return;
        }
        self.checked = CheckOutcome::Invalid;
        self.says.push(match end {
            Some(_) if wanted.len() < CHAIN_DIGITS_MIN => {
                format!("chain of hashes: wanted at least {CHAIN_DIGITS_MIN} digits, got {wanted}")
            }
            Some(end) => format!("chain of hashes: wanted {wanted}, the record's ends with {end}"),
            None => format!("chain of hashes: wanted {wanted}, but the record has no chain"),
        });
    }

    /// Names rows that should be there and are not: without them no check passes.
    fn add_missing(&mut self, missing: Vec<String>, why: &str) {
        if !missing.is_empty() {
            self.checked = self.checked.min(CheckOutcome::Undecided);
            self.says.extend(missing.into_iter().map(|label| format!("{label}: {why}")));
        }
    }

    /// Says how many runs were disturbed; too many give no verdict.
    fn judge_disturbance(&mut self, of: &str, record: &Record, options: &CheckOptions) {
        let share = record.disturbed_share();
        if share < DISTURBED_WARNS {
            return;
        }
        let mut text =
            format!("{of}{:.0} % of the headline rows' runs were disturbed", share * 100.0);
        if share > DISTURBED_MOST && !options.accept_disturbed {
            self.checked = self.checked.min(CheckOutcome::Undecided);
            text += ": too many for a verdict; measure on a quiet machine";
        }
        self.says.push(text);
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
    let mut says = record.remarks.clone();
    let gates = gates_of(&suite, options);
    let is_checked = |row: &Row| match gates {
        [] => is_wanted(row, options),
        gates => find_gate(gates, &suite, row).is_some() && is_of_bench(row, options),
    };
    if !gates.is_empty() {
        says.push(
            "checked: the gates of the suite (--metric or --margin checks other rows)".into(),
        );
    }
    let missing = missing_gates(gates, &suite, record, &judged.rows, options);
    let rows = judged.rows.into_iter().filter(is_checked).map(|mut row| {
        if let Some(gate) = find_gate(gates, &suite, &row) {
            return check_gate(gate, &row);
        }
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
    check.add_missing(missing, "its gate has no row in the record");
    check.judge_chain(record, options);
    check.judge_disturbance("", record, options);
    if record.partial.is_some() || !record.not_run.is_empty() {
        add_not_run(&mut check, &record.not_run());
    }
    Ok(check)
}

/// The gates by which a record is checked: those of its suite, unless the caller asks for other rows or another margin.
fn gates_of<'a>(suite: &'a Suite, options: &CheckOptions) -> &'a [Gate] {
    let is_default = options.metric.is_none() && options.margin.is_none();
    if is_default { &suite.gates } else { &[] }
}

/// Finds the gate of a row against the bench's first arm.
fn find_gate<'a>(gates: &'a [Gate], suite: &Suite, row: &Row) -> Option<&'a Gate> {
    let first = suite.bench(&row.bench)?.arms.first()?;
    let is_compared = !row.twin && row.reference == *first;
    gates.iter().find(|gate| is_compared && gate.covers(&row.bench, &row.metric, &row.arm))
}

/// Names what the gates are about and the record has no row of: every arm at every case that its effort planned.
fn missing_gates(
    gates: &[Gate],
    suite: &Suite,
    record: &Record,
    rows: &[Row],
    options: &CheckOptions,
) -> Vec<String> {
    let mut missing = Vec::new();
    for gate in gates {
        let is_asked = |bench: &&Bench| {
            gate.benches.contains(&bench.name)
                && options.bench.as_ref().is_none_or(|name| *name == bench.name)
                && blocks(bench, record.effort, record.blocks_asked) > 0
        };
        for bench in suite.benches.iter().filter(is_asked) {
            for case in cases(bench, record.effort) {
                missing.extend(gate.arms.iter().filter_map(|arm| {
                    let first = bench.arms.first()?;
                    let wanted = [&bench.name, &case.key, &gate.metric, arm, first];
                    let has_row = rows.iter().any(|row| !row.twin && row.key() == wanted);
                    let words = [&bench.name, &case.key, &gate.metric, arm].map(String::as_str);
                    let said = words.into_iter().filter(|word| !word.is_empty());
                    (!has_row).then(|| said.collect::<Vec<_>>().join(" "))
                }));
            }
        }
    }
    missing
}

/// Judges a row by the limit of its gate: the 95 % interval has to lie below it.
fn check_gate(gate: &Gate, row: &Row) -> CheckedRow {
    let (ends, limit, shown) = match (gate.ratio_at_most, gate.adds_at_most) {
        (Some(limit), _) => (row.ratio, limit, format!("x{limit}")),
        (None, Some(limit)) => {
            let (scale, unit) = scale_of(&row.metric, limit.abs());
            (Some(row.difference), limit, format!("{} {unit}", digits(limit * scale)))
        }
        (None, None) => (None, 0.0, String::new()),
    };
    let (checked, place) = match ends {
        _ if has_failed_twin(row) => (CheckOutcome::Invalid, "its A/A row failed, limit"),
        Some(ends) if row.has_interval() && !row.client_bound && !row.is_without_tail() => {
            if ends.high <= limit {
                (CheckOutcome::Within, "at most")
            } else if ends.low > limit {
                (CheckOutcome::Outside, "more than")
            } else {
                (CheckOutcome::Undecided, "undecided at")
            }
        }
        _ => (CheckOutcome::Undecided, "no interval for"),
    };
    // A gate may be about the ratio of a row whose cost is shown as a difference.
    let cost = match gate.ratio_at_most.and(row.ratio) {
        Some(ends) if row.has_interval() && !row.is_without_tail() => {
            ratio(ends.value, ends.low, ends.high)
        }
        _ => cost(row),
    };
    CheckedRow { label: row.label.clone(), checked, cost, verdict: format!("{place} {shown}") }
}

fn is_of_bench(row: &Row, options: &CheckOptions) -> bool {
    options.bench.as_ref().is_none_or(|name| *name == row.bench)
}

/// A record whose plan was not done to its end is not within: what is missing could have been outside.
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
    // A cost that is smaller than the noise is no finding, whichever side of a margin it lies on.
    let is_noise = row.outcome != RowVerdict::WithinMargin && row.is_indistinguishable();
    if row.client_bound || is_noise {
        CheckOutcome::Undecided
    } else {
        check_outcome(row.outcome, options)
    }
}

fn has_failed_twin(row: &Row) -> bool {
    matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne))
}

fn check_outcome(outcome: RowVerdict, options: &CheckOptions) -> CheckOutcome {
    match outcome {
        RowVerdict::WithinMargin => CheckOutcome::Within,
        RowVerdict::AboveMargin => CheckOutcome::Outside,
        RowVerdict::BelowMargin if options.both_ways => CheckOutcome::Outside,
        RowVerdict::BelowMargin => CheckOutcome::Within,
        RowVerdict::Undecided { .. } | RowVerdict::NotEvaluated => CheckOutcome::Undecided,
    }
}

fn is_wanted(row: &Row, options: &CheckOptions) -> bool {
    let metric = match &options.metric {
        Some(name) => *name == row.metric,
        None => row.headline,
    };
    !row.twin && metric && is_of_bench(row, options)
}

/// Compares the costs of one record with those of earlier ones.
///
/// A cost is a ratio within one run, of two arms that met in its blocks, so that the state of the machine cancels out.
/// What is compared is the ratio of costs. Its interval has the blocks of all runs, the variance between runs
/// ([`estimate_run_variance`]), and a level for which the number of rows is corrected (Bonferroni).
///
/// # Errors
/// When the suite of a record cannot be read by this version.
pub fn check_against(
    loaded: &LoadedRecord,
    baselines: &[LoadedRecord],
    options: &CheckOptions,
) -> Result<CheckReport, BenchError> {
    let refused = baselines.iter().flat_map(|baseline| refuse_records(loaded, baseline));
    let refused = refuse_same(loaded, baselines).into_iter().chain(refused);
    let refused: Vec<String> = refused.map(|refusal| refusal.to_string()).collect();
    if !refused.is_empty() {
        return Ok(CheckReport {
            checked: CheckOutcome::Undecided,
            rows: Vec::new(),
            says: refused,
        });
    }
    let mut says: Vec<String> = loaded.record.remarks.clone();
    for baseline in baselines {
        says.extend(baseline.record.remarks.iter().map(|remark| format!("baseline: {remark}")));
    }
    let suite = loaded.record.parse_suite()?;
    let now = RunCosts::new(loaded, &suite);
    let suites: Vec<Suite> =
        baselines.iter().map(|one| one.record.parse_suite()).collect::<Result<_, _>>()?;
    let before: Vec<RunCosts<'_>> =
        baselines.iter().zip(&suites).map(|(one, suite)| RunCosts::new(one, suite)).collect();
    let (compared, absent): (Vec<&Row>, Vec<&Row>) = loaded
        .record
        .rows
        .iter()
        .filter(|row| is_wanted(row, options))
        .partition(|row| before.iter().all(|run| run.find(row).is_some()));
    says.extend(absent.iter().map(|row| format!("{}: not in every baseline", row.label)));
    let rows: Vec<CostHistory<'_>> =
        compared.iter().map(|row| CostHistory::new(row, &now, &before)).collect();
    let twins = loaded.record.rows.iter().filter(|row| row.twin);
    let twins: Vec<CostHistory<'_>> =
        twins.map(|row| CostHistory::new(row, &now, &before)).collect();
    let variance = estimate_run_variance(&rows, &twins);
    says.extend(describe_variance(variance, baselines.len(), rows.len()));
    let checked = rows.iter().map(|row| row.check(variance, rows.len(), options)).collect();
    let validity: Vec<&Validity> =
        std::iter::once(loaded).chain(baselines).map(|one| &one.record.validity).collect();
    let mut check = CheckReport::from_rows(checked, says, &validity);
    check.add_missing(missing_now(loaded, baselines, options), "in a baseline, not in the record");
    if !loaded.record.not_run.is_empty() {
        add_not_run(&mut check, &loaded.record.not_run());
    }
    check.judge_chain(&loaded.record, options);
    check.judge_disturbance("", &loaded.record, options);
    for baseline in baselines {
        check.judge_disturbance("the baseline: ", &baseline.record, options);
    }
    Ok(check)
}

/// Says what the costs are compared with, and what their intervals hold.
fn describe_variance(variance: Option<f64>, baselines: usize, rows: usize) -> Vec<String> {
    let of = match baselines {
        1 => "the baseline's".to_owned(),
        several => format!("those of {several} baselines"),
    };
    let Some(variance) = variance else {
        return vec![format!(
            "costs compared with {of}, without a verdict: neither the A/A rows nor eight other rows tell by \
             how much runs differ"
        )];
    };
    let mut says = vec![format!(
        "costs compared with {of}; their intervals have the variance between runs (SD {} %) and are \
         corrected for {rows} rows",
        digits(variance.sqrt() * 100.0)
    )];
    if baselines == 1 {
        says.push(
            "with one baseline that variance is taken from the A/A rows, and from all rows where they \
             are eight or more: a change of most rows at once hides in it; more baselines tell"
                .into(),
        );
    }
    says
}

/// Refuses a record that is its own baseline, or a baseline that is given twice.
fn refuse_same(loaded: &LoadedRecord, baselines: &[LoadedRecord]) -> Vec<Refusal> {
    let detail = |index: usize, baseline: &LoadedRecord| {
        if is_same_run(loaded, baseline) {
            return Some("the record is its own baseline".to_owned());
        }
        let is_again = baselines[..index].iter().any(|other| is_same_run(other, baseline));
        is_again.then(|| "a baseline is given twice".to_owned())
    };
    let details = baselines.iter().enumerate().filter_map(|(index, one)| detail(index, one));
    details.map(|detail| Refusal { reason: Reason::SameRecord, detail }).collect()
}

/// Names the rows of a baseline that the record should have and does not.
fn missing_now(
    loaded: &LoadedRecord,
    baselines: &[LoadedRecord],
    options: &CheckOptions,
) -> Vec<String> {
    let has =
        |row: &Row| loaded.record.rows.iter().any(|other| !other.twin && other.key() == row.key());
    let mut missing: Vec<String> = Vec::new();
    for row in baselines.iter().flat_map(|baseline| &baseline.record.rows) {
        if is_wanted(row, options) && !has(row) && !missing.contains(&row.label) {
            missing.push(row.label.clone());
        }
    }
    missing
}

/// Returns the reasons for which costs of two records cannot be compared.
fn refuse_records(loaded: &LoadedRecord, baseline: &LoadedRecord) -> Vec<Refusal> {
    let (now, before) = (&loaded.record, &baseline.record);
    let mut refused = Vec::new();
    let mut say = |reason, detail: String| refused.push(Refusal { reason, detail });
    if now.suite.name != before.suite.name {
        say(Reason::DifferentSuite, format!("{} against {}", now.suite.name, before.suite.name));
    }
    let [a, b] = [now, before]
        .map(|record| (record.machine.describe_processor(), record.machine.cpus_online));
    if a != b {
        say(Reason::DifferentHardware, format!("{} against {}", a.0, b.0));
    }
    if now.partial.is_some() || before.partial.is_some() {
        say(Reason::Partial, "a record ended before its plan was complete".into());
    }
    refused
}

/// A record with what its costs are computed from.
struct RunCosts<'a> {
    rows: &'a [Row],
    suite: &'a Suite,
    runs: Runs<'a>,
}

impl<'a> RunCosts<'a> {
    fn new(loaded: &'a LoadedRecord, suite: &'a Suite) -> Self {
        let runs = Runs::new(&loaded.samples, &loaded.slices);
        Self { rows: &loaded.record.rows, suite, runs }
    }

    fn find(&self, row: &Row) -> Option<&'a Row> {
        self.rows.iter().find(|other| (other.twin, other.key()) == (row.twin, row.key()))
    }

    /// The mean of the logarithms of a row's cost and the variance of that mean; `None` below ten blocks.
    fn cost(&self, row: &Row) -> Option<CostEstimate> {
        let logs = log_costs(row, self.suite, &self.runs)?;
        let enough = logs.len() >= INTERVAL_BLOCKS_MIN;
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        enough.then(|| CostEstimate { mean, variance: squares / (count - 1.0) / count })
    }
}

/// The logarithm of a cost in one run.
#[derive(Clone, Copy)]
struct CostEstimate {
    mean: f64,
    variance: f64,
}

/// A row with its cost now and in every baseline.
struct CostHistory<'a> {
    row: &'a Row,
    has_failed_twin: bool,
    now: Option<CostEstimate>,
    before: Option<Vec<CostEstimate>>,
}

/// The number of rows from which on the typical change of all of them is one that no change of the code made.
const ROWS_TYPICAL_MIN: usize = 8;
/// The median of the square of a standard normal variable: 0.6745².
const MEDIAN_OF_SQUARES: f64 = 0.454_936;

/// Estimates the variance of a cost between runs that measured the same, beyond that between blocks, as one figure for
/// all rows. With several baselines it is what they differ by; with one, the typical squared change, by its median: of
/// the A/A rows, whose cost no change of the code moves, and of all rows where they are many, so that the few that did
/// change do not count. `None` where nothing tells.
fn estimate_run_variance(rows: &[CostHistory<'_>], twins: &[CostHistory<'_>]) -> Option<f64> {
    let known = || rows.iter().filter_map(|row| Some((row.now?, row.before.as_ref()?)));
    let several: Vec<f64> = known()
        .filter(|(_, before)| before.len() > 1)
        .map(|(_, before)| {
            let count = before.len() as f64;
            let mean = before.iter().map(|one| one.mean).sum::<f64>() / count;
            let squares: f64 = before.iter().map(|one| (one.mean - mean).powi(2)).sum();
            squares / (count - 1.0) - before.iter().map(|one| one.variance).sum::<f64>() / count
        })
        .collect();
    if let Some(variance) = mean(&several) {
        return Some(variance.max(0.0));
    }
    let rows = if rows.len() < ROWS_TYPICAL_MIN { &[] } else { rows };
    let single =
        rows.iter().chain(twins).filter_map(|row| Some((row.now?, *row.before.as_ref()?.first()?)));
    let excess = single.map(|(now, before)| {
        // Both runs have the variance between runs, so that the change has it twice.
        ((now.mean - before.mean).powi(2) / MEDIAN_OF_SQUARES - now.variance - before.variance)
            / 2.0
    });
    quantile(&excess.collect::<Vec<_>>(), 0.5).map(|variance| variance.max(0.0))
}

impl<'a> CostHistory<'a> {
    fn new(row: &'a Row, now: &RunCosts<'_>, before: &[RunCosts<'_>]) -> Self {
        let old = || before.iter().filter_map(|run| run.find(row));
        Self {
            row,
            has_failed_twin: has_failed_twin(row) || old().any(has_failed_twin),
            now: now.cost(row),
            before: before.iter().map(|run| run.cost(row)).collect(),
        }
    }

    /// Judges the change of the cost; `variance` is that between runs, `rows` the number that are judged together.
    fn check(&self, variance: Option<f64>, rows: usize, options: &CheckOptions) -> CheckedRow {
        let row = self.row;
        let checked_row = |checked, cost: String, verdict: &str| CheckedRow {
            label: row.label.clone(),
            checked,
            cost,
            verdict: verdict.to_owned(),
        };
        if self.has_failed_twin {
            return checked_row(CheckOutcome::Invalid, cost(row), "its A/A row failed");
        }
        let (Some(now), Some(before)) = (self.now, &self.before) else {
            return checked_row(CheckOutcome::Undecided, cost(row), "too few blocks");
        };
        let Some(variance) = variance else {
            return checked_row(
                CheckOutcome::Undecided,
                cost(row),
                "variance between runs unknown",
            );
        };
        let count = before.len() as f64;
        let mean_before = before.iter().map(|one| one.mean).sum::<f64>() / count;
        let within =
            now.variance + before.iter().map(|one| one.variance).sum::<f64>() / count.powi(2);
        let error = (within + variance * (1.0 + 1.0 / count)).sqrt();
        let reach = normal_quantile(1.0 - 0.025 / rows.max(1) as f64) * error;
        let change = now.mean - mean_before;
        let [value, low, high] = [change, change - reach, change + reach].map(f64::exp);
        let interval = Interval { low, high, level: 0.95 };
        let estimate = Estimate {
            value,
            interval,
            wide: interval,
            block_sd: 0.0,
            blocks: INTERVAL_BLOCKS_MIN,
        };
        let margin = options.margin.unwrap_or(row.margin);
        let outcome = RowVerdict::from(Verdict::from_estimate(&estimate, Margin::Relative(margin)));
        let place = match outcome {
            RowVerdict::WithinMargin => "within",
            RowVerdict::AboveMargin => "above",
            RowVerdict::BelowMargin => "below",
            RowVerdict::Undecided { .. } | RowVerdict::NotEvaluated => "undecided at",
        };
        let cheaper = if outcome == RowVerdict::BelowMargin { ", cheaper" } else { "" };
        let verdict = format!("{place} {} %{cheaper}", digits(margin * 100.0));
        let text = format!("{} of the baseline's cost", ratio(value, low, high));
        checked_row(check_outcome(outcome, options), text, &verdict)
    }
}

/// Computes the logarithm of the cost for each block; `None` if a ratio is not defined.
fn log_costs(row: &Row, suite: &Suite, runs: &Runs<'_>) -> Option<Vec<f64>> {
    let bench = suite.bench(&row.bench)?;
    let metric = bench.metrics.iter().find(|metric| metric.name == row.metric)?;
    let cases = all_cases(bench);
    let case = cases.iter().find(|case| case.key == row.case)?;
    let reference = runs.valid_runs(bench, case, &row.reference, false);
    let mine = runs.valid_runs(bench, case, &row.arm, row.twin);
    let logs: Option<Vec<f64>> = pair_values(metric, &reference, &mine)
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

#[cfg(test)]
mod tests {
    use confide_estimate::Random;

    use super::*;
    use crate::selftest::synthetic::{Noise, SyntheticSuite, blocks, make_loaded};

    fn run(shape: &SyntheticSuite, seed: u64, delays: [f64; 2]) -> LoadedRecord {
        let [aa, b] = delays;
        let arms = [("a", false, 0.0), ("a", true, aa), ("b", false, b)];
        let slices = blocks(&arms, 20, Noise::Quiet, &mut Random::new(seed));
        make_loaded(shape, 1_000 + seed, Vec::new(), slices).unwrap()
    }

    fn with_gate(limit: &str) -> SyntheticSuite {
        SyntheticSuite { gate: Some(limit.to_owned()), ..SyntheticSuite::default() }
    }

    #[test]
    fn a_suites_gates_decide_and_not_its_margins() {
        // 30 % dearer: outside the margin of 2 %, within the gate.
        let checked = |shape: &SyntheticSuite, options: &CheckOptions| {
            check_record(&run(shape, 1, [0.0, 0.3]), options).unwrap().checked
        };
        let options = CheckOptions::default();
        assert_eq!(checked(&SyntheticSuite::default(), &options), CheckOutcome::Outside);
        assert_eq!(checked(&with_gate("ratio_at_most = 1.5"), &options), CheckOutcome::Within);
        assert_eq!(checked(&with_gate("ratio_at_most = 1.1"), &options), CheckOutcome::Outside);
        assert_eq!(checked(&with_gate("adds_at_most = 100.0"), &options), CheckOutcome::Within);
        let others = CheckOptions { margin: Some(0.02), ..options };
        assert_eq!(checked(&with_gate("ratio_at_most = 1.5"), &others), CheckOutcome::Outside);
        assert!(with_gate("margin = 1.5").suite().is_err() && with_gate("").suite().is_err());
    }

    #[test]
    fn a_gate_whose_row_is_missing_is_undecided_and_named() {
        let mut loaded = run(&with_gate("ratio_at_most = 1.5"), 1, [0.0, 0.3]);
        loaded.slices.retain(|slice| slice.place.arm != "b");
        let report = check_record(&loaded, &CheckOptions::default()).unwrap();
        assert_eq!(report.checked, CheckOutcome::Undecided);
        let text = report.text();
        assert!(text.contains("made-up work_ms b: its gate has no row in the record"), "{text}");
        // A bench that nobody asked for, or of which the plan has no block, is not missed.
        let options = CheckOptions { bench: Some("another".into()), ..CheckOptions::default() };
        let text = check_record(&loaded, &options).unwrap().text();
        assert!(!text.contains("its gate has no row"), "{text}");
        loaded.record.blocks_asked = Some(0);
        let text = check_record(&loaded, &CheckOptions::default()).unwrap().text();
        assert!(!text.contains("its gate has no row"), "{text}");
    }

    #[test]
    fn a_record_is_not_its_own_baseline_and_a_baseline_counts_once() {
        let shape = SyntheticSuite::default();
        let [now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        let options = CheckOptions::default();
        let same = check_against(&now, std::slice::from_ref(&now), &options).unwrap();
        assert_eq!(same.checked, CheckOutcome::Undecided);
        assert!(same.text().contains("the record is its own baseline"), "{}", same.text());
        let twice = check_against(&now, &[before.clone(), before], &options).unwrap();
        assert!(twice.text().contains("a baseline is given twice"), "{}", twice.text());
    }

    #[test]
    fn a_row_of_the_baseline_that_the_record_lacks_is_undecided_and_named() {
        let shape = SyntheticSuite::default();
        let [mut now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        assert_eq!(
            check_against(&now, std::slice::from_ref(&before), &options).unwrap().checked,
            CheckOutcome::Within
        );
        now.record.rows.retain(|row| row.twin);
        let report = check_against(&now, &[before], &options).unwrap();
        assert_eq!(report.checked, CheckOutcome::Undecided);
        assert!(report.text().contains("in a baseline, not in the record"), "{}", report.text());
    }

    #[test]
    fn without_a_row_that_tells_how_runs_differ_there_is_no_verdict() {
        let shape = SyntheticSuite::default();
        let [mut now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        now.record.rows.retain(|row| !row.twin);
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        let report = check_against(&now, &[before], &options).unwrap();
        assert_eq!(report.checked, CheckOutcome::Undecided);
        assert!(report.text().contains("variance between runs unknown"), "{}", report.text());
    }

    #[test]
    fn runs_that_differ_by_chance_alone_fail_no_more_often_than_one_in_twenty() {
        // Each run has a cost of its own, 3 % around 10 %: more than its blocks tell.
        let mut luck = Random::new(5);
        let of = |seed: u64, luck: &mut Random| {
            run(
                &SyntheticSuite::default(),
                seed,
                [0.03 * luck.normal(), 0.1 + 0.03 * luck.normal()],
            )
        };
        let options =
            CheckOptions { both_ways: true, margin: Some(0.02), ..CheckOptions::default() };
        let mut outside = 0;
        for trial in 0..40 {
            let baselines: Vec<LoadedRecord> =
                (1..5).map(|n| of(trial * 10 + n, &mut luck)).collect();
            let now = of(trial * 10 + 9, &mut luck);
            let report = check_against(&now, &baselines, &options).unwrap();
            outside += u32::from(report.checked == CheckOutcome::Outside);
        }
        assert!(outside <= 4, "{outside} of 40");
    }

    #[test]
    fn a_run_of_which_most_was_disturbed_gets_no_verdict_unless_that_is_accepted() {
        let mut loaded = run(&SyntheticSuite::default(), 1, [0.0, 0.3]);
        for row in &mut loaded.record.rows {
            let costs =
                crate::rows::row::RunCosts { slices: 40, disturbed: 30, ..Default::default() };
            row.beside = Some(Box::new(costs));
        }
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        let report = check_record(&loaded, &options).unwrap();
        assert_eq!(report.checked, CheckOutcome::Undecided);
        assert!(
            report.text().contains("75 % of the headline rows' runs were disturbed"),
            "{}",
            report.text()
        );
        let accepted = CheckOptions { accept_disturbed: true, ..options };
        assert_eq!(check_record(&loaded, &accepted).unwrap().checked, CheckOutcome::Within);
    }

    #[test]
    fn a_chain_that_was_kept_apart_names_another_record() {
        let mut loaded = run(&SyntheticSuite::default(), 1, [0.0, 0.0]);
        loaded.record.seal(&loaded.samples, &loaded.slices).unwrap();
        let end = loaded.record.chain_end().unwrap().to_owned();
        let checked = |chain: &str| {
            let options = CheckOptions {
                margin: Some(0.9),
                chain: Some(chain.to_owned()),
                ..Default::default()
            };
            check_record(&loaded, &options).unwrap().checked
        };
        assert_eq!(checked(&end[..16]), CheckOutcome::Within);
        assert_eq!(checked(&end[..8]), CheckOutcome::Invalid);
        assert_eq!(checked(&"0".repeat(64)), CheckOutcome::Invalid);
        let unchained = run(&SyntheticSuite::default(), 1, [0.0, 0.0]);
        let options = CheckOptions { chain: Some(end), ..CheckOptions::default() };
        let report = check_record(&unchained, &options).unwrap();
        assert!(report.text().contains("but the record has no chain"), "{}", report.text());
    }
}

//! A record judged by margins, for a program that wants a yes or a no.

pub(crate) mod baseline;

use confide_estimate::{Estimate, Interval, Margin, Verdict};
use serde::Serialize;

use crate::{
    disturbed::{DISTURBED_MOST, DISTURBED_WARNS},
    error::BenchError,
    format::{display_scale, format_number},
    loaded::LoadedRecord,
    plan::{block_count, cases},
    record::Record,
    rows::{
        row::{AaVerdict, Row, RowEstimate, RowVerdict},
        text::{format_cost, format_ratio, format_verdict},
    },
    suite::{Gate, Suite, bench::Bench},
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
    fn label(self) -> &'static str {
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
            let mark = row.checked.label();
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
    fn check_hash_chain(&mut self, record: &Record, options: &CheckOptions) {
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
    fn add_missing_rows(&mut self, missing: Vec<String>, why: &str) {
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
    let judged = loaded.analyse_with_suite(&suite);
    let mut says = record.remarks.clone();
    let gates = applicable_gates(&suite, options);
    let is_checked = |row: &Row| match gates {
        [] => is_selected_row(row, options),
        gates => find_gate(gates, &suite, row).is_some() && is_in_selected_bench(row, options),
    };
    if !gates.is_empty() {
        says.push(
            "checked: the gates of the suite (--metric or --margin checks other rows)".into(),
        );
    }
    let missing = missing_gate_rows(gates, &suite, record, &judged.rows, options);
    let rows = judged.rows.into_iter().filter(is_checked).map(|mut row| {
        if let Some(gate) = find_gate(gates, &suite, &row) {
            return check_gate(gate, &row);
        }
        if let (Some(margin), Some(ends), true) = (options.margin, row.ratio, row.has_interval()) {
            row.margin = margin;
            row.adds_at_most = None;
            if !row.is_without_tail() {
                row.outcome =
                    Verdict::from_estimate(&ends.to_estimate(row.blocks), Margin::Relative(margin))
                        .into();
            }
        }
        CheckedRow {
            label: row.label.clone(),
            checked: judge_row(&row, options),
            cost: format_cost(&row),
            verdict: format_verdict(&row),
        }
    });
    let rows: Vec<CheckedRow> = rows.collect();
    if let Some(partial) = &record.partial {
        says.push(format!("partial: {partial}"));
    }
    let mut check = CheckReport::from_rows(rows, says, &[&judged.validity]);
    check.add_missing_rows(missing, "its gate has no row in the record");
    check.check_hash_chain(record, options);
    check.judge_disturbance("", record, options);
    if record.partial.is_some() || !record.not_run.is_empty() {
        add_benches_not_run(&mut check, &record.not_run());
    }
    Ok(check)
}

/// The gates by which a record is checked: those of its suite, unless the caller asks for other rows or another margin.
fn applicable_gates<'a>(suite: &'a Suite, options: &CheckOptions) -> &'a [Gate] {
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
fn missing_gate_rows(
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
                && block_count(bench, record.effort, record.blocks_asked) > 0
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
            let (scale, unit) = display_scale(&row.metric, limit.abs());
            (Some(row.difference), limit, format!("{} {unit}", format_number(limit * scale)))
        }
        (None, None) => (None, 0.0, String::new()),
    };
    let (checked, place) = match ends {
        _ if has_failed_aa_check(row) => (CheckOutcome::Invalid, "its A/A row failed, limit"),
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
            format_ratio(ends.value, ends.low, ends.high)
        }
        _ => format_cost(row),
    };
    CheckedRow { label: row.label.clone(), checked, cost, verdict: format!("{place} {shown}") }
}

fn is_in_selected_bench(row: &Row, options: &CheckOptions) -> bool {
    options.bench.as_ref().is_none_or(|name| *name == row.bench)
}

/// A record whose plan was not done to its end is not within: what is missing could have been outside.
fn add_benches_not_run(check: &mut CheckReport, not_run: &[String]) {
    check.says.extend(not_run.iter().map(|what| format!("not run: {what}")));
    if check.checked == CheckOutcome::Within {
        check.checked = CheckOutcome::Undecided;
    }
}

fn judge_row(row: &Row, options: &CheckOptions) -> CheckOutcome {
    if has_failed_aa_check(row) {
        return CheckOutcome::Invalid;
    }
    // A cost that is smaller than the noise is no finding, whichever side of a margin it lies on.
    let is_noise = row.outcome != RowVerdict::WithinMargin && row.is_indistinguishable();
    if row.client_bound || is_noise {
        CheckOutcome::Undecided
    } else {
        outcome_of_verdict(row.outcome, options)
    }
}

fn has_failed_aa_check(row: &Row) -> bool {
    matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne))
}

fn outcome_of_verdict(outcome: RowVerdict, options: &CheckOptions) -> CheckOutcome {
    match outcome {
        RowVerdict::WithinMargin => CheckOutcome::Within,
        RowVerdict::AboveMargin => CheckOutcome::Outside,
        RowVerdict::BelowMargin if options.both_ways => CheckOutcome::Outside,
        RowVerdict::BelowMargin => CheckOutcome::Within,
        RowVerdict::Undecided { .. } | RowVerdict::NotEvaluated => CheckOutcome::Undecided,
    }
}

fn is_selected_row(row: &Row, options: &CheckOptions) -> bool {
    let metric = match &options.metric {
        Some(name) => *name == row.metric,
        None => row.headline,
    };
    !row.twin && metric && is_in_selected_bench(row, options)
}

impl RowEstimate {
    fn to_estimate(self, blocks: usize) -> Estimate {
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
pub(crate) mod tests {
    use confide_estimate::Random;

    use super::*;
    use crate::selftest::synthetic::{Noise, SyntheticSuite, make_loaded_record, make_slices};

    pub(crate) fn run(shape: &SyntheticSuite, seed: u64, delays: [f64; 2]) -> LoadedRecord {
        let [aa, b] = delays;
        let arms = [("a", false, 0.0), ("a", true, aa), ("b", false, b)];
        let slices = make_slices(&arms, 20, Noise::Quiet, &mut Random::new(seed));
        make_loaded_record(shape, 1_000 + seed, Vec::new(), slices).unwrap()
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
        assert!(with_gate("margin = 1.5").parse().is_err() && with_gate("").parse().is_err());
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
        loaded.record.compute_hash_chain(&loaded.samples, &loaded.slices).unwrap();
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

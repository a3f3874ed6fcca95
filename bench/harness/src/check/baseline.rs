//! The costs of a record compared with those of earlier runs.

use confide_estimate::{
    Estimate, INTERVAL_BLOCKS_MIN, Interval, Margin, Verdict, mean, normal_quantile, quantile,
};

use super::{
    CheckOptions, CheckOutcome, CheckReport, CheckedRow, add_benches_not_run, has_failed_aa_check,
    is_selected_row, outcome_of_verdict,
};
use crate::{
    compare::{
        all_cases,
        refusal::{Refusal, RefusalReason, is_same_run, refuse_different_suites},
    },
    error::BenchError,
    format::format_number,
    loaded::LoadedRecord,
    rows::{
        pair_values,
        row::{Row, RowVerdict},
        runs::Runs,
        text::{format_cost, format_ratio},
    },
    suite::{Suite, bench::BetterDirection},
    validity::Validity,
};

/// Compares the costs of one record with those of earlier ones.
///
/// A cost is a ratio within one run, of two arms that met in its blocks, so that the state of the machine cancels out.
/// What is compared is the ratio of costs. Its interval has the blocks of all runs, the variance between runs
/// ([`estimate_run_variance`]), and a level for which the number of rows is corrected (Bonferroni).
///
/// # Errors
/// When the suite of a record cannot be read by this version.
pub fn check_against_baselines(
    loaded: &LoadedRecord,
    baselines: &[LoadedRecord],
    options: &CheckOptions,
) -> Result<CheckReport, BenchError> {
    let refused = baselines.iter().flat_map(|baseline| refuse_records(loaded, baseline));
    let refused = refuse_duplicate_records(loaded, baselines).into_iter().chain(refused);
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
    let now = RecordCosts::new(loaded, &suite);
    let suites: Vec<Suite> =
        baselines.iter().map(|one| one.record.parse_suite()).collect::<Result<_, _>>()?;
    let before: Vec<RecordCosts<'_>> =
        baselines.iter().zip(&suites).map(|(one, suite)| RecordCosts::new(one, suite)).collect();
    let (compared, absent): (Vec<&Row>, Vec<&Row>) = loaded
        .record
        .rows
        .iter()
        .filter(|row| is_selected_row(row, options))
        .partition(|row| before.iter().all(|run| run.find_row(row).is_some()));
    says.extend(absent.iter().map(|row| format!("{}: not in every baseline", row.label)));
    let rows: Vec<CostHistory<'_>> =
        compared.iter().map(|row| CostHistory::new(row, &now, &before)).collect();
    let twins = loaded.record.rows.iter().filter(|row| row.twin);
    let twins: Vec<CostHistory<'_>> =
        twins.map(|row| CostHistory::new(row, &now, &before)).collect();
    let variance = estimate_run_variance(&rows, &twins);
    says.extend(describe_variance(variance, baselines.len(), rows.len()));
    let checked = rows.iter().map(|row| row.judge_change(variance, rows.len(), options)).collect();
    let validity: Vec<&Validity> =
        std::iter::once(loaded).chain(baselines).map(|one| &one.record.validity).collect();
    let mut check = CheckReport::from_rows(checked, says, &validity);
    check.add_missing_rows(
        missing_baseline_rows(loaded, baselines, options),
        "in a baseline, not in the record",
    );
    if !loaded.record.not_run.is_empty() {
        add_benches_not_run(&mut check, &loaded.record.not_run());
    }
    check.check_hash_chain(&loaded.record, options);
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
            "costs compared with {of}, without a verdict: with no A/A row and fewer than eight \
             other rows, the variance between runs is not known"
        )];
    };
    let mut says = vec![format!(
        "costs compared with {of}; their intervals include the variance between runs (SD {} %) and \
         are corrected for {rows} rows",
        format_number(variance.sqrt() * 100.0)
    )];
    if baselines == 1 {
        says.push(
            "with one baseline, that variance is estimated from the A/A rows, and also from the \
             other rows if there are at least eight: a change of most rows at once is then taken \
             for variance; more baselines tell the two apart"
                .into(),
        );
    }
    says
}

/// Refuses a record that is its own baseline, or a baseline that is given twice.
fn refuse_duplicate_records(loaded: &LoadedRecord, baselines: &[LoadedRecord]) -> Vec<Refusal> {
    let detail = |index: usize, baseline: &LoadedRecord| {
        if is_same_run(loaded, baseline) {
            return Some("the record is its own baseline".to_owned());
        }
        let is_again = baselines[..index].iter().any(|other| is_same_run(other, baseline));
        is_again.then(|| "a baseline is given twice".to_owned())
    };
    let details = baselines.iter().enumerate().filter_map(|(index, one)| detail(index, one));
    details.map(|detail| Refusal { reason: RefusalReason::SameRecord, detail }).collect()
}

/// Names the rows of a baseline that the record should have and does not.
fn missing_baseline_rows(
    loaded: &LoadedRecord,
    baselines: &[LoadedRecord],
    options: &CheckOptions,
) -> Vec<String> {
    let has =
        |row: &Row| loaded.record.rows.iter().any(|other| !other.twin && other.key() == row.key());
    let mut missing: Vec<String> = Vec::new();
    for row in baselines.iter().flat_map(|baseline| &baseline.record.rows) {
        if is_selected_row(row, options) && !has(row) && !missing.contains(&row.label) {
            missing.push(row.label.clone());
        }
    }
    missing
}

/// Returns the reasons for which costs of two records cannot be compared.
fn refuse_records(loaded: &LoadedRecord, baseline: &LoadedRecord) -> Vec<Refusal> {
    let (now, before) = (&loaded.record, &baseline.record);
    let mut refused = refuse_different_suites(now, before, "the baseline");
    let mut say = |reason, detail: String| refused.push(Refusal { reason, detail });
    if now.suite.name != before.suite.name {
        say(
            RefusalReason::DifferentSuite,
            format!("{} against {}", now.suite.name, before.suite.name),
        );
    }
    let [a, b] = [now, before]
        .map(|record| (record.machine.describe_processor(), record.machine.cpus_online));
    if a != b {
        say(RefusalReason::DifferentHardware, format!("{} against {}", a.0, b.0));
    }
    if now.partial.is_some() || before.partial.is_some() {
        say(RefusalReason::Partial, "a record ended before its plan was complete".into());
    }
    refused
}

/// A record with what its costs are computed from.
struct RecordCosts<'a> {
    rows: &'a [Row],
    suite: &'a Suite,
    runs: Runs<'a>,
}

impl<'a> RecordCosts<'a> {
    fn new(loaded: &'a LoadedRecord, suite: &'a Suite) -> Self {
        let runs = Runs::new(&loaded.samples, &loaded.slices);
        Self { rows: &loaded.record.rows, suite, runs }
    }

    fn find_row(&self, row: &Row) -> Option<&'a Row> {
        self.rows.iter().find(|other| (other.twin, other.key()) == (row.twin, row.key()))
    }

    /// The mean of the logarithms of a row's cost and the variance of that mean; `None` below ten blocks.
    fn estimate_cost(&self, row: &Row) -> Option<LogCostEstimate> {
        let logs = cost_logarithms(row, self.suite, &self.runs)?;
        let enough = logs.len() >= INTERVAL_BLOCKS_MIN;
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        enough.then(|| LogCostEstimate { mean, variance: squares / (count - 1.0) / count })
    }
}

/// The logarithm of a cost in one run.
#[derive(Clone, Copy)]
struct LogCostEstimate {
    mean: f64,
    variance: f64,
}

/// A row with its cost now and in every baseline.
struct CostHistory<'a> {
    row: &'a Row,
    has_failed_aa_check: bool,
    now: Option<LogCostEstimate>,
    before: Option<Vec<LogCostEstimate>>,
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
    fn new(row: &'a Row, now: &RecordCosts<'_>, before: &[RecordCosts<'_>]) -> Self {
        let old = || before.iter().filter_map(|run| run.find_row(row));
        Self {
            row,
            has_failed_aa_check: has_failed_aa_check(row) || old().any(has_failed_aa_check),
            now: now.estimate_cost(row),
            before: before.iter().map(|run| run.estimate_cost(row)).collect(),
        }
    }

    /// Judges the change of the cost; `variance` is that between runs, `rows` the number that are judged together.
    fn judge_change(
        &self,
        variance: Option<f64>,
        rows: usize,
        options: &CheckOptions,
    ) -> CheckedRow {
        let row = self.row;
        let checked_row = |checked, cost: String, verdict: &str| CheckedRow {
            label: row.label.clone(),
            checked,
            cost,
            verdict: verdict.to_owned(),
        };
        if self.has_failed_aa_check {
            return checked_row(CheckOutcome::Invalid, format_cost(row), "its A/A row failed");
        }
        let (Some(now), Some(before)) = (self.now, &self.before) else {
            return checked_row(CheckOutcome::Undecided, format_cost(row), "too few blocks");
        };
        let Some(variance) = variance else {
            return checked_row(
                CheckOutcome::Undecided,
                format_cost(row),
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
        let verdict = format!("{place} {} %{cheaper}", format_number(margin * 100.0));
        let text = format!("{} of the baseline's cost", format_ratio(value, low, high));
        checked_row(outcome_of_verdict(outcome, options), text, &verdict)
    }
}

/// Computes the logarithm of the cost for each block; `None` if a ratio is not defined.
fn cost_logarithms(row: &Row, suite: &Suite, runs: &Runs<'_>) -> Option<Vec<f64>> {
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
            let cost = if metric.better == BetterDirection::Lower { log } else { -log };
            cost.is_finite().then_some(cost)
        })
        .collect();
    logs.filter(|logs| logs.len() > 1)
}

#[cfg(test)]
mod tests {
    use confide_estimate::Random;

    use super::*;
    use crate::{check::tests::run, selftest::synthetic::SyntheticSuite};

    #[test]
    fn a_record_is_not_its_own_baseline_and_a_baseline_counts_once() {
        let shape = SyntheticSuite::default();
        let [now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        let options = CheckOptions::default();
        let same = check_against_baselines(&now, std::slice::from_ref(&now), &options).unwrap();
        assert_eq!(same.checked, CheckOutcome::Undecided);
        assert!(same.text().contains("the record is its own baseline"), "{}", same.text());
        let twice = check_against_baselines(&now, &[before.clone(), before], &options).unwrap();
        assert!(twice.text().contains("a baseline is given twice"), "{}", twice.text());
    }

    #[test]
    fn a_baseline_whose_suite_measured_something_else_is_refused() {
        let [now, before] = [1, 2].map(|seed| run(&SyntheticSuite::default(), seed, [0.0, 0.1]));
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        let checked = |change: fn(&str) -> String| {
            let mut other = before.clone();
            other.record.suite.text = change(&before.record.suite.text);
            check_against_baselines(&now, &[other], &options).unwrap()
        };
        let report = checked(|text| text.replace("requests = 1", "requests = 2"));
        assert_eq!(report.checked, CheckOutcome::Undecided);
        assert!(
            report.text().contains("different params, requests or answers"),
            "{}",
            report.text()
        );
        let report = checked(|text| format!("{text}[vars]\nrate = \"3\"\n"));
        assert!(report.text().contains("other variables on the baseline"), "{}", report.text());
        assert_eq!(checked(|text| format!("{text}# a remark\n")).checked, CheckOutcome::Within);
    }

    #[test]
    fn a_row_of_the_baseline_that_the_record_lacks_is_undecided_and_named() {
        let shape = SyntheticSuite::default();
        let [mut now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        assert_eq!(
            check_against_baselines(&now, std::slice::from_ref(&before), &options).unwrap().checked,
            CheckOutcome::Within
        );
        now.record.rows.retain(|row| row.twin);
        let report = check_against_baselines(&now, &[before], &options).unwrap();
        assert_eq!(report.checked, CheckOutcome::Undecided);
        assert!(report.text().contains("in a baseline, not in the record"), "{}", report.text());
    }

    #[test]
    fn without_a_row_that_tells_how_runs_differ_there_is_no_verdict() {
        let shape = SyntheticSuite::default();
        let [mut now, before] = [run(&shape, 1, [0.0, 0.1]), run(&shape, 2, [0.0, 0.1])];
        now.record.rows.retain(|row| !row.twin);
        let options = CheckOptions { margin: Some(0.9), ..CheckOptions::default() };
        let report = check_against_baselines(&now, &[before], &options).unwrap();
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
            let report = check_against_baselines(&now, &baselines, &options).unwrap();
            outside += u32::from(report.checked == CheckOutcome::Outside);
        }
        assert!(outside <= 4, "{outside} of 40");
    }
}

//! Search for the row of ours that answers one of theirs, and its description in one line.

use super::{
    data::{OurRow, Percentile},
    suites::NamedSuites,
};
use crate::{
    format::format_value,
    loaded::LoadedRecord,
    published::{case_has_params, find_allowed_value},
    record::Record,
    rows::{
        row::{PooledFigure, Row},
        text::{format_arm_figures, format_cost, format_verdict},
    },
    suite::bench::Params,
    validity::Validity,
};

/// The answer of the records to one named row.
pub(super) enum RowLookup<'a> {
    /// The suite does not exist.
    NotBuilt,
    /// No record holds the row.
    NoRecord,
    /// What the row says, and the record that holds it.
    Figure(String, &'a LoadedRecord),
}

/// Searches all records for a row with all params that the answer names: in those whose A/A rows passed, else in those
/// that were not judged, else in the invalid ones. Of several, the newest in which the row has an interval answers,
/// else the newest.
pub(super) fn find_answer<'a>(
    answer: &OurRow,
    suites: &NamedSuites,
    records: &'a [LoadedRecord],
) -> RowLookup<'a> {
    let Some(suite) = suites.find(&answer.suite) else {
        return RowLookup::NotBuilt;
    };
    let bench = suite.benches.iter().find(|bench| bench.name == answer.bench);
    let first = bench.and_then(|bench| bench.arms.first());
    let Some(reference) = answer.against.as_ref().or(first) else { return RowLookup::NoRecord };
    let mut fitting: Vec<&LoadedRecord> =
        records.iter().filter(|loaded| is_of_suite(&loaded.record, answer, suites)).collect();
    fitting.sort_by_key(|loaded| {
        let rank = match loaded.record.validity {
            Validity::Valid { .. } => 0,
            Validity::NotJudged { .. } => 1,
            Validity::Invalid { .. } => 2,
        };
        let lacks_interval = !has_interval(&loaded.record, answer);
        (rank, lacks_interval, std::cmp::Reverse(loaded.record.started_unix_s))
    });
    for loaded in fitting {
        if let Some(text) = describe_figure(&loaded.record, answer, reference) {
            let invalid = if is_invalid(&loaded.record) { ", *of an invalid run*" } else { "" };
            return RowLookup::Figure(format!("{text}{invalid}"), loaded);
        }
    }
    RowLookup::NoRecord
}

/// True where a row of the answer's bench, metric and params has the blocks that an interval needs.
fn has_interval(record: &Record, answer: &OurRow) -> bool {
    let constants = bench_constants(record, answer);
    record.rows.iter().any(|row| {
        row.bench == answer.bench
            && row.metric == answer.metric
            && row.has_interval()
            && case_has_params(&constants, &row.case, &answer.params)
    })
}

/// Returns the name of a record: its folder, or its file where it lies alone.
pub(super) fn record_name(loaded: &LoadedRecord) -> String {
    let path = loaded.path();
    let own = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let folder = path.parent().and_then(|folder| folder.file_name());
    match (own.as_deref(), folder) {
        (Some("record.json" | "record.json.gz"), Some(folder)) => {
            folder.to_string_lossy().into_owned()
        }
        _ => own.unwrap_or_default(),
    }
}

/// True where a record is of the answer's suite; `main` runs some benches of other suites under the
/// same names.
fn is_of_suite(record: &Record, answer: &OurRow, suites: &NamedSuites) -> bool {
    record.suite.name == answer.suite
        || (record.suite.name == "main"
            && suites.find("main").is_some_and(|main| answer.check(main).is_ok()))
}

fn is_invalid(record: &Record) -> bool {
    matches!(record.validity, Validity::Invalid { .. })
}

/// Describes the answer as a comparison where the arm has one, else by its own figure, else by the
/// reason why it was left out.
fn describe_figure(record: &Record, answer: &OurRow, reference: &str) -> Option<String> {
    if let Some(percentile) = answer.percentile {
        return describe_percentile(find_figure(record, answer)?, percentile);
    }
    describe_comparison(record, answer, reference)
        .or_else(|| Some(describe_mean(find_figure(record, answer)?)))
        .or_else(|| describe_left_out_arm(record, answer))
}

fn describe_comparison(record: &Record, answer: &OurRow, reference: &str) -> Option<String> {
    let constants = bench_constants(record, answer);
    let is_answer = |row: &&Row| {
        row.bench == answer.bench
            && row.metric == answer.metric
            && case_has_params(&constants, &row.case, &answer.params)
            && row.reference == reference
    };
    let rows = || record.rows.iter().filter(is_answer);
    if let Some(row) = rows().find(|row| row.arm == answer.arm && !row.twin) {
        let [clear, protected] = format_arm_figures(row);
        let (cost, verdict, n) = (format_cost(row), format_verdict(row), row.blocks);
        let chosen = describe_choice(&constants, &row.case, answer);
        return Some(format!(
            "{}{chosen}: {clear} to {protected}, {cost}, n {n}, {verdict}",
            row.label
        ));
    }
    let row = rows().find(|row| row.reference == answer.arm)?;
    let bare = row.label.split(": ").next().unwrap_or(&row.label);
    let client = if row.client_bound { ", client-bound" } else { "" };
    let chosen = describe_choice(&constants, &row.case, answer);
    Some(format!("{bare}{chosen}: {}, n {}{client}", format_arm_figures(row)[0], row.blocks))
}

/// The params that the record's own suite gives every case of the answer's bench.
fn bench_constants(record: &Record, answer: &OurRow) -> Params {
    let suite = record.parse_suite().ok();
    let bench = suite.as_ref().and_then(|suite| suite.bench(&answer.bench));
    bench.map(|bench| bench.params.clone()).unwrap_or_default()
}

/// Names the values that were taken where the answer allows several, ` (n = 2000)`: a quick run's or a full one's.
fn describe_choice(constants: &Params, case: &str, answer: &OurRow) -> String {
    let several = answer.params.iter().filter(|(_, wanted)| wanted.is_array());
    let chosen: Vec<String> = several
        .filter_map(|(name, wanted)| {
            Some(format!("{name} = {}", find_allowed_value(constants, case, name, wanted)?))
        })
        .collect();
    if chosen.is_empty() { String::new() } else { format!(" ({})", chosen.join(", ")) }
}

fn find_figure<'a>(record: &'a Record, answer: &OurRow) -> Option<&'a PooledFigure> {
    let constants = bench_constants(record, answer);
    record.figures.iter().find(|figure| {
        figure.bench == answer.bench
            && figure.metric == answer.metric
            && figure.arm == answer.arm
            && !figure.twin
            && case_has_params(&constants, &figure.case, &answer.params)
    })
}

fn describe_mean(figure: &PooledFigure) -> String {
    let shown = format_value(&figure.metric, figure.mean);
    format!(
        "{} of {}: mean {shown}, n {}{}",
        figure.metric,
        figure.arm,
        figure.n,
        simulated_mark(figure)
    )
}

/// Describes the percentile where its tail holds ten samples, else says why there is none.
fn describe_percentile(figure: &PooledFigure, percentile: Percentile) -> Option<String> {
    let (name, number) = match percentile {
        Percentile::P50 => ("p50", figure.p50),
        Percentile::P95 => ("p95", figure.p95),
        Percentile::P99 => ("p99", figure.p99),
    };
    let (metric, arm, n) = (&figure.metric, &figure.arm, figure.n);
    let shown = match number {
        Some(number) => format_value(metric, number),
        None => "not printed, its tail holds fewer than ten samples".to_owned(),
    };
    Some(format!("{metric} of {arm}: {name} {shown}, n {n}{}", simulated_mark(figure)))
}

fn simulated_mark(figure: &PooledFigure) -> &'static str {
    if figure.simulated { ", simulated" } else { "" }
}

fn describe_left_out_arm(record: &Record, answer: &OurRow) -> Option<String> {
    let arm = record.arms.iter().find(|arm| arm.bench == answer.bench && arm.name == answer.arm)?;
    Some(format!("{}: left out: {}", arm.label, arm.given_up.as_ref()?))
}

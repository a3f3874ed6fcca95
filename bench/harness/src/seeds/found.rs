//! Where a row of ours is found, and how it is said in one line.

use super::{Suites, data::Answer};
use crate::{
    Loaded, Record, Validity,
    format::{cost, sides, value, verdict},
    rows::{Figure, Row},
};

/// What a record says of one named row.
pub(super) enum Found<'a> {
    /// The suite does not exist.
    NotBuilt,
    /// No record holds it.
    NoRecord,
    /// Its text, and the record.
    Said(String, &'a Loaded),
}

/// Looks through all records: of the valid ones the newest, else the newest.
pub(super) fn find<'a>(answer: &Answer, suites: &Suites, records: &'a [Loaded]) -> Found<'a> {
    let Some(suite) = suites.of(&answer.suite) else {
        return Found::NotBuilt;
    };
    let bench = suite.benches.iter().find(|bench| bench.name == answer.bench);
    let first = bench.and_then(|bench| bench.arms.first());
    let Some(reference) = answer.against.as_ref().or(first) else { return Found::NoRecord };
    let mut fitting: Vec<&Loaded> =
        records.iter().filter(|loaded| holds(&loaded.record, answer, suites)).collect();
    fitting.sort_by_key(|loaded| (is_invalid(&loaded.record), std::cmp::Reverse(age(loaded))));
    for loaded in fitting {
        if let Some(text) = said(&loaded.record, answer, reference) {
            let invalid = if is_invalid(&loaded.record) { ", *of an invalid run*" } else { "" };
            return Found::Said(format!("{text}{invalid}"), loaded);
        }
    }
    Found::NoRecord
}

/// How a record is called: its folder, or its file where it lies alone.
pub(super) fn name(loaded: &Loaded) -> String {
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

/// `main` runs some benches of other suites under the same names.
fn holds(record: &Record, answer: &Answer, suites: &Suites) -> bool {
    record.suite.name == answer.suite
        || (record.suite.name == "main"
            && suites.of("main").is_some_and(|main| answer.check(main).is_ok()))
}

fn is_invalid(record: &Record) -> bool {
    matches!(record.validity, Validity::Invalid { .. })
}

fn age(loaded: &Loaded) -> u64 {
    loaded.record.started_unix_s
}

/// As a comparison where the arm has one, else its own figure.
fn said(record: &Record, answer: &Answer, reference: &str) -> Option<String> {
    let of_answer = |row: &&Row| {
        row.bench == answer.bench
            && row.metric == answer.metric
            && fits(&row.case, answer)
            && row.reference == reference
    };
    let rows = || record.rows.iter().filter(of_answer);
    if let Some(row) = rows().find(|row| row.arm == answer.arm && !row.twin) {
        let [clear, protected] = sides(row);
        let (cost, verdict) = (cost(row), verdict(row));
        let number = row.blocks;
        return Some(format!(
            "{}: {clear} to {protected}, {cost}, n {number}, {verdict}",
            row.label
        ));
    }
    if let Some(row) = rows().find(|row| row.reference == answer.arm) {
        let bare = row.label.split(": ").next().unwrap_or(&row.label);
        let client = if row.client_bound { ", client-bound" } else { "" };
        let clear = sides(row)[0].clone();
        return Some(format!("{bare}: {clear}, n {}{client}", row.blocks));
    }
    let figure = record.figures.iter().find(|figure: &&Figure| {
        figure.bench == answer.bench
            && figure.metric == answer.metric
            && figure.arm == answer.arm
            && !figure.twin
            && fits(&figure.case, answer)
    })?;
    let simulated = if figure.simulated { ", simulated" } else { "" };
    let shown = value(&figure.metric, figure.mean);
    Some(format!("{} of {}: mean {shown}, n {}{simulated}", figure.metric, figure.arm, figure.n))
}

/// Whether a case (`c=200 n=5000`) has all the params that are named.
fn fits(case: &str, answer: &Answer) -> bool {
    answer.params.iter().all(|(name, wanted)| {
        let text = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
        // A value may have spaces of its own.
        format!(" {case} ").contains(&format!(" {name}={text} "))
    })
}

//! The table on standard output.

mod beside;

use crate::{
    fit::{Fitted, fits},
    record::{ArmRecord, Record},
    rows::{
        row::Row,
        text::{HEAD, cells, pairing},
    },
    text_table::TextTable,
    validity::Validity,
};

/// The headline rows, the A/A rows and their judgement, as text that ends in a newline.
pub fn table(record: &Record) -> String {
    let headline = |twin: bool| record.rows.iter().filter(move |r| r.headline && r.twin == twin);
    let mut rows = TextTable::new(&HEAD);
    headline(false).for_each(|row| rows.push(cells(row)));
    if headline(true).next().is_some() {
        rows.push([]);
    }
    for row in headline(true) {
        let [label, rest @ ..] = cells(row);
        rows.push([format!("A/A {label}")].into_iter().chain(rest));
    }
    let mut text = rows.columns(&[4]);
    text.push('\n');
    text.push_str(&guarantees(record));
    text.push_str(&pairings(record));
    text.push_str(&notes(record));
    text.push_str(&growth_lines(record));
    text.push_str(&joint_test(record));
    text.push_str(&judgement(record));
    let beside = beside::cost_table(record);
    if !beside.is_empty() {
        text.push('\n');
        text.push_str(&beside);
    }
    text
}

/// More rows than this are counted instead of named.
const PAIRINGS_NAMED_MAX: usize = 4;

/// What pairing gained, row by row where they are few.
fn pairings(record: &Record) -> String {
    let headline = record.rows.iter().filter(|row| row.headline);
    let said: Vec<(&Row, String)> = headline.filter_map(|row| Some((row, pairing(row)?))).collect();
    if said.len() <= PAIRINGS_NAMED_MAX {
        let name = |row: &Row| if row.twin { "A/A " } else { "" };
        let line = |(row, text): &(&Row, String)| format!("{}{}: {text}\n", name(row), row.label);
        return said.iter().map(line).collect();
    }
    let useless =
        said.iter().filter(|(_, text)| text.starts_with("pairing gained nothing")).count();
    match useless {
        0 => String::new(),
        _ => format!("pairing gained nothing in {useless} of {} rows\n", said.len()),
    }
}

/// What the samples say against headline rows, each kind once.
fn notes(record: &Record) -> String {
    let mut said: Vec<(&str, String, usize)> = Vec::new();
    for row in record.rows.iter().filter(|row| row.headline) {
        for note in &row.notes {
            match said.iter_mut().find(|(short, ..)| *short == note.short()) {
                Some((_, _, count)) => *count += 1,
                None => said.push((note.short(), format!("{}: {}", row.label, note.long()), 1)),
            }
        }
    }
    let line = |(short, first, count): &(&str, String, usize)| match count {
        1 => format!("{short}: {first}\n"),
        _ => format!("{short}, {count} rows, the first: {first}\n"),
    };
    said.iter().map(line).collect()
}

/// How cost grows with work, where the suite asks for it.
fn growth_lines(record: &Record) -> String {
    let line = |fitted: &Fitted| {
        let simulated = if fitted.simulated { ", simulated" } else { "" };
        format!("{}: {}{simulated}\n", fitted.name, fitted.text)
    };
    fits(record).iter().map(line).collect()
}

/// How many rows differ from 1 when all are tried together; secondary to the intervals.
fn joint_test(record: &Record) -> String {
    let tried: Vec<f64> = record.rows.iter().filter_map(|row| row.p_holm).collect();
    if tried.len() < 2 {
        return String::new();
    }
    let differ = tried.iter().filter(|p| **p < 0.05).count();
    format!(
        "all {} rows together: {differ} differ at 5 % (signed ranks, Holm); margins are judged above\n",
        tried.len()
    )
}

/// What the arms of the headline rows computed of themselves, one line for each answer.
fn guarantees(record: &Record) -> String {
    let shown = |arm: &&ArmRecord| {
        !arm.twin && record.rows.iter().any(|row| row.headline && row.bench == arm.bench)
    };
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in record.arms.iter().filter(shown) {
        let Some(guarantee) = &arm.guarantee else { continue };
        let known = said.iter().position(|(text, _)| text == guarantee);
        let at = known.unwrap_or_else(|| {
            said.push((guarantee, Vec::new()));
            said.len() - 1
        });
        if !said[at].1.contains(&arm.label.as_str()) {
            said[at].1.push(&arm.label);
        }
    }
    let line =
        |(text, arms): &(&str, Vec<&str>)| format!("guarantee: {text}: {}\n", arms.join("; "));
    said.iter().map(line).collect()
}

/// One or two lines that say whether the table may be believed.
pub(crate) fn judgement(record: &Record) -> String {
    let mut text = match &record.validity {
        Validity::Valid { judged, failed: 0 } => {
            format!("A/A: passed, {judged} of {judged} rows\n")
        }
        Validity::Valid { judged, failed } => format!(
            "A/A: passed, {} of {judged} rows; {failed} outside, as chance allows of {judged}: \
             the rows beside it are invalid\n",
            judged - failed,
        ),
        Validity::NotJudged { reason } => format!("A/A: not judged, {reason}: indicative only\n"),
        Validity::Invalid { reasons } => {
            format!("A/A: FAILED, this run is invalid: {}\n", reasons.join("; "))
        }
    };
    if record.rows.iter().any(|row| row.headline && row.simulated) {
        text.push_str("simulated: rows so marked rest on simulated evidence, devices or delays\n");
    }
    if let Some(reason) = &record.partial {
        text.push_str(&format!("partial: {reason}\n"));
    }
    for not in &record.not_run {
        text.push_str(&format!("not run: {}: {}\n", not.bench, not.reason));
    }
    for arm in &record.arms {
        let Some(reason) = &arm.given_up else { continue };
        // An arm that never said hello has no version.
        let what = if arm.version.is_empty() { "not run" } else { "left out" };
        text.push_str(&format!("{what}: {}, arm {}: {reason}\n", arm.bench, arm.name));
    }
    if let Some(first) = record.voids.first() {
        let count = record.voids.len();
        text.push_str(&format!("void: {count} runs, the first: {}\n", first.reason));
    }
    text
}

//! Remarks that are needed to read the headline rows, one line each: what arms guarantee, what
//! pairing gained, and what speaks against the samples.

use crate::{
    document::Block,
    record::{ArmRecord, Record},
    rows::{row::Row, text::describe_pairing},
};

/// The most rows that are named; more are counted instead.
const PAIRINGS_NAMED_MAX: usize = 4;

/// Writes every remark as a paragraph.
pub(super) fn remark_blocks(record: &Record) -> Vec<Block> {
    let lines = [describe_guarantees(record), describe_pairings(record), describe_notes(record)];
    let lines = lines.into_iter().flatten().chain(describe_joint_test(record));
    lines.map(Block::Paragraph).collect()
}

/// Lists what the arms of the headline rows computed of themselves, one line for each answer.
fn describe_guarantees(record: &Record) -> Vec<String> {
    let has_row = |arm: &&ArmRecord| {
        !arm.twin && record.rows.iter().any(|row| row.headline && row.bench == arm.bench)
    };
    let mut known: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in record.arms.iter().filter(has_row) {
        let Some(guarantee) = arm.guarantee.as_deref() else { continue };
        match known.iter_mut().find(|(text, _)| *text == guarantee) {
            Some((_, arms)) if arms.contains(&arm.label.as_str()) => {}
            Some((_, arms)) => arms.push(&arm.label),
            None => known.push((guarantee, vec![&arm.label])),
        }
    }
    let line = |(text, arms): &(&str, Vec<&str>)| format!("guarantee: {text}: {}", arms.join("; "));
    known.iter().map(line).collect()
}

/// Says what pairing gained, row by row where they are few.
fn describe_pairings(record: &Record) -> Vec<String> {
    let headline = record.rows.iter().filter(|row| row.headline);
    let known: Vec<(&Row, String)> =
        headline.filter_map(|row| Some((row, describe_pairing(row)?))).collect();
    if known.len() <= PAIRINGS_NAMED_MAX {
        let name = |row: &Row| if row.twin { "A/A " } else { "" };
        let line = |(row, text): &(&Row, String)| format!("{}{}: {text}", name(row), row.label);
        return known.iter().map(line).collect();
    }
    let useless = known.iter().filter(|(_, text)| text.starts_with("pairing gained nothing"));
    match useless.count() {
        0 => Vec::new(),
        useless => vec![format!("pairing gained nothing in {useless} of {} rows", known.len())],
    }
}

/// Lists what the samples say against headline rows, each kind once.
fn describe_notes(record: &Record) -> Vec<String> {
    let mut known: Vec<(&str, String, usize)> = Vec::new();
    for row in record.rows.iter().filter(|row| row.headline) {
        for note in &row.notes {
            match known.iter_mut().find(|(short, ..)| *short == note.short_text()) {
                Some((_, _, count)) => *count += 1,
                None => known.push((
                    note.short_text(),
                    format!("{}: {}", row.label, note.long_text()),
                    1,
                )),
            }
        }
    }
    let line = |(short, first, count): &(&str, String, usize)| match count {
        1 => format!("{short}: {first}"),
        _ => format!("{short}, {count} rows, the first: {first}"),
    };
    known.iter().map(line).collect()
}

/// Counts the rows that differ from 1 when all are tried together, which is secondary to the
/// intervals.
fn describe_joint_test(record: &Record) -> Option<String> {
    let tried: Vec<f64> = record.rows.iter().filter_map(|row| row.p_holm).collect();
    let (differ, all) = (tried.iter().filter(|p| **p < 0.05).count(), tried.len());
    (all > 1).then(|| {
        format!(
            "all {all} rows together: {differ} differ at 5 % (signed ranks, Holm); margins are judged above"
        )
    })
}

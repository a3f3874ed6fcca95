//! Rows as sentences. Every number in them is a row's own, every judgement its verdict.

use super::layers::{LayerRows, RowView};
use crate::{
    document::ListItem,
    format::capitalise,
    rows::{
        row::{AaVerdict, Row, RowVerdict},
        text::{format_caveats, format_cost, format_verdict, verdict_colour, verdict_name},
    },
    suite::bench::CostForm,
    validity::Validity,
};

/// Writes the sentence of one row, and what stands behind it.
fn describe_row(view: &RowView<'_>) -> [String; 2] {
    let row = view.row;
    let reference = quote_label(view.view.arm_label(&row.reference));
    let instead = format!("{} instead of {reference}", quote_label(&row.arm_label));
    let about = row.label.replace(&format!(": {}", row.arm_label), "");
    // A figure without an interval states its number of blocks by itself.
    let blocks = if row.has_interval() { format!("{} blocks", row.blocks) } else { String::new() };
    let (subject, parts) = match view.view.find_arm_subject(row) {
        Some((_, words)) => (
            format!("{words} ({})", row.arm_label),
            [format!("instead of {reference}"), about, blocks],
        ),
        None => (instead, [about, blocks, String::new()]),
    };
    let text = if row.has_interval() {
        format!(
            "{subject} {}: {}, {}.",
            describe_verdict(row),
            format_cost(row),
            format_verdict(row)
        )
    } else {
        // The predicate says already that there is no verdict.
        format!("{subject} {}: {}{}.", describe_verdict(row), format_cost(row), format_caveats(row))
    };
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    [capitalise(&text, view.view.program_names()), parts.join("; ")]
}

/// Puts a label with a comma in it in quotation marks.
fn quote_label(label: &str) -> String {
    if label.contains(',') { format!("“{label}”") } else { label.to_owned() }
}

/// Says what the verdict means, as the predicate of a sentence.
fn describe_verdict(row: &Row) -> &'static str {
    if matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne)) {
        return "has no valid result, because its A/A check failed";
    }
    if row.is_without_tail() {
        return "has too few samples for this percentile";
    }
    if !row.has_interval() {
        return "has too few blocks for a verdict";
    }
    if row.is_indistinguishable() {
        return "has a cost that cannot be distinguished from zero";
    }
    let ratio_spans_one = row.ratio.is_some_and(|ends| ends.low <= 1.0 && ends.high >= 1.0);
    let nothing = row.difference.low <= 0.0 && row.difference.high >= 0.0;
    match (row.outcome, row.adds_at_most) {
        (RowVerdict::WithinMargin, None) if ratio_spans_one => "has no measurable cost",
        (RowVerdict::WithinMargin, None) => "costs less than the margin",
        (RowVerdict::WithinMargin, Some(_)) if nothing || row.difference.high < 0.0 => {
            "adds no measurable time"
        }
        (RowVerdict::WithinMargin, Some(_)) => "adds less than the suite's limit",
        (RowVerdict::AboveMargin, Some(_)) => "adds more than the suite's limit",
        (RowVerdict::AboveMargin, None) => "costs more than the margin",
        (RowVerdict::BelowMargin, _) => "costs less",
        (RowVerdict::Undecided { .. }, _) => "may cost more or less than the margin",
        (RowVerdict::NotEvaluated, _) => "has no verdict",
    }
}

/// Writes the answer of a layer: one sentence for each subject that its suite names, in the suite's order, else its
/// first sound row. Which rows stand for a layer is chosen before the run, never by how they came out. With `many`
/// records each sentence names its record.
pub(super) fn layer_sentences(layer: &LayerRows<'_>, many: bool) -> Vec<ListItem> {
    let mut chosen: Vec<&RowView<'_>> = Vec::new();
    let mut answered: Vec<(usize, usize)> = Vec::new();
    let mut rows: Vec<&RowView<'_>> =
        layer.rows.iter().filter(|view| !is_dangerous_arm(view.row)).collect();
    rows.sort_by_key(|view| sentence_rank(view));
    for view in &rows {
        let Some((place, _)) = view.view.find_arm_subject(view.row) else { continue };
        if !answered.contains(&(view.number, place)) {
            answered.push((view.number, place));
            chosen.push(view);
        }
    }
    if chosen.is_empty() {
        chosen.extend(rows.first());
    }
    let sentence = |view: &RowView<'_>| {
        let [text, detail] = describe_row(view);
        ListItem {
            verdict: Some((verdict_colour(view.row), verdict_name(view.row))),
            text,
            detail,
            source: many.then(|| (view.view.display_name(), view.number)),
            ..ListItem::default()
        }
    };
    chosen.into_iter().map(sentence).collect()
}

/// True for an arm that weakens a protection on purpose: it is measured, and answers for nothing.
fn is_dangerous_arm(row: &Row) -> bool {
    row.arm.contains("dangerous") || row.arm_label.contains("dangerous")
}

/// Ranks a row; the least answers first: sound rows, then by the place of its subject in the suite, of its arm within
/// the subject, and ratios before differences.
fn sentence_rank(view: &RowView<'_>) -> (bool, usize, usize, bool) {
    let place = view.view.find_arm_subject(view.row).map_or(usize::MAX, |(place, _)| place);
    let arm = view.view.arm_rank(view.row);
    let absolute = view.row.show == CostForm::Difference;
    (!may_represent_layer(view), place, arm, absolute && place != usize::MAX)
}

/// True where a row may stand for its layer.
fn may_represent_layer(view: &RowView<'_>) -> bool {
    let row = view.row;
    !row.client_bound
        && row.has_interval()
        && !matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne))
        && !matches!(view.view.record.validity, Validity::Invalid { .. })
}

/// Counts verdicts in words: `Of 16 comparisons, 5 within their margin, 8 above it.`
pub(crate) fn describe_verdict_counts<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let rows: Vec<&Row> = rows.filter(|row| !row.twin).collect();
    let few = rows.iter().filter(|row| !row.has_interval()).count();
    let count = |wanted: fn(&RowVerdict) -> bool| {
        let enough = rows.iter().filter(|row| row.has_interval());
        enough.filter(|row| wanted(&row.outcome)).count()
    };
    let parts = [
        (count(|o| matches!(o, RowVerdict::WithinMargin)), "within their margin"),
        (count(|o| matches!(o, RowVerdict::AboveMargin)), "above it"),
        (count(|o| matches!(o, RowVerdict::BelowMargin)), "below it (cheaper)"),
        (count(|o| matches!(o, RowVerdict::Undecided { .. })), "undecided"),
        (count(|o| matches!(o, RowVerdict::NotEvaluated)), "not evaluated"),
        (few, "with too few blocks for an interval"),
    ];
    let counts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match rows.len() {
        0 => "No comparison.".into(),
        1 => format!("One comparison: {}.", counts.join(", ")),
        all => format!("Of {all} comparisons, {}.", counts.join(", ")),
    }
}

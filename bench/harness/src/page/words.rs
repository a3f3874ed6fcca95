//! Rows as sentences. Every number in them is a row's own, every judgement its verdict.

use super::layers::{LayerRows, RowView};
use crate::{
    format::capital,
    rows::{
        row::{Aa, Outcome, Row},
        text::{cost, verdict},
    },
    suite::bench::Show,
    validity::Validity,
};

/// One sentence of one row, and what stands behind it.
fn sentence(said: &RowView<'_>) -> (String, String) {
    let row = said.row;
    let reference = said.shown.record.arms.iter().find(|arm| arm.name == row.reference);
    let reference = reference.map_or(row.reference.as_str(), |arm| arm.label.as_str());
    let instead = format!("{} instead of {}", quote_label(&row.arm_label), quote_label(reference));
    let about = row.label.replace(&format!(": {}", row.arm_label), "");
    // A figure without an interval says its n by itself.
    let blocks = if row.has_interval() { format!("{} blocks", row.blocks) } else { String::new() };
    let (subject, parts) = match said.shown.subject(row) {
        Some((_, words)) => (words.to_owned(), [instead, about, blocks]),
        None => (instead, [about, blocks, String::new()]),
    };
    let text = format!("{subject} {}: {}, {}.", claim(row), cost(row), verdict(row));
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    (capital(&text, said.shown.names()), parts.join("; "))
}

/// A label with a comma in it stands in quotation marks.
fn quote_label(label: &str) -> String {
    if label.contains(',') { format!("“{label}”") } else { label.to_owned() }
}

/// What the verdict means, in a verb.
fn claim(row: &Row) -> &'static str {
    if matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne)) {
        return "was measured beside a failed A/A row and says nothing";
    }
    if row.is_without_tail() {
        return "has no percentile to judge";
    }
    if !row.has_interval() {
        return "was measured too few times to judge";
    }
    let ratio_spans_one = row.ratio.is_some_and(|ends| ends.low <= 1.0 && ends.high >= 1.0);
    let nothing = row.difference.low <= 0.0 && row.difference.high >= 0.0;
    match (row.outcome, row.adds_at_most) {
        (Outcome::WithinMargin, None) if ratio_spans_one => "costs nothing measurable",
        (Outcome::WithinMargin, None) => "costs less than the margin",
        (Outcome::WithinMargin, Some(_)) if nothing || row.difference.high < 0.0 => {
            "adds nothing measurable"
        }
        (Outcome::WithinMargin, Some(_)) => "adds no more than was allowed",
        (Outcome::AboveMargin, Some(_)) => "adds more than was allowed",
        (Outcome::AboveMargin, None) => "costs more than the margin",
        (Outcome::BelowMargin, _) => "costs less",
        (Outcome::Undecided { .. }, _) => "could not be told from the margin",
        (Outcome::NotEvaluated, _) => "was not judged",
    }
}

/// A sentence and the place of its record.
pub(crate) struct Sentence<'a> {
    /// `Costs least`; empty before the first.
    pub(crate) before: &'static str,
    pub(crate) text: String,
    /// Which arms, at what, over how many blocks.
    pub(crate) detail: String,
    pub(crate) said: RowView<'a>,
}

/// The answer of a layer: the row that a buyer asks for first, then the cheapest and the dearest.
pub(crate) fn answers<'a>(layer: &LayerRows<'a>) -> Vec<Sentence<'a>> {
    let Some(first) = layer.rows.iter().min_by_key(|said| rank(said)) else { return Vec::new() };
    let same = |a: &RowView<'_>, b: &RowView<'_>| std::ptr::eq(a.row, b.row);
    let size = |said: &&RowView<'_>| said.row.ratio.map_or(1.0, |ends| ends.value);
    let judged = || layer.rows.iter().filter(|said| is_sound(said));
    let least = judged().min_by(|a, b| size(a).total_cmp(&size(b)));
    let most = judged().max_by(|a, b| size(a).total_cmp(&size(b)));
    let told = |before, said: &RowView<'a>| {
        let (text, detail) = sentence(said);
        Sentence { before, text, detail, said: *said }
    };
    let mut out = vec![told("", first)];
    for (before, other) in [("Costs least", least), ("Costs most", most)] {
        let Some(other) = other else { continue };
        if out.iter().all(|known| !same(&known.said, other)) {
            out.push(told(before, other));
        }
    }
    out
}

/// Least is asked for first: sound rows, words for buyers, the suite's own order.
fn rank(said: &RowView<'_>) -> (bool, usize, bool, bool) {
    let subject = said.shown.subject(said.row);
    let place = subject.map_or(usize::MAX, |(place, _)| place);
    let decided = matches!(
        said.row.outcome,
        Outcome::WithinMargin | Outcome::AboveMargin | Outcome::BelowMargin
    );
    let absolute = said.row.show == Show::Difference;
    (!is_sound(said), place, absolute && subject.is_some(), !decided)
}

/// Whether a row may stand for its layer.
fn is_sound(said: &RowView<'_>) -> bool {
    let row = said.row;
    !row.client_bound
        && row.has_interval()
        && !matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne))
        && !matches!(said.shown.record.validity, Validity::Invalid { .. })
}

/// `Of 16 comparisons, 5 within their margin, 8 above it.`
pub(crate) fn tally<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let rows: Vec<&Row> = rows.filter(|row| !row.twin).collect();
    let few = rows.iter().filter(|row| !row.has_interval()).count();
    let count = |wanted: fn(&Outcome) -> bool| {
        let enough = rows.iter().filter(|row| row.has_interval());
        enough.filter(|row| wanted(&row.outcome)).count()
    };
    let parts = [
        (count(|o| matches!(o, Outcome::WithinMargin)), "within their margin"),
        (count(|o| matches!(o, Outcome::AboveMargin)), "above it"),
        (count(|o| matches!(o, Outcome::BelowMargin)), "below it (cheaper)"),
        (count(|o| matches!(o, Outcome::Undecided { .. })), "undecided"),
        (count(|o| matches!(o, Outcome::NotEvaluated)), "not evaluated"),
        (few, "with too few blocks for an interval"),
    ];
    let said: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match rows.len() {
        0 => "No comparison.".into(),
        1 => format!("One comparison: {}.", said.join(", ")),
        all => format!("Of {all} comparisons, {}.", said.join(", ")),
    }
}

//! A row in words: its cost, its two figures, its verdict.

use super::row::{AaVerdict, Row, RowEstimate, RowNote, RowVerdict};
use crate::{
    document::JudgementColour,
    format::{
        display_scale, format_number, format_pair, format_ratio_without_interval, ratio_decimals,
    },
    suite::bench::CostForm,
};

/// Writes the verdict of a row, or the judgement of an A/A row.
///
/// Whether it is simulated is left to the cell that holds it.
pub(crate) fn format_judgement(row: &Row) -> String {
    if row.twin { describe_aa(row) } else { describe_outcome(row) + &describe_marks(row) }
}

/// Returns the class of a row's verdict: how it is to be taken.
pub(crate) fn verdict_colour(row: &Row) -> JudgementColour {
    if !row.has_interval() {
        return JudgementColour::Mute;
    }
    match (row.aa, row.outcome) {
        (Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne), _) => JudgementColour::Bad,
        (Some(_), _) if row.twin => JudgementColour::Good,
        // What adds less than its limit may still cost more than its margin: no praise for that.
        (_, RowVerdict::WithinMargin) if row.exceeds_margin() => JudgementColour::Mute,
        (_, RowVerdict::WithinMargin) => JudgementColour::Good,
        _ if row.is_indistinguishable() => JudgementColour::Mute,
        (_, RowVerdict::AboveMargin) => JudgementColour::Warn,
        (_, RowVerdict::BelowMargin) => JudgementColour::Calm,
        (_, RowVerdict::Undecided { .. } | RowVerdict::NotEvaluated) => JudgementColour::Mute,
    }
}

/// Returns the verdict of a row as the filters of a page name it.
pub(crate) fn verdict_name(row: &Row) -> &'static str {
    if matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne)) {
        return "invalid";
    }
    if !row.has_interval() {
        return "no interval";
    }
    match row.outcome {
        RowVerdict::WithinMargin => "within",
        _ if row.is_indistinguishable() => "not distinguishable",
        RowVerdict::AboveMargin => "above",
        RowVerdict::BelowMargin => "below",
        RowVerdict::Undecided { .. } => "undecided",
        RowVerdict::NotEvaluated => "not evaluated",
    }
}

/// Formats a cost: `+8.7 ms [8.1, 9.4]` or `x1.16 [1.14, 1.18]`; for fewer than ten blocks `x1.16,
/// no interval: 8`; for a percentile without a tail `no percentile`.
pub(crate) fn format_cost(row: &Row) -> String {
    if row.is_without_tail() {
        return "no percentile".into();
    }
    let text = match (&row.ratio, row.show) {
        (Some(RowEstimate { value, low, high, .. }), CostForm::Ratio) => {
            format_ratio(*value, *low, *high)
        }
        _ => format_difference(&row.metric, &row.difference),
    };
    if row.has_interval() {
        return text;
    }
    if let (Some(ratio), CostForm::Ratio) = (&row.ratio, row.show) {
        // The width of an interval that is not shown says nothing of the places that are.
        return format!(
            "{}, no interval: {}",
            format_ratio_without_interval(ratio.value),
            row.blocks
        );
    }
    let number = text.split_once(" [").map_or(text.as_str(), |(number, _)| number);
    format!("{number}, no interval: {}", row.blocks)
}

/// Formats a ratio with its interval, `x1.16 [1.14, 1.18]`, with as many places as the interval has
/// use for.
pub(crate) fn format_ratio(value: f64, low: f64, high: f64) -> String {
    let places = ratio_decimals(low, high);
    let [value, low, high] = [value, low, high].map(|number| match low {
        1000.0.. => format_number(number),
        _ => format!("{number:.places$}"),
    });
    format!("x{value} [{low}, {high}]")
}

/// Formats the reference arm's figure and this arm's, of the kind that fits the cost.
pub(crate) fn format_arm_figures(row: &Row) -> [String; 2] {
    if row.is_without_tail() {
        return ["–".into(), "–".into()];
    }
    format_pair(&row.metric, [row.clear, row.protected])
}

fn format_difference(metric: &str, ends: &RowEstimate) -> String {
    let biggest = ends.low.abs().max(ends.high.abs()).max(ends.value.abs());
    let (scale, unit) = display_scale(metric, biggest);
    let spread = (ends.high - ends.low) * scale;
    let places = if spread >= 20.0 {
        0
    } else if spread >= 0.2 {
        1
    } else if spread >= 0.02 {
        2
    } else {
        3
    };
    let number = |x: f64| format!("{:.places$}", zero_if_rounded(x * scale, places));
    let sign = if zero_if_rounded(ends.value * scale, places) < 0.0 { "" } else { "+" };
    format!("{sign}{} {unit} [{}, {}]", number(ends.value), number(ends.low), number(ends.high))
}

/// Replaces what rounds to zero by zero: -0.0 would print a minus before nothing.
fn zero_if_rounded(x: f64, places: usize) -> f64 {
    if x.abs() < 0.5 * 10f64.powi(-(places as i32)) { 0.0 } else { x }
}

/// Writes the verdict: `above 2 % margin`, `within 5 ms`, `undecided, 48 blocks would decide`.
pub(crate) fn format_verdict(row: &Row) -> String {
    let simulated = if row.simulated { ", simulated" } else { "" };
    format!("{}{simulated}{}", describe_outcome(row), describe_marks(row))
}

/// Writes what a reader of the row must know whatever its verdict: `, client-bound, simulated` and its marks.
pub(crate) fn format_caveats(row: &Row) -> String {
    let client_bound = if row.client_bound { ", client-bound" } else { "" };
    let simulated = if row.simulated { ", simulated" } else { "" };
    format!("{client_bound}{simulated}{}", describe_marks(row))
}

fn describe_outcome(row: &Row) -> String {
    let margin = match row.adds_at_most {
        Some(limit) => {
            let (scale, unit) = display_scale(&row.metric, limit.abs());
            format!("{} {unit}", format_number(limit * scale))
        }
        None => format!("{} %", format_number(row.margin * 100.0)),
    };
    let mut text = match row.outcome {
        RowVerdict::Undecided { .. } if !row.has_interval() => {
            format!("undecided: {} blocks", row.blocks)
        }
        RowVerdict::NotEvaluated if row.is_without_tail() => {
            "not evaluated: percentile without a tail".to_owned()
        }
        RowVerdict::WithinMargin => format!("within {margin}"),
        RowVerdict::AboveMargin => format!("above {margin} margin"),
        RowVerdict::BelowMargin => format!("below {margin} margin, cheaper"),
        RowVerdict::Undecided { blocks_wanted: Some(blocks) } => {
            format!("undecided at {margin}, {blocks} blocks would decide")
        }
        RowVerdict::Undecided { blocks_wanted: None } => {
            format!("undecided at {margin}, over 10,000 blocks would decide")
        }
        RowVerdict::NotEvaluated => "not evaluated".to_owned(),
    };
    text = match (row.outcome, smallest_effect_text(row)) {
        (_, None) => text,
        (RowVerdict::Undecided { blocks_wanted }, Some(smallest)) if row.is_indistinguishable() => {
            let blocks =
                blocks_wanted.map_or("over 10,000".to_owned(), |blocks| blocks.to_string());
            format!("not distinguishable below {smallest}, {blocks} blocks would decide {margin}")
        }
        (_, Some(smallest)) if row.is_indistinguishable() => {
            format!("{text}, not distinguishable below {smallest}")
        }
        (_, Some(smallest)) => format!("{text} (visible from {smallest})"),
    };
    if matches!(row.aa, Some(AaVerdict::OutsideMargin | AaVerdict::ExcludesOne)) {
        text = format!("invalid, its A/A failed ({text})");
    }
    if row.client_bound {
        text.push_str(", client-bound");
    }
    text
}

/// Formats the smallest effect that the row could have seen: `1.4 %`, `45 µs`; `None` below ten blocks.
fn smallest_effect_text(row: &Row) -> Option<String> {
    let smallest = row.smallest_effect.filter(|_| !row.is_without_tail())?;
    if row.ratio_if_shown().is_some() {
        return Some(format!("{} %", format_number(smallest * 100.0)));
    }
    let (scale, unit) = display_scale(&row.metric, smallest);
    Some(format!("{} {unit}", format_number(smallest * scale)))
}

/// Lists what the arms said of their runs, `, no steady state (3 of 20 runs)`, and what the samples
/// say by themselves; empty if there is nothing.
fn describe_marks(row: &Row) -> String {
    let notes = row.notes.iter().filter(|note| !matches!(note, RowNote::ThinTail { .. }));
    let said = row.marks.iter().map(String::as_str);
    said.chain(notes.map(|note| note.short_text())).map(|mark| format!(", {mark}")).collect()
}

/// Describes what running both arms in the same block gained; `None` if it is not known.
///
/// It gained where the interval of the pairs is narrower than that of the same blocks unpaired, by
/// more than chance would make it.
pub(crate) fn describe_pairing(row: &Row) -> Option<String> {
    let (r, [paired, unpaired]) = (row.correlation?, row.widths?);
    if !row.has_interval() {
        return None;
    }
    // Of unrelated pairs one in forty has a greater correlation than this.
    let by_chance = 1.96 / (row.blocks as f64).sqrt();
    let widths =
        format!("95 % interval {:.1} % wide, {:.1} % unpaired", paired * 100.0, unpaired * 100.0);
    Some(if paired > unpaired * GAINS_BELOW {
        format!("pairing gained nothing: r = {r:.2} ({widths})")
    } else if r < by_chance {
        format!("no gain from pairing can be shown: r = {r:.2} ({widths})")
    } else {
        let gained = (1.0 - paired / unpaired) * 100.0;
        format!("pairing narrowed the interval by {gained:.0} %: r = {r:.2} ({widths})")
    })
}

/// The ratio of widths from which on a narrower interval is not worth naming as a gain.
const GAINS_BELOW: f64 = 0.95;

/// Writes the judgement of an A/A row.
fn describe_aa(row: &Row) -> String {
    let text = match row.aa {
        Some(AaVerdict::Valid) => "passed",
        Some(AaVerdict::OutsideMargin) => "FAILED: 95 % interval outside the margin",
        Some(AaVerdict::ExcludesOne) => "FAILED: 99.9 % interval excludes 1",
        Some(AaVerdict::TooFewBlocks) => "no difference found, but too few blocks to judge",
        None => "not evaluated",
    };
    let visible = smallest_effect_text(row)
        .map_or_else(String::new, |smallest| format!(" (visible from {smallest})"));
    format!("{text}{visible}{}", describe_marks(row))
}

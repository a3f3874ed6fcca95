//! Ratios with their intervals about the line of no difference.

use super::{
    plot::{Axis, RatioTrack},
    tables::{cost_size, row_attributes},
    view::RecordView,
};
use crate::{
    document::{
        Block, Cell, Column, Content, JudgementColour, Section, Table, TableBody, TableRow,
    },
    format::digits,
    rows::{
        row::{Ends, Row},
        text::{ratio, verdict, verdict_class, verdict_name},
    },
};

/// The ratio beyond which, either way, a row goes to the panel of large costs: on one axis with
/// them, 2 % could not be seen.
const NEAR: f64 = 1.3;

/// A row with its ratio.
type RatioRow<'a> = (&'a Row, Ends);

/// Draws ratios near 1 as one table, large ones as another.
pub(super) fn ratios(view: &RecordView<'_>, number: usize) -> Section {
    let headline = view.record.rows.iter().filter(|row| row.headline && !row.is_without_tail());
    let rows = headline.filter_map(|row| Some((row, row.ratio?)));
    let (near, far): (Vec<_>, Vec<_>) =
        rows.partition(|(_, ends)| ends.value.ln().abs() <= NEAR.ln());
    let mut blocks = Vec::new();
    if !near.is_empty() {
        blocks.push(Block::Table(panel(view, &near)));
    }
    if !far.is_empty() {
        let heading = "Large costs, on an axis of their own (logarithmic)";
        blocks.push(Block::Heading(heading.to_owned()));
        blocks.push(Block::Table(panel(view, &far)));
    }
    Section {
        id: format!("ratios-{number}"),
        heading: "Ratios".to_owned(),
        about: "Cost of the protected arm over the clear one: right of the line is dearer. The bar is the \
                95 % interval, the hair the 99.9 % one, the band the margin. Disc: within; triangle: \
                above; diamond: below; square: undecided or without an interval; ring: A/A, the same arm \
                twice."
            .to_owned(),
        blocks,
    }
}

/// Builds one row of a table for each ratio, and the values of their axis below.
fn panel(view: &RecordView<'_>, rows: &[RatioRow<'_>]) -> Table {
    let (mut low, mut high) = (1.0f64, 1.0f64);
    for (row, ends) in rows {
        low = low.min(ends.low).min(1.0 / (1.0 + row.margin));
        high = high.max(ends.high).max(1.0 + row.margin);
    }
    let axis = Axis::of_ratios(low, high, 0.04);
    let columns = vec![
        Column::label("layer"),
        Column::text("drawn").with_name("").with_class("wide"),
        Column::text("ratio [95 %]").with_name("ratio"),
    ];
    let mut table = Table::new("Ratios", columns);
    rows.iter().for_each(|(row, ends)| table.push_row(ratio_row(&axis, view, row, ends)));
    let tick = |tick: &f64| {
        let place = axis.place(*tick, 0.0, 100.0);
        format!("<span class=\"tick\" style=\"left:{place:.2}%\">x{}</span>", name_tick(*tick))
    };
    let ticks: String = axis.ratio_ticks().iter().map(tick).collect();
    let ticks = format!("<div class=\"track\" aria-hidden=\"true\">{ticks}</div>");
    table.bodies.push(TableBody::default());
    table.push(vec!["".into(), Cell::new(Content::Markup, ticks), "".into()]);
    table
}

fn ratio_row(axis: &Axis, view: &RecordView<'_>, row: &Row, ends: &Ends) -> TableRow {
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let class = verdict_class(row);
    let mark = if row.twin && class != JudgementColour::Bad { "twin" } else { class.name() };
    let (hair, interval, text) = if row.has_interval() {
        let text = ratio(ends.value, ends.low, ends.high);
        (Some([ends.low_999, ends.high_999]), Some([ends.low, ends.high]), text)
    } else {
        (None, None, format!("{}, no interval: {}", short_ratio(ends.value), row.blocks))
    };
    let band = Some([1.0 / (1.0 + row.margin), 1.0 + row.margin]);
    let track =
        RatioTrack { axis, colour: mark, mark, band, hair, interval, value: Some(ends.value) };
    // A limit on a difference is named in full: the mark follows it, not the ratio next to it.
    let judgement = match row.adds_at_most {
        Some(_) => verdict(row),
        None => verdict_name(row).to_owned(),
    };
    let cells = vec![
        label.into(),
        Cell::new(Content::Markup, track.write()),
        Cell::new(Content::Verdict(class), text).with_note(judgement).with_sort(cost_size(row)),
    ];
    TableRow { class: "item", attributes: row_attributes(view, row), cells }
}

/// Formats a ratio with two places near 1, and with three digits where those would say too much or
/// nothing.
fn short_ratio(value: f64) -> String {
    match value {
        0.1..100.0 => format!("x{value:.2}"),
        _ => format!("x{}", digits(value)),
    }
}

/// Formats a tick's value in few characters: long names run into each other on a narrow screen.
fn name_tick(tick: f64) -> String {
    for (size, name) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if tick >= 10.0 * size || (tick >= size && size > 1e3) {
            return format!("{}{name}", digits(tick / size));
        }
    }
    if tick >= 10.0 {
        return digits(tick);
    }
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_the_digits_that_say_something() {
        assert_eq!(
            [0.031, 0.82, 25.01, 1_176.36, 2_138_462.2].map(short_ratio),
            ["x0.031", "x0.82", "x25.01", "x1,176", "x2,138,462"]
        );
    }
}

//! Ratios with their intervals about the line of no difference.

use super::{
    plot::{Axis, RatioTrack},
    tables::{cost_sort_key, format_cost_as_difference, row_attributes},
    view::RecordView,
    vocabulary::row_label,
};
use crate::{
    document::{
        Block, Cell, CellContent, Column, JudgementColour, Section, Table, TableBody, TableRow,
    },
    format::{format_number, format_ratio_without_interval},
    rows::{
        row::{Row, RowEstimate},
        text::{format_judgement, format_ratio, format_verdict, verdict_colour, verdict_name},
    },
};

/// The ratio beyond which, either way, a row goes to the panel of large costs: on one axis with
/// them, 2 % could not be seen.
const NEAR: f64 = 1.3;

/// A row with its ratio.
type RatioRow<'a> = (&'a Row, RowEstimate);

/// Draws ratios near 1 as one table, large ones as another.
pub(super) fn ratios_section(view: &RecordView<'_>, number: usize) -> Section {
    let headline = view.record.rows.iter().filter(|row| row.headline && !row.is_without_tail());
    let rows = headline.filter_map(|row| Some((row, row.ratio?)));
    let (twins, rows): (Vec<_>, Vec<_>) = rows.partition(|(row, _)| row.twin);
    let is_near = |(_, ends): &RatioRow<'_>| ends.value.ln().abs() <= NEAR.ln();
    let (near, far): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_near);
    let mut blocks = Vec::new();
    if !near.is_empty() {
        blocks.push(Block::Table(ratio_table(view, &near)));
    }
    if !far.is_empty() {
        let heading = "Ratios beyond x1.3 or below x0.77, on a logarithmic axis";
        blocks.push(Block::Heading(heading.to_owned()));
        blocks.push(Block::Table(ratio_table(view, &far)));
    }
    if !twins.is_empty() {
        blocks.push(Block::Folded {
            summary: format!("A/A check: ratios of the reference arm to itself ({})", twins.len()),
            is_open: false,
            blocks: vec![Block::Table(ratio_table(view, &twins))],
        });
    }
    Section {
        id: format!("ratios-{number}"),
        heading: "Costs as ratios".to_owned(),
        about: "Cost of an arm divided by that of its reference: marks right of the line x1 cost more, marks \
                left of it cost less. Thick bar: 95 % interval; thin line: 99.9 % interval; shaded band: the \
                margin. Disc: within the margin; triangle: above; diamond: below; square: undecided or \
                without an interval; ring: A/A check."
            .to_owned(),
        blocks,
    }
}

/// Builds one row of a table for each ratio, and the values of their axis below.
fn ratio_table(view: &RecordView<'_>, rows: &[RatioRow<'_>]) -> Table {
    let (mut low, mut high) = (1.0f64, 1.0f64);
    for (row, ends) in rows {
        low = low.min(ends.low).min(1.0 / (1.0 + row.margin));
        high = high.max(ends.high).max(1.0 + row.margin);
    }
    let axis = Axis::from_ratios(low, high, 0.04);
    let columns = vec![
        Column::new_label("what is measured"),
        Column::new_text("drawn").with_name("").with_class("wide"),
        Column::new_text("ratio [95 %]").with_name("ratio"),
    ];
    let mut table = Table::new("Ratios", columns);
    rows.iter().for_each(|(row, ends)| table.push_row(ratio_row(&axis, view, row, ends)));
    let tick = |tick: &f64| {
        let place = axis.position(*tick, 0.0, 100.0);
        format!("<span class=\"tick\" style=\"left:{place:.2}%\">x{}</span>", format_tick(*tick))
    };
    let ticks: String = axis.ratio_ticks().iter().map(tick).collect();
    let ticks = format!(
        "<div class=\"track\" aria-hidden=\"true\">{ticks}</div>{}",
        draw_directions(axis.position(1.0, 0.0, 100.0))
    );
    table.bodies.push(TableBody::default());
    table.push(vec!["".into(), Cell::new(CellContent::Markup, ticks), "".into()]);
    table
}

/// The part of the width, in percent, that the name of a direction needs.
const ROOM: f64 = 16.0;

/// Names the directions of the axis about the place of x1, in percent of the width.
fn draw_directions(one: f64) -> String {
    let side = |class: &str, from: f64, width: f64, text: &str| {
        format!("<i class=\"{class}\" style=\"left:{from:.2}%;width:{width:.2}%\">{text}</i>")
    };
    let both = "← cheaper | dearer →";
    let sides = match one {
        ..ROOM => side("dearer", one, 100.0 - one, both),
        one if one > 100.0 - ROOM => side("cheaper", 0.0, one, both),
        _ => side("cheaper", 0.0, one, "← cheaper") + &side("dearer", one, 100.0 - one, "dearer →"),
    };
    format!("<div class=\"track directions\" aria-hidden=\"true\">{sides}</div>")
}

fn ratio_row(axis: &Axis, view: &RecordView<'_>, row: &Row, ends: &RowEstimate) -> TableRow {
    let class = verdict_colour(row);
    let mark = if row.twin && class != JudgementColour::Bad { "twin" } else { class.css_class() };
    let (hair, interval, text) = if row.has_interval() {
        let text = format_ratio(ends.value, ends.low, ends.high);
        (Some([ends.low_999, ends.high_999]), Some([ends.low, ends.high]), text)
    } else {
        (None, None, format_ratio_without_interval(ends.value))
    };
    let band = Some([1.0 / (1.0 + row.margin), 1.0 + row.margin]);
    let track =
        RatioTrack { axis, colour: mark, mark, band, hair, interval, value: Some(ends.value) };
    // A limit on a difference stands next to that difference: the mark follows it, not the ratio.
    let note = match row.adds_at_most {
        Some(_) if !row.twin && row.has_interval() => {
            format!("{}: {}", format_cost_as_difference(row), format_verdict(row))
        }
        _ if row.twin && row.has_interval() => format_judgement(row),
        _ => verdict_name(row).to_owned(),
    };
    let cells = vec![
        row_label(row).into(),
        Cell::new(CellContent::Markup, track.render()),
        Cell::new(CellContent::Verdict(class), text)
            .with_note(note)
            .with_sort_key(cost_sort_key(row)),
    ];
    TableRow { class: "item", attributes: row_attributes(view, row), cells }
}

/// Formats a tick's value in few characters: long names run into each other on a narrow screen.
fn format_tick(tick: f64) -> String {
    for (size, name) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if tick >= 10.0 * size || (tick >= size && size > 1e3) {
            return format!("{}{name}", format_number(tick / size));
        }
    }
    if tick >= 10.0 {
        return format_number(tick);
    }
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_names_both_directions_wherever_x1_is() {
        let both = draw_directions(40.0);
        assert!(both.contains("← cheaper") && both.contains("dearer →"), "{both}");
        for one in [2.0, 98.0] {
            let text = draw_directions(one);
            assert!(text.contains("← cheaper | dearer →"), "{text}");
        }
    }
}

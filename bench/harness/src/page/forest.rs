//! Ratios with their intervals about the line of no difference.

use super::{
    plot::{Axis, Track},
    tables::row_attributes,
    view::RecordView,
};
use crate::{
    document::{
        Block, Class, Section,
        html::{escape, write_attributes},
    },
    format::digits,
    rows::{
        row::{Ends, Row},
        text::{ratio, verdict, verdict_class, verdict_name},
    },
};

/// Ratios beyond this, either way, go to the panel of large costs: on one axis with them, 2 %
/// could not be seen.
const NEAR: f64 = 1.3;

/// A row with its ratio.
type RatioRow<'a> = (&'a Row, Ends);

/// Both panels.
pub(super) fn ratios(view: &RecordView<'_>, number: usize) -> Section {
    let headline = view.record.rows.iter().filter(|row| row.headline && !row.is_without_tail());
    let rows = headline.filter_map(|row| Some((row, row.ratio?)));
    let (near, far): (Vec<_>, Vec<_>) =
        rows.partition(|(_, ends)| ends.value.ln().abs() <= NEAR.ln());
    let panels = [(near, ""), (far, "Large costs, on an axis of their own (logarithmic)")];
    let panels = panels.into_iter().filter(|(rows, _)| !rows.is_empty());
    let blocks = panels.map(|(rows, title)| Block::Markup(write_panel(view, &rows, title)));
    Section {
        id: format!("ratios-{number}"),
        heading: "Ratios".to_owned(),
        about: "Cost of the protected arm over the clear one: right of the line is dearer. The bar is the \
                95 % interval, the hair the 99.9 % one, the band the margin. Disc: within; triangle: \
                above; diamond: below; square: undecided or without an interval; ring: A/A, the same arm \
                twice."
            .to_owned(),
        blocks: blocks.collect(),
    }
}

fn write_panel(view: &RecordView<'_>, rows: &[RatioRow<'_>], title: &str) -> String {
    let (mut low, mut high) = (1.0f64, 1.0f64);
    for (row, ends) in rows {
        low = low.min(ends.low).min(1.0 / (1.0 + row.margin));
        high = high.max(ends.high).max(1.0 + row.margin);
    }
    let axis = Axis::of_ratios(low, high, 0.04);
    let title = if title.is_empty() { String::new() } else { format!("<h3>{title}</h3>") };
    let bars: String = rows.iter().map(|(row, ends)| write_bar(&axis, view, row, ends)).collect();
    let tick = |tick: &f64| {
        let place = axis.place(*tick, 0.0, 100.0);
        format!("<span class=\"tick\" style=\"left:{place:.2}%\">x{}</span>", name_tick(*tick))
    };
    let ticks: String = axis.ratio_ticks().iter().map(tick).collect();
    format!(
        "<div class=\"group\">{title}<ul class=\"forest\">\n{bars}<li class=\"row axis\" \
         aria-hidden=\"true\"><span></span><div class=\"track\">{ticks}</div><span></span></li>\n\
         </ul></div>\n"
    )
}

fn write_bar(axis: &Axis, view: &RecordView<'_>, row: &Row, ends: &Ends) -> String {
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let class = verdict_class(row);
    let mark = if row.twin && class != Class::Bad { "twin" } else { class.name() };
    let (hair, interval, text) = if row.has_interval() {
        let text = ratio(ends.value, ends.low, ends.high);
        (Some([ends.low_999, ends.high_999]), Some([ends.low, ends.high]), text)
    } else {
        (None, None, format!("{}, no interval: {}", short_ratio(ends.value), row.blocks))
    };
    let band = Some([1.0 / (1.0 + row.margin), 1.0 + row.margin]);
    let value = Some(ends.value);
    format!(
        "<li class=\"row item\"{}><span>{}</span>{}<span class=\"c-{mark}\">\
         <span aria-hidden=\"true\">{}</span> <b>{}</b>{}</span></li>\n",
        write_attributes(&row_attributes(view, row)),
        escape(&label),
        Track { axis, colour: mark, mark, band, hair, interval, value }.write(),
        class.sign(),
        escape(&text),
        describe_row(row),
    )
}

/// The verdict in a word, for who does not see the mark. A limit on a difference is shown to all:
/// the mark follows it, not the ratio beside it.
fn describe_row(row: &Row) -> String {
    if row.adds_at_most.is_some() {
        return format!("<small>{}</small>", escape(&verdict(row)));
    }
    format!("<span class=\"unseen\">{}</span>", verdict_name(row))
}

/// Two places near 1, three digits where those would say too much or nothing.
fn short_ratio(value: f64) -> String {
    match value {
        0.1..100.0 => format!("x{value:.2}"),
        _ => format!("x{}", digits(value)),
    }
}

/// A tick's value in few characters: long names run into each other on a narrow screen.
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

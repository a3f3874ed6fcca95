//! Ratios with their intervals about the line of no difference.

use std::fmt::Write;

use super::{
    html::{class_of, escape, sign_of},
    tables::row_data,
    view::RecordView,
};
use crate::{
    format::{digits, ratio_places},
    rows::{row::Row, text::verdict},
};

/// Ratios beyond this, either way, go to the panel of large costs: on one axis with them, 2 %
/// could not be seen.
const NEAR: f64 = 1.3;

/// Both panels.
pub(super) fn section(shown: &RecordView<'_>, index: usize) -> String {
    let rows: Vec<(&Row, f64, f64, f64)> = shown
        .record
        .rows
        .iter()
        .filter(|row| row.headline && !row.is_without_tail())
        .filter_map(|row| row.ratio.map(|ends| (row, ends.value, ends.low, ends.high)))
        .collect();
    let is_near = |ratio: f64| ratio.ln().abs() <= NEAR.ln();
    let near: Vec<&Row> =
        rows.iter().filter(|(_, v, ..)| is_near(*v)).map(|(row, ..)| *row).collect();
    let far: Vec<&Row> =
        rows.iter().filter(|(_, v, ..)| !is_near(*v)).map(|(row, ..)| *row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<section class=\"group\">\n<h2 id=\"ratios-{index}\">Ratios</h2>\n<p class=\"soft\">Cost of \
         the protected arm over the clear one: right of the line is dearer. The bar is the 95 % \
         interval, the hair the 99.9 % one, the band the margin. Disc: within; triangle: above; \
         diamond: below; square: undecided or without an interval; ring: A/A, the same arm \
         twice.</p>\n"
    );
    if !near.is_empty() {
        panel(&mut out, shown, &near, "");
    }
    if !far.is_empty() {
        panel(&mut out, shown, &far, "Large costs, on an axis of their own (logarithmic)");
    }
    out + "</section>\n"
}

fn panel(out: &mut String, shown: &RecordView<'_>, rows: &[&Row], title: &str) {
    let axis = Axis::over(rows);
    out.push_str("<div class=\"group\">");
    if !title.is_empty() {
        let _ = write!(out, "<h3>{title}</h3>");
    }
    out.push_str("<ul class=\"forest\">\n");
    for row in rows {
        bar(out, &axis, shown, row);
    }
    out.push_str("<li class=\"row axis\" aria-hidden=\"true\"><span></span><div class=\"track\">");
    for tick in axis.ticks() {
        let _ = write!(
            out,
            "<span class=\"tick\" style=\"left:{:.2}%\">x{}</span>",
            axis.place(tick),
            digits_of(tick),
        );
    }
    out.push_str("</div><span></span></li>\n</ul></div>\n");
}

fn bar(out: &mut String, axis: &Axis, shown: &RecordView<'_>, row: &Row) {
    let Some(ends) = row.ratio else { return };
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let class = class_of(row);
    let mark = if row.twin && class != "bad" { "twin" } else { class };
    let span = |low: f64, high: f64| {
        let (from, to) = (axis.place(low), axis.place(high));
        format!("left:{from:.2}%;width:{:.2}%", (to - from).max(0.0))
    };
    let judged = row.has_interval();
    let bars = if judged {
        format!(
            "<i class=\"wide\" style=\"{}\"></i><i class=\"ci\" style=\"{}\"></i>",
            span(ends.low_999, ends.high_999),
            span(ends.low, ends.high),
        )
    } else {
        String::new()
    };
    let text = if judged {
        interval(ends.value, ends.low, ends.high)
    } else {
        format!("{}, no interval: {}", ratio(ends.value), row.blocks)
    };
    let _ = writeln!(
        out,
        "<li class=\"row item\"{}><span>{}</span><div class=\"track c-{mark}\" aria-hidden=\"true\">\
         <i class=\"band\" style=\"{}\"></i><i class=\"one\" style=\"left:{:.2}%\"></i>{bars}\
         <i class=\"dot {mark}\" style=\"left:{:.2}%\"></i></div>\
         <span class=\"c-{mark}\"><span aria-hidden=\"true\">{}</span> <b>{}</b>\
         {}</span></li>",
        row_data(shown, row),
        escape(&label),
        span(1.0 / (1.0 + row.margin), 1.0 + row.margin),
        axis.place(1.0),
        axis.place(ends.value),
        sign_of(class),
        escape(&text),
        describe_row(row),
    );
}

/// The verdict in a word, for who does not see the mark. A limit on a difference is shown to all:
/// the mark follows it, not the ratio beside it.
fn describe_row(row: &Row) -> String {
    if row.adds_at_most.is_some() {
        return format!("<small>{}</small>", escape(&verdict(row)));
    }
    format!("<span class=\"unseen\">{}</span>", super::filters::verdict_of(row))
}

/// Two places near 1, three digits where those would say too much or nothing.
fn ratio(value: f64) -> String {
    match value {
        0.1..100.0 => format!("x{value:.2}"),
        _ => format!("x{}", digits(value)),
    }
}

fn interval(value: f64, low: f64, high: f64) -> String {
    if low >= 100.0 {
        return format!("x{} [{}, {}]", digits(value), digits(low), digits(high));
    }
    let places = ratio_places(low, high);
    format!("x{value:.places$} [{low:.places$}, {high:.places$}]")
}

/// A logarithmic axis that holds every interval, the margin and 1.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(rows: &[&Row]) -> Self {
        let (mut low, mut high) = (1.0f64, 1.0f64);
        for row in rows {
            let Some(ends) = row.ratio else { continue };
            low = low.min(ends.low).min(1.0 / (1.0 + row.margin));
            high = high.max(ends.high).max(1.0 + row.margin);
        }
        let room = (high / low).ln() * 0.04;
        Self { low: low.ln() - room, high: high.ln() + room }
    }

    /// Percent of the width; what lies outside is put at the edge.
    fn place(&self, ratio: f64) -> f64 {
        let share = (ratio.max(1e-12).ln() - self.low) / (self.high - self.low);
        (share * 100.0).clamp(0.0, 100.0)
    }

    /// Up to seven round ratios, 1 among them. Over many decades up to five: their names are long.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let within = |ticks: Vec<f64>| -> Vec<f64> {
            ticks.into_iter().filter(|tick| (low..=high).contains(tick)).collect()
        };
        if high / low > 1000.0 {
            let step = ((high / low).log10() / 5.0).ceil() as i32;
            return within((-12..=12).map(|power| 10f64.powi(power * step)).collect());
        }
        if high / low > 4.0 {
            let decades =
                (-3..4).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
            let ticks = within(decades.collect());
            let step = ticks.len().div_ceil(7).max(1);
            let one = ticks.iter().position(|tick| *tick == 1.0).unwrap_or(0);
            return ticks.into_iter().skip(one % step).step_by(step).collect();
        }
        let step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
            .into_iter()
            .find(|step| (high - low) / step <= 7.0)
            .unwrap_or(1.0);
        within((-40..=80).map(|i| 1.0 + f64::from(i) * step).collect())
    }
}

fn digits_of(tick: f64) -> String {
    // Long names run into each other on a narrow screen.
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
    fn few_ticks_stand_on_an_axis_and_one_is_among_them() {
        for (low, high) in [(0.9f64, 1.1), (0.5, 3.0), (0.02, 15.0), (0.03, 3e6), (1.0, 950.0)] {
            let room = (high / low).ln() * 0.04;
            let ticks = Axis { low: f64::ln(low) - room, high: f64::ln(high) + room }.ticks();
            let is_one = |tick: &f64| (tick - 1.0).abs() < 1e-9;
            assert!((2..=9).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().any(is_one), "{low} to {high}: {ticks:?}");
            assert!(high / low < 1000.0 || ticks.len() <= 6, "{low} to {high}: {ticks:?}");
        }
    }

    #[test]
    fn a_ratio_has_the_digits_that_say_something() {
        assert_eq!(
            [0.031, 0.82, 25.01, 1_176.36, 2_138_462.2].map(ratio),
            ["x0.031", "x0.82", "x25.01", "x1,176", "x2,138,462"]
        );
    }
}

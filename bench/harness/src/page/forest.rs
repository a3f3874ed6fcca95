//! Ratios with their intervals about the line of no difference.

use std::fmt::Write;

use super::html::{class_of, escape};
use crate::{
    Record,
    format::{digits, ratio_places},
    rows::Row,
};

/// Ratios beyond this, either way, go to the panel of large costs: on one axis with them, 2 %
/// could not be seen.
const NEAR: f64 = 1.3;

/// Both panels.
pub(super) fn section(record: &Record) -> String {
    let rows: Vec<(&Row, f64, f64, f64)> = record
        .rows
        .iter()
        .filter(|row| row.headline)
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
    let mut out = String::from(
        "<h2>Ratios</h2>\n<p class=\"soft\">Cost of the protected arm over the clear one: right of \
         the line is dearer. The bar is the 95 % interval, the hair the 99.9 % one, the band the \
         margin. Hollow: A/A, the same arm twice.</p>\n",
    );
    if !near.is_empty() {
        panel(&mut out, &near, "");
    }
    if !far.is_empty() {
        panel(&mut out, &far, "Large costs, on an axis of their own (logarithmic)");
    }
    out
}

fn panel(out: &mut String, rows: &[&Row], title: &str) {
    let axis = Axis::over(rows);
    if !title.is_empty() {
        let _ = write!(out, "<h3>{title}</h3>");
    }
    out.push_str("<div class=\"forest\">\n");
    for row in rows {
        bar(out, &axis, row);
    }
    out.push_str("<div class=\"row axis\"><span></span><div class=\"track\">");
    for tick in axis.ticks() {
        let _ = write!(
            out,
            "<span class=\"tick\" style=\"left:{:.2}%\">x{}</span>",
            axis.place(tick),
            digits_of(tick),
        );
    }
    out.push_str("</div><span></span></div>\n</div>\n");
}

fn bar(out: &mut String, axis: &Axis, row: &Row) {
    let Some(ends) = row.ratio else { return };
    let label = if row.twin { format!("A/A {}", row.label) } else { row.label.clone() };
    let colour = match class_of(row) {
        "bad" => "c-bad",
        _ if row.twin => "c-mute",
        "warn" => "c-warn",
        "calm" => "c-calm",
        "good" => "c-good",
        _ => "c-mute",
    };
    let span = |low: f64, high: f64| {
        let (from, to) = (axis.place(low), axis.place(high));
        format!("left:{from:.2}%;width:{:.2}%", (to - from).max(0.0))
    };
    let _ = writeln!(
        out,
        "<div class=\"row\"><span>{}</span><div class=\"track {colour}\">\
         <i class=\"band\" style=\"{}\"></i><i class=\"one\" style=\"left:{:.2}%\"></i>\
         <i class=\"wide\" style=\"{}\"></i><i class=\"ci\" style=\"{}\"></i>\
         <i class=\"dot{}\" style=\"left:{:.2}%\"></i></div><span>{}</span></div>",
        escape(&label),
        span(1.0 / (1.0 + row.margin), 1.0 + row.margin),
        axis.place(1.0),
        span(ends.low_999, ends.high_999),
        span(ends.low, ends.high),
        if row.twin { " twin" } else { "" },
        axis.place(ends.value),
        escape(&interval(ends.value, ends.low, ends.high)),
    );
}

fn interval(value: f64, low: f64, high: f64) -> String {
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

    /// Up to seven round ratios, 1 among them.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let within = |ticks: Vec<f64>| -> Vec<f64> {
            ticks.into_iter().filter(|tick| (low..=high).contains(tick)).collect()
        };
        if high / low > 4.0 {
            let decades =
                (-3..7).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
            let ticks = within(decades.collect());
            let step = ticks.len().div_ceil(7).max(1);
            return ticks.into_iter().step_by(step).collect();
        }
        let step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
            .into_iter()
            .find(|step| (high - low) / step <= 7.0)
            .unwrap_or(1.0);
        within((-40..=80).map(|i| 1.0 + f64::from(i) * step).collect())
    }
}

fn digits_of(tick: f64) -> String {
    if tick >= 10.0 {
        return digits(tick);
    }
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

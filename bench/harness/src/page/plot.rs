//! Parts that all charts share: axes, arms in colour, line and shape, and text for those who cannot
//! see.

use std::fmt::Write;

use super::view::RecordView;
use crate::{
    document::{
        Attributes, Table,
        html::{escape, render_attributes, render_table},
    },
    format::format_axis_labels,
    suite::bench::Bench,
};

/// The number of colours of the style sheet, `--a0` to `--a5`; each has a dash and a shape of its
/// own.
const COLOURS: usize = 6;
const DASHES: [&str; COLOURS] = ["", "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2"];

/// The drawn width of a chart, which scales to its column.
pub(super) const WIDTH: f64 = 420.0;
pub(super) const LEFT: f64 = 74.0;
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 10.0;

/// The way in which one arm is drawn everywhere within a case.
#[derive(Clone, Debug)]
pub(super) struct LineStyle {
    pub(super) label: String,
    pub(super) twin: bool,
    index: usize,
}

impl LineStyle {
    pub(super) fn new(index: usize, label: &str, twin: bool) -> Self {
        let label = if twin { format!("{label} (A/A)") } else { label.to_owned() };
        Self { label, twin, index: index % COLOURS }
    }

    pub(super) fn colour(&self) -> String {
        if self.twin { "var(--twin)".into() } else { format!("var(--a{})", self.index) }
    }

    pub(super) fn dash_attribute(&self) -> String {
        let dash = if self.twin { "3 3" } else { DASHES[self.index] };
        if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") }
    }

    /// Returns the outline of this arm's mark about a point, as path commands.
    pub(super) fn marker_path(&self, x: f64, y: f64) -> String {
        match (self.twin, self.index) {
            (true, _) | (_, 0) => {
                format!("M{:.1} {y:.1}a2.6 2.6 0 1 1 0 .1z", x - 2.6)
            }
            (_, 1) => format!("M{:.1} {:.1}h5v5h-5z", x - 2.5, y - 2.5),
            (_, 2) => format!("M{x:.1} {:.1}l3.2 5.6h-6.4z", y - 3.2),
            (_, 3) => format!("M{x:.1} {:.1}l3.4 3.4l-3.4 3.4l-3.4-3.4z", y - 3.4),
            (_, 4) => format!("M{x:.1} {:.1}l3.2-5.6h-6.4z", y + 3.2),
            _ => format!("M{:.1} {:.1}h2v-2h2v2h2v2h-2v2h-2v-2h-2z", x - 3.0, y - 1.0),
        }
    }

    /// Draws a line in the colour and dashes of this arm.
    pub(super) fn render_line(&self, path: &str, width: f64) -> String {
        format!(
            "<path d=\"{path}\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"{width}\"{}/>",
            self.colour(),
            self.dash_attribute(),
        )
    }

    /// Returns fill and stroke of marks, which are hollow for A/A.
    pub(super) fn marker_style(&self) -> String {
        let colour = self.colour();
        if self.twin {
            format!("fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"1.3\"")
        } else {
            format!("style=\"fill:{colour}\"")
        }
    }
}

/// Lists the arms with line and mark as they are drawn below.
pub(super) fn render_legend<'a>(inks: impl Iterator<Item = &'a LineStyle>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for ink in inks {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\" focusable=\"false\">{}<path d=\"{}\" \
             {}/></svg> {}</li>",
            ink.render_line("M0 5H34", 2.0),
            ink.marker_path(17.0, 5.0),
            ink.marker_style(),
            escape(&ink.label),
        );
    }
    out + "</ul>"
}

/// One arm of a bench, and how it is drawn.
pub(super) struct DrawnArm<'a> {
    pub(super) name: &'a str,
    pub(super) is_twin: bool,
    pub(super) ink: LineStyle,
}

/// Lists every arm of a bench, the A/A arm last.
pub(super) fn drawn_arms<'a>(view: &RecordView<'_>, bench: &'a Bench) -> Vec<DrawnArm<'a>> {
    let twin = bench.arms.first().map(|arm| (arm, true));
    let arms = bench.arms.iter().map(|arm| (arm, false)).chain(twin);
    let drawn = arms.enumerate().map(|(index, (name, is_twin))| DrawnArm {
        name,
        is_twin,
        ink: LineStyle::new(index, view.arm_label(name), is_twin),
    });
    drawn.collect()
}

/// Returns the attributes by which the filters find a chart: all arms of its bench.
pub(super) fn bench_attributes(view: &RecordView<'_>, bench: &Bench, metric: &str) -> Attributes {
    vec![
        ("suite", view.record.suite.name.clone()),
        ("layer", view.layer(&bench.name, &bench.model).id().to_owned()),
        ("arm", bench.arms.join("\n")),
        ("metric", metric.to_owned()),
    ]
}

/// The charts of one case, which fold away.
pub(super) struct CaseCharts {
    pub(super) attributes: Attributes,
    pub(super) is_open: bool,
    pub(super) title: String,
    /// The arms with their lines and marks, as markup.
    pub(super) legend: String,
    /// One figure or more, as markup.
    pub(super) figures: String,
    /// The classes of the charts in the style sheet.
    pub(super) class: &'static str,
    /// The numbers that the figures draw, where they do not hold them themselves.
    pub(super) numbers: Option<Table>,
}

impl CaseCharts {
    /// Writes the charts as markup.
    pub(super) fn render(&self) -> String {
        format!(
            "<details class=\"case item\"{}{}><summary>{}</summary>{}<div class=\"{}\">{}</div>{}\
             </details>\n",
            render_attributes(&self.attributes),
            if self.is_open { " open" } else { "" },
            escape(self.title.trim()),
            self.legend,
            self.class,
            self.figures,
            self.numbers.as_ref().map_or_else(String::new, render_folded_table),
        )
    }
}

/// Writes the table behind a chart, folded.
pub(super) fn render_folded_table(table: &Table) -> String {
    let summary = escape(&table.name);
    format!("<details class=\"data\"><summary>{summary}</summary>{}</details>", render_table(table))
}

/// The words of a figure.
pub(super) struct Caption<'a> {
    pub(super) text: String,
    /// The id of the metric that is drawn, in small print; empty for none.
    pub(super) metric: &'a str,
    /// What the image shows, in words.
    pub(super) described: String,
}

/// Opens a figure with its caption and an image that is named and described in words.
pub(super) fn render_figure_start(id: &str, caption: &Caption<'_>, height: f64) -> String {
    let metric = match caption.metric {
        "" => String::new(),
        metric => format!(" <small><code>{}</code></small>", escape(metric)),
    };
    format!(
        "<figure><figcaption id=\"{id}-n\">{text}{metric}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-n\" \
         aria-describedby=\"{id}-d\"><desc id=\"{id}-d\">{}</desc>",
        escape(&caption.described),
        text = escape(&caption.text),
    )
}

/// Draws a line across with its value at the left.
pub(super) fn draw_horizontal_gridline(out: &mut String, y: f64, text: &str) {
    let _ = write!(
        out,
        "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>\
         <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0,
        escape(text),
    );
}

/// Draws a line upwards with its value below.
pub(super) fn draw_vertical_gridline(out: &mut String, x: f64, bottom: f64, text: &str) {
    let _ = write!(
        out,
        "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
        bottom + 16.0,
        // The last label must not leave the image.
        if x > WIDTH - RIGHT - 24.0 { "end" } else { "middle" },
        escape(text),
    );
}

/// Draws lines across for the round values of an axis that ends at `bottom`, named as values of the metric.
pub(super) fn draw_axis_y(out: &mut String, axis: &Axis, metric: &str, bottom: f64) {
    let ticks = axis.ticks(5);
    for (tick, label) in ticks.iter().zip(format_axis_labels(metric, &ticks)) {
        draw_horizontal_gridline(out, axis.position(*tick, bottom, TOP), &label);
    }
}

/// A linear axis, or a logarithmic one where the values span more than a factor of 6.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    pub(super) log: bool,
}

impl Axis {
    pub(super) fn from_values(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let finite = || values.clone().filter(|value| value.is_finite());
        let low = finite().fold(f64::INFINITY, f64::min);
        let high = finite().fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        let log = low > 0.0 && high / low > 6.0;
        if log {
            return Some(Self { low: low.ln() - 0.05, high: high.ln() + 0.05, log });
        }
        let room = ((high - low) * 0.04).max(high.abs() * 1e-3).max(1e-9);
        Some(Self { low: low - room, high: high + room, log })
    }

    /// Creates a logarithmic axis from `low` to `high`, with a share of its length as `room` at
    /// both ends.
    pub(crate) fn from_ratios(low: f64, high: f64, room: f64) -> Self {
        let room = (high / low).ln() * room;
        Self { low: low.ln() - room, high: high.ln() + room, log: true }
    }

    /// Creates a linear axis from zero to `high`; `None` if that is not a positive number.
    pub(super) fn from_zero(high: f64) -> Option<Self> {
        (high.is_finite() && high > 0.0).then_some(Self { low: 0.0, high: high * 1.02, log: false })
    }

    pub(crate) fn position(&self, value: f64, from: f64, to: f64) -> f64 {
        let value = if self.log { value.max(1e-300).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        from + share * (to - from)
    }

    /// Returns round values, at most about `wanted` of them.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.low.exp(), self.high.exp());
            let all: Vec<f64> = (-9..12)
                .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
                .filter(|tick| (low..=high).contains(tick))
                .collect();
            let stride = all.len().div_ceil(wanted).max(1);
            return all.into_iter().step_by(stride).collect();
        }
        let span = self.high - self.low;
        let rough = span / wanted as f64;
        let power = 10f64.powf(rough.log10().floor());
        let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|d| d * power >= rough);
        let step = digit.unwrap_or(10.0) * power;
        let first = (self.low / step).ceil();
        (0..=wanted as u32)
            .map(|i| (first + f64::from(i)) * step)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }

    /// Returns up to seven round ratios, 1 among them. Over many decades there are up to five,
    /// because their names are long.
    pub(super) fn ratio_ticks(&self) -> Vec<f64> {
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

/// A ratio on a line across a row: the line of no difference, bars for its intervals, a mark for its value.
/// All of it is placed in percent of the width.
pub(crate) struct RatioTrack<'a> {
    pub(crate) axis: &'a Axis,
    /// The class of the colour, without `c-`.
    pub(crate) colour: &'a str,
    /// The class of the mark in the style sheet.
    pub(crate) mark: &'a str,
    /// The margin around 1.
    pub(crate) band: Option<[f64; 2]>,
    /// The wider interval, drawn as a hair.
    pub(crate) hair: Option<[f64; 2]>,
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) value: Option<f64>,
}

impl RatioTrack<'_> {
    /// Writes the line as markup; screen readers are given the text next to it.
    pub(crate) fn render(&self) -> String {
        let place = |ratio: f64| self.axis.position(ratio, 0.0, 100.0);
        let bar = |class: &str, ends: Option<[f64; 2]>| {
            ends.map_or_else(String::new, |ends| {
                let [from, to] = ends.map(place);
                let width = (to - from).max(0.0);
                format!("<i class=\"{class}\" style=\"left:{from:.2}%;width:{width:.2}%\"></i>")
            })
        };
        let point = |class: &str, ratio: f64| {
            format!("<i class=\"{class}\" style=\"left:{:.2}%\"></i>", place(ratio))
        };
        let value = self.value.map(|value| point(&format!("dot {}", self.mark), value));
        format!(
            "<div class=\"track c-{}\" aria-hidden=\"true\">{}{}{}{}{}</div>",
            self.colour,
            bar("band", self.band),
            point("one", 1.0),
            bar("wide", self.hair),
            bar("ci", self.interval),
            value.unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_values_and_its_ticks_are_round() {
        let axis = Axis::from_values([3.0, 9.0].into_iter()).unwrap();
        assert!(!axis.log);
        assert_eq!(axis.ticks(5), [4.0, 6.0, 8.0]);
        assert!(axis.position(3.0, 0.0, 100.0) > 0.0 && axis.position(9.0, 0.0, 100.0) < 100.0);
        let wide = Axis::from_values([0.5, 900.0].into_iter()).unwrap();
        assert!(wide.log && wide.ticks(5).len() <= 5);
        assert!(Axis::from_values(std::iter::empty()).is_none());
        assert!(Axis::from_values([f64::NAN, f64::INFINITY].into_iter()).is_none());
    }

    #[test]
    fn a_single_value_has_an_axis() {
        let axis = Axis::from_values([5.0].into_iter()).unwrap();
        assert!((axis.position(5.0, 0.0, 100.0) - 50.0).abs() < 1e-6);
    }

    #[test]
    fn arms_differ_by_shape_and_dash_not_by_colour_alone() {
        let inks: Vec<LineStyle> =
            (0..COLOURS).map(|index| LineStyle::new(index, "arm", false)).collect();
        for (index, ink) in inks.iter().enumerate() {
            for other in &inks[..index] {
                assert_ne!(ink.marker_path(10.0, 10.0), other.marker_path(10.0, 10.0));
                assert_ne!(ink.dash_attribute(), other.dash_attribute());
            }
        }
    }

    #[test]
    fn few_ticks_stand_on_an_axis_and_one_is_among_them() {
        for (low, high) in [(0.9f64, 1.1), (0.5, 3.0), (0.02, 15.0), (0.03, 3e6), (1.0, 950.0)] {
            let ticks = Axis::from_ratios(low, high, 0.04).ratio_ticks();
            let is_one = |tick: &f64| (tick - 1.0).abs() < 1e-9;
            assert!((2..=9).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().any(is_one), "{low} to {high}: {ticks:?}");
            assert!(high / low < 1000.0 || ticks.len() <= 6, "{low} to {high}: {ticks:?}");
        }
    }
}

//! What all charts share: axes, arms in colour, line and shape, names for those who do not see.

use std::fmt::Write;

use super::html::escape;

/// Colours of the style sheet, `--a0` to `--a5`; each with a dash and a shape of its own.
const COLOURS: usize = 6;
const DASHES: [&str; COLOURS] = ["", "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2"];

/// Drawn width of a chart; it scales to its column.
pub(super) const WIDTH: f64 = 420.0;
pub(super) const LEFT: f64 = 74.0;
pub(super) const RIGHT: f64 = 14.0;
pub(super) const TOP: f64 = 10.0;

/// How one arm is drawn everywhere within a case.
#[derive(Clone, Debug)]
pub(super) struct Ink {
    pub(super) label: String,
    pub(super) twin: bool,
    index: usize,
}

impl Ink {
    pub(super) fn new(index: usize, label: &str, twin: bool) -> Self {
        let label = if twin { format!("{label} (A/A)") } else { label.to_owned() };
        Self { label, twin, index: index % COLOURS }
    }

    pub(super) fn colour(&self) -> String {
        if self.twin { "var(--twin)".into() } else { format!("var(--a{})", self.index) }
    }

    pub(super) fn dash(&self) -> String {
        let dash = if self.twin { "3 3" } else { DASHES[self.index] };
        if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") }
    }

    /// The outline of this arm's mark about a point, as path commands.
    pub(super) fn mark(&self, x: f64, y: f64) -> String {
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

    /// Fill and stroke of marks: hollow for A/A.
    pub(super) fn paint(&self) -> String {
        let colour = self.colour();
        if self.twin {
            format!("fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"1.3\"")
        } else {
            format!("style=\"fill:{colour}\"")
        }
    }
}

/// The arms with line and mark as they are drawn below.
pub(super) fn legend<'a>(inks: impl Iterator<Item = &'a Ink>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for ink in inks {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\" focusable=\"false\"><path \
             d=\"M0 5H34\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"2\"{}/><path d=\"{}\" {}/>\
             </svg> {}</li>",
            ink.colour(),
            ink.dash(),
            ink.mark(17.0, 5.0),
            ink.paint(),
            escape(&ink.label),
        );
    }
    out + "</ul>"
}

/// Opens a figure with its caption and an image that is named and described in words.
pub(super) fn open(id: &str, caption: &str, described: &str, height: f64) -> String {
    format!(
        "<figure><figcaption id=\"{id}-n\">{caption}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-n\" \
         aria-describedby=\"{id}-d\"><desc id=\"{id}-d\">{}</desc>",
        escape(described),
        caption = escape(caption),
    )
}

/// A line across with its value.
pub(super) fn grid_y(out: &mut String, y: f64, text: &str) {
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

/// A line upwards with its value.
pub(super) fn grid_x(out: &mut String, x: f64, bottom: f64, text: &str) {
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

/// Linear, or logarithmic where the values span more than a factor of 6.
pub(super) struct Axis {
    low: f64,
    high: f64,
    pub(super) log: bool,
}

impl Axis {
    pub(super) fn over(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
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

    /// From nothing to the largest.
    pub(super) fn from_zero(high: f64) -> Option<Self> {
        (high.is_finite() && high > 0.0).then_some(Self { low: 0.0, high: high * 1.02, log: false })
    }

    pub(super) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let value = if self.log { value.max(1e-300).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        from + share * (to - from)
    }

    /// Round values, at most `wanted` or so.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_values_and_its_ticks_are_round() {
        let axis = Axis::over([3.0, 9.0].into_iter()).unwrap();
        assert!(!axis.log);
        assert_eq!(axis.ticks(5), [4.0, 6.0, 8.0]);
        assert!(axis.place(3.0, 0.0, 100.0) > 0.0 && axis.place(9.0, 0.0, 100.0) < 100.0);
        let wide = Axis::over([0.5, 900.0].into_iter()).unwrap();
        assert!(wide.log && wide.ticks(5).len() <= 5);
        assert!(Axis::over(std::iter::empty()).is_none());
        assert!(Axis::over([f64::NAN, f64::INFINITY].into_iter()).is_none());
    }

    #[test]
    fn a_single_value_has_an_axis() {
        let axis = Axis::over([5.0].into_iter()).unwrap();
        assert!((axis.place(5.0, 0.0, 100.0) - 50.0).abs() < 1e-6);
    }

    #[test]
    fn arms_differ_by_shape_and_dash_not_by_colour_alone() {
        let inks: Vec<Ink> = (0..COLOURS).map(|index| Ink::new(index, "arm", false)).collect();
        for (index, ink) in inks.iter().enumerate() {
            for other in &inks[..index] {
                assert_ne!(ink.mark(10.0, 10.0), other.mark(10.0, 10.0));
                assert_ne!(ink.dash(), other.dash());
            }
        }
    }
}

//! Distributions and samples in time order, one pair of charts per case, as SVG.

use std::{collections::BTreeMap, fmt::Write};

use super::html::escape;
use crate::{
    Record, Suite,
    format::value,
    plan::cases,
    samples::{Sample, Slice},
    suite::{Bench, Metric},
};

/// Cases that are open when the page is; the others wait behind their summary.
const OPEN_CASES: usize = 8;
/// Points of one curve: more cannot be seen.
const CURVE_POINTS_MAX: usize = 160;
/// Colours of the style sheet, `--a0` to `--a5`.
const COLOURS: usize = 6;

const WIDTH: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const PLOT: f64 = 170.0;
const STRIP_TOP: f64 = TOP + PLOT + 30.0;
const STRIP: f64 = 34.0;
/// A distribution has no strip: its plot takes the room, so that both charts are as high.
const TALL: f64 = PLOT + 46.0;

/// One arm at one case.
struct Curve {
    label: String,
    colour: String,
    twin: bool,
    values: Vec<f64>,
    /// Time in seconds, value of the run, whether it is void.
    points: Vec<(f64, f64, bool)>,
}

/// All charts of a run.
pub(super) fn section(record: &Record, samples: &[Sample], slices: &[Slice]) -> String {
    let Ok(suite) = Suite::parse(&record.suite.name, &record.suite.text) else {
        return String::new();
    };
    let mut out = String::from(
        "<h2>Distributions, and samples in time order</h2>\n<p class=\"soft\">First the share of \
         samples at or below a value, per arm; then each run of each arm at its time, voids as \
         crosses; below it the share of the time in which tasks waited for a CPU (PSI, filled) and \
         CPU time stolen by the hypervisor (red).</p>\n",
    );
    let mut drawn = 0;
    for bench in &suite.benches {
        let Some(metric) = bench.metrics.iter().find(|m| m.headline && m.compare) else { continue };
        for case in cases(bench, record.effort) {
            let curves = curves(record, bench, metric, &case.key, samples, slices);
            if curves.iter().all(|curve| curve.values.is_empty()) {
                continue;
            }
            drawn += 1;
            let open = if drawn <= OPEN_CASES { " open" } else { "" };
            let title = [bench.name.as_str(), case.key.as_str()].join(" ");
            let _ = write!(
                out,
                "<details{open}><summary>{}</summary>{}<div class=\"charts\">",
                escape(title.trim()),
                legend(&curves),
            );
            distribution(&mut out, metric, &curves);
            let here: Vec<&Slice> = slices
                .iter()
                .filter(|s| s.place.bench == bench.name && s.place.case == case.key && !s.warmup)
                .collect();
            timeline(&mut out, metric, &curves, &here);
            out.push_str("</div></details>\n");
        }
    }
    if drawn == 0 { String::new() } else { out }
}

fn curves(
    record: &Record,
    bench: &Bench,
    metric: &Metric,
    case: &str,
    samples: &[Sample],
    slices: &[Slice],
) -> Vec<Curve> {
    let twin = bench.arms.first().map(|arm| (arm, true));
    let arms = bench.arms.iter().map(|arm| (arm, false)).chain(twin);
    arms.enumerate()
        .map(|(index, (arm, twin))| {
            let mut by_block: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            let mine = |place: &crate::samples::Place| {
                place.bench == bench.name
                    && place.case == case
                    && place.arm == *arm
                    && place.twin == twin
            };
            for sample in samples.iter().filter(|s| !s.warmup && mine(&s.place)) {
                if let Some(value) = sample.metrics.get(&metric.name) {
                    by_block.entry(sample.place.block).or_default().push(*value);
                }
            }
            let mut values = Vec::new();
            let mut points = Vec::new();
            for slice in slices.iter().filter(|s| !s.warmup && mine(&s.place)) {
                let of_run = slice.metrics.get(&metric.name).copied();
                let of_samples = by_block.remove(&slice.place.block).unwrap_or_default();
                let centre = metric.stat.of(&of_samples).or(of_run);
                if let Some(centre) = centre {
                    points.push((slice.started_s, centre, slice.void.is_some()));
                }
                if slice.void.is_none() {
                    let alone = of_run.filter(|_| of_samples.is_empty());
                    values.extend(of_samples.into_iter().chain(alone));
                }
            }
            let known = record.arms.iter().find(|known| known.name == *arm);
            let label = known.map_or(arm.as_str(), |known| known.label.as_str());
            Curve {
                label: if twin { format!("{label} (A/A)") } else { label.to_owned() },
                colour: if twin {
                    "var(--twin)".into()
                } else {
                    format!("var(--a{})", index % COLOURS)
                },
                twin,
                values,
                points,
            }
        })
        .collect()
}

fn legend(curves: &[Curve]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for curve in curves {
        let class = if curve.twin { " class=\"twin\"" } else { "" };
        let _ = write!(
            out,
            "<li style=\"color:{}\"><i{class}></i><span>{}</span></li>",
            curve.colour,
            escape(&curve.label),
        );
    }
    out + "</ul>"
}

fn distribution(out: &mut String, metric: &Metric, curves: &[Curve]) {
    let all = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let Some(axis) = Axis::over(all()) else { return };
    let samples = curves.iter().map(|curve| curve.values.len()).max().unwrap_or_default();
    let _ = write!(
        out,
        "<figure><figcaption>{}: distribution, up to {samples} samples an arm</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"distribution\">",
        escape(&metric.name),
        TOP + TALL + 24.0,
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = TOP + TALL * (1.0 - share);
        grid_y(out, y, &format!("{:.0} %", share * 100.0));
    }
    for tick in axis.ticks(5) {
        let x = axis.place(tick, LEFT, WIDTH - RIGHT);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            TOP + TALL,
            TOP + TALL + 16.0,
            escape(&value(&metric.name, tick)),
        );
    }
    for curve in curves.iter().filter(|curve| !curve.values.is_empty()) {
        let dash = if curve.twin { " stroke-dasharray=\"4 3\"" } else { "" };
        let _ = write!(
            out,
            "<path d=\"{}\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"2\"{dash}/>",
            steps(&curve.values, &axis),
            curve.colour,
        );
    }
    out.push_str("</svg></figure>");
}

/// A rising staircase, thinned to what can be seen.
fn steps(values: &[f64], axis: &Axis) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let stride = n.div_ceil(CURVE_POINTS_MAX).max(1);
    let mut path = String::new();
    let x = |v: f64| axis.place(v, LEFT, WIDTH - RIGHT);
    let y = |rank: usize| TOP + TALL * (1.0 - rank as f64 / n as f64);
    let _ = write!(path, "M{:.1} {:.1}", x(sorted[0]), y(0));
    for rank in (1..=n).filter(|rank| rank % stride == 0 || *rank == n) {
        let _ = write!(path, "H{:.1}V{:.1}", x(sorted[rank - 1]), y(rank));
    }
    path
}

fn timeline(out: &mut String, metric: &Metric, curves: &[Curve], slices: &[&Slice]) {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let Some(axis) = Axis::over(all()) else { return };
    let times = || slices.iter().map(|slice| slice.started_s);
    let from = times().fold(f64::INFINITY, f64::min);
    let to = slices.iter().map(|s| s.started_s + s.wall_s).fold(from, f64::max).max(from + 0.1);
    let x = |t: f64| LEFT + (t - from) / (to - from) * (WIDTH - RIGHT - LEFT);
    let _ = write!(
        out,
        "<figure><figcaption>{}: each run in time order</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"time order\">",
        escape(&metric.name),
        STRIP_TOP + STRIP + 6.0,
    );
    for tick in axis.ticks(5) {
        grid_y(out, axis.place(tick, TOP + PLOT, TOP), &value(&metric.name, tick));
    }
    let places = usize::from(to - from < 8.0);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let t = from + (to - from) * part;
        let anchor = if part == 1.0 { "end" } else { "middle" };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{t:.places$} s</text>",
            x(t),
            TOP + PLOT + 16.0,
        );
    }
    for curve in curves {
        for (time, value, void) in &curve.points {
            point(out, curve, x(*time), axis.place(*value, TOP + PLOT, TOP), *void);
        }
    }
    strip(out, slices, &x);
    out.push_str("</svg></figure>");
}

fn point(out: &mut String, curve: &Curve, x: f64, y: f64, void: bool) {
    let colour = &curve.colour;
    let _ = if void {
        write!(
            out,
            "<path d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\" style=\"stroke:{colour}\" \
             stroke-width=\"1.5\"/>",
            x - 3.0,
            y - 3.0,
        )
    } else if curve.twin {
        write!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"none\" \
             style=\"stroke:{colour}\" stroke-width=\"1.4\"/>"
        )
    } else {
        write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" style=\"fill:{colour}\"/>")
    };
}

/// PSI and steal under the points, one bar a slice.
fn strip(out: &mut String, slices: &[&Slice], x: &dyn Fn(f64) -> f64) {
    let bottom = STRIP_TOP + STRIP;
    for slice in slices {
        let (left, right) = (x(slice.started_s), x(slice.started_s + slice.wall_s));
        let width = (right - left).max(1.2);
        for (class, share) in [("psi", slice.quiet.psi_cpu), ("steal", slice.quiet.steal)] {
            let height = share.unwrap_or(0.0).clamp(0.0, 1.0) * STRIP;
            if height >= 0.2 {
                let _ = write!(
                    out,
                    "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                     height=\"{height:.1}\"/>",
                    bottom - height,
                );
            }
        }
    }
    let _ = write!(
        out,
        "<path class=\"frame\" d=\"M{LEFT} {STRIP_TOP}V{bottom}H{}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">PSI, steal</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">0–100 %</text>",
        WIDTH - RIGHT,
        LEFT - 4.0,
        STRIP_TOP + 12.0,
        LEFT - 4.0,
        STRIP_TOP + 26.0,
    );
}

fn grid_y(out: &mut String, y: f64, text: &str) {
    let _ = write!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0,
        escape(text),
    );
}

/// Linear, or logarithmic where the values span more than a factor of 6.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
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

    fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let value = if self.log { value.max(1e-300).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        from + share * (to - from)
    }

    /// Round values, at most `wanted` or so.
    fn ticks(&self, wanted: usize) -> Vec<f64> {
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
    }

    #[test]
    fn a_single_value_has_an_axis() {
        let axis = Axis::over([5.0].into_iter()).unwrap();
        assert!((axis.place(5.0, 0.0, 100.0) - 50.0).abs() < 1e-6);
    }

    #[test]
    fn a_staircase_ends_at_the_top() {
        let axis = Axis::over([1.0, 2.0].into_iter()).unwrap();
        assert!(steps(&[2.0, 1.0], &axis).ends_with(&format!("V{TOP:.1}")));
    }
}

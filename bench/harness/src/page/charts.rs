//! Distributions and samples in time order, one pair of charts a case, and the numbers behind them.

use std::{collections::BTreeMap, fmt::Write};

use confide_estimate::{mean, supported_quantile};

use super::{
    html::{data, escape, scroll},
    plot::{Axis, Ink, LEFT, RIGHT, TOP, WIDTH, grid_x, grid_y, legend, open},
    view::RecordView,
};
use crate::{
    format::{digits, labels, value},
    plan::cases,
    samples::{Place, Sample, Slice},
    suite::bench::{Bench, Metric},
};

/// Cases that are open when the page is; the others wait behind their summary.
const OPEN_CASES: usize = 6;
/// The same on a page of many records.
const OPEN_CASES_OF_MANY: usize = 1;
/// Points of one curve: more cannot be seen.
const CURVE_POINTS_MAX: usize = 160;

const PLOT: f64 = 170.0;
const STRIP_TOP: f64 = TOP + PLOT + 30.0;
const STRIP: f64 = 34.0;
/// A distribution has no strip: its plot takes the room, so that both charts are as high.
const TALL: f64 = PLOT + 50.0;

/// One arm at one case.
pub(super) struct Curve {
    pub(super) ink: Ink,
    /// Of all valid samples.
    pub(super) values: Vec<f64>,
    /// Time in seconds, value of the run, whether it is void.
    points: Vec<(f64, f64, bool)>,
    disturbed: usize,
}

/// All charts of a run.
pub(super) fn section(shown: &RecordView<'_>, index: usize, many: bool) -> String {
    let Some(suite) = &shown.suite else { return String::new() };
    let record = shown.record;
    let mut out = format!(
        "<section class=\"group\">\n<h2 id=\"charts-{index}\">Distributions, and samples in time \
         order</h2>\n<p class=\"soft\">First the share of samples at or below a value, per arm; \
         then each run of each arm at its time, voids as crosses; below it the share of the time \
         in which tasks waited for a CPU (PSI, pale) and CPU time stolen by the hypervisor \
         (dark), with a tick under each disturbed run.</p>\n"
    );
    let open_cases = if many { OPEN_CASES_OF_MANY } else { OPEN_CASES };
    let mut drawn = 0;
    for bench in &suite.benches {
        let Some(metric) = bench.metrics.iter().find(|m| m.headline && m.compare) else { continue };
        for case in cases(bench, record.effort) {
            let curves = curves(shown, bench, metric, &case.key);
            if curves.iter().all(|curve| curve.values.is_empty()) {
                continue;
            }
            drawn += 1;
            let here: Vec<&Slice> = shown
                .slices
                .iter()
                .filter(|s| s.place.bench == bench.name && s.place.case == case.key && !s.warmup)
                .collect();
            let title = [bench.name.as_str(), case.key.as_str()].join(" ");
            let id = format!("r{index}c{drawn}");
            let _ = write!(
                out,
                "<details class=\"case item\"{}{}><summary>{}</summary>{}<div class=\"charts\">",
                keys(shown, bench, &metric.name),
                if drawn <= open_cases { " open" } else { "" },
                escape(title.trim()),
                legend(curves.iter().map(|curve| &curve.ink)),
            );
            distribution(&mut out, &id, metric, &curves);
            timeline(&mut out, &id, metric, &curves, &here);
            let _ = writeln!(out, "</div>{}</details>", numbers(metric, &curves));
        }
    }
    if drawn == 0 { String::new() } else { out + "</section>\n" }
}

/// What the filters know of a chart: all arms of its bench.
pub(super) fn keys(shown: &RecordView<'_>, bench: &Bench, metric: &str) -> String {
    data(&[
        ("suite", &shown.record.suite.name),
        ("layer", shown.layer(&bench.name, &bench.model).id()),
        ("arm", &bench.arms.join("\n")),
        ("metric", metric),
    ])
}

/// Every arm of a bench at a case, the A/A arm last.
pub(super) fn curves(
    shown: &RecordView<'_>,
    bench: &Bench,
    metric: &Metric,
    case: &str,
) -> Vec<Curve> {
    let mut by_run: BTreeMap<(&str, bool, u32), Vec<f64>> = BTreeMap::new();
    let here = |place: &Place| place.bench == bench.name && place.case == case;
    for sample in shown.samples.iter().filter(|s: &&Sample| !s.warmup && here(&s.place)) {
        if let Some(value) = sample.metrics.get(&metric.name) {
            let place = &sample.place;
            by_run.entry((&place.arm, place.twin, place.block)).or_default().push(*value);
        }
    }
    let slices: Vec<&Slice> = shown.slices.iter().filter(|s| !s.warmup && here(&s.place)).collect();
    let twin = bench.arms.first().map(|arm| (arm, true));
    let arms = bench.arms.iter().map(|arm| (arm, false)).chain(twin);
    arms.enumerate()
        .map(|(index, (arm, twin))| {
            let known = shown.record.arms.iter().find(|known| known.name == *arm);
            let label = known.map_or(arm.as_str(), |known| known.label.as_str());
            let (mut values, mut points, mut disturbed) = (Vec::new(), Vec::new(), 0);
            for slice in slices.iter().filter(|s| s.place.arm == *arm && s.place.twin == twin) {
                disturbed += usize::from(!slice.disturbed.is_empty());
                let of_run = slice.metrics.get(&metric.name).copied();
                let key = (arm.as_str(), twin, slice.place.block);
                let of_samples = by_run.remove(&key).unwrap_or_default();
                if let Some(centre) = metric.stat.reduce(&of_samples).or(of_run) {
                    points.push((slice.started_s, centre, slice.void.is_some()));
                }
                if slice.void.is_none() {
                    let alone = of_run.filter(|_| of_samples.is_empty());
                    values.extend(of_samples.into_iter().chain(alone));
                }
            }
            Curve { ink: Ink::new(index, label, twin), values, points, disturbed }
        })
        .collect()
}

fn distribution(out: &mut String, id: &str, metric: &Metric, curves: &[Curve]) {
    let all = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let Some(axis) = Axis::over(all()) else { return };
    let samples = curves.iter().map(|curve| curve.values.len()).max().unwrap_or_default();
    let described = curves.iter().filter_map(|curve| {
        let middle = confide_estimate::quantile(&curve.values, 0.5)?;
        Some(format!("{}: half at or below {}", curve.ink.label, value(&metric.name, middle)))
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let caption = format!(
        "{}: distribution, up to {} {} an arm{}",
        metric.name,
        digits(samples as f64),
        if samples == 1 { "sample" } else { "samples" },
        if axis.log { ", logarithmic" } else { "" }
    );
    out.push_str(&open(&format!("{id}e"), &caption, &described, TOP + TALL + 24.0));
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        grid_y(out, TOP + TALL * (1.0 - share), &format!("{:.0} %", share * 100.0));
    }
    let ticks = axis.ticks(5);
    for (tick, label) in ticks.iter().zip(labels(&metric.name, &ticks)) {
        grid_x(out, axis.place(*tick, LEFT, WIDTH - RIGHT), TOP + TALL, &label);
    }
    for curve in curves.iter().filter(|curve| !curve.values.is_empty()) {
        let _ = write!(
            out,
            "<path d=\"{}\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"2\"{}/>",
            steps(&curve.values, &axis),
            curve.ink.colour(),
            curve.ink.dash(),
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

fn timeline(out: &mut String, id: &str, metric: &Metric, curves: &[Curve], slices: &[&Slice]) {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let Some(axis) = Axis::over(all()) else { return };
    let times = || slices.iter().map(|slice| slice.started_s);
    let from = times().fold(f64::INFINITY, f64::min);
    let to = slices.iter().map(|s| s.started_s + s.wall_s).fold(from, f64::max).max(from + 0.1);
    let x = |t: f64| LEFT + (t - from) / (to - from) * (WIDTH - RIGHT - LEFT);
    let caption = format!("{}: each run in time order", metric.name);
    let described = curves.iter().filter(|curve| !curve.points.is_empty()).map(|curve| {
        let voids = curve.points.iter().filter(|point| point.2).count();
        format!("{}: {} runs, {voids} void", curve.ink.label, curve.points.len())
    });
    let described = described.collect::<Vec<_>>().join("; ");
    out.push_str(&open(&format!("{id}t"), &caption, &described, STRIP_TOP + STRIP + 10.0));
    let ticks = axis.ticks(5);
    for (tick, label) in ticks.iter().zip(labels(&metric.name, &ticks)) {
        grid_y(out, axis.place(*tick, TOP + PLOT, TOP), &label);
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
        runs(out, curve, &x, &|v| axis.place(v, TOP + PLOT, TOP));
    }
    strip(out, slices, &x);
    out.push_str("</svg></figure>");
}

/// Two paths an arm: marks, and crosses where a run is void.
fn runs(out: &mut String, curve: &Curve, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let (mut marks, mut crosses) = (String::new(), String::new());
    for (time, value, void) in &curve.points {
        let (x, y) = (x(*time), y(*value));
        if *void {
            let _ = write!(crosses, "M{:.1} {:.1}l6 6m0-6l-6 6", x - 3.0, y - 3.0);
        } else {
            marks.push_str(&curve.ink.mark(x, y));
        }
    }
    if !marks.is_empty() {
        let _ = write!(out, "<path d=\"{marks}\" {}/>", curve.ink.paint());
    }
    if !crosses.is_empty() {
        let _ = write!(
            out,
            "<path d=\"{crosses}\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"1.5\"/>",
            curve.ink.colour(),
        );
    }
}

/// PSI and steal under the points, one bar a slice.
fn strip(out: &mut String, slices: &[&Slice], x: &dyn Fn(f64) -> f64) {
    let bottom = STRIP_TOP + STRIP;
    for class in ["psi", "steal"] {
        let mut path = String::new();
        for slice in slices {
            let share = if class == "psi" { slice.quiet.psi_cpu } else { slice.quiet.steal };
            let height = share.unwrap_or(0.0).clamp(0.0, 1.0) * STRIP;
            if height < 0.2 {
                continue;
            }
            let (left, right) = (x(slice.started_s), x(slice.started_s + slice.wall_s));
            let width = (right - left).max(1.2);
            let _ = write!(path, "M{left:.1} {bottom}v-{height:.1}h{width:.1}v{height:.1}z");
        }
        if !path.is_empty() {
            let _ = write!(out, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    let mut ticks = String::new();
    for slice in slices.iter().filter(|slice| !slice.disturbed.is_empty()) {
        let _ = write!(ticks, "M{:.1} {}v5", x(slice.started_s), bottom + 2.0);
    }
    if !ticks.is_empty() {
        let _ = write!(out, "<path class=\"disturbed\" d=\"{ticks}\"/>");
    }
    let known = slices.iter().any(|slice| slice.quiet.psi_cpu.is_some());
    let _ = write!(
        out,
        "<path class=\"frame\" d=\"M{LEFT} {STRIP_TOP}V{bottom}H{}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">0–100 %</text>",
        WIDTH - RIGHT,
        LEFT - 4.0,
        STRIP_TOP + 12.0,
        if known { "PSI, steal" } else { "no PSI" },
        LEFT - 4.0,
        STRIP_TOP + 26.0,
    );
}

/// The table behind both charts.
fn numbers(metric: &Metric, curves: &[Curve]) -> String {
    let mut out = format!(
        "<details class=\"data\"><summary>The numbers of these charts</summary>{}<table class=\"cards\">\
         <thead><tr><th scope=\"col\">arm</th><th scope=\"col\" class=\"num\">runs</th>\
         <th scope=\"col\" class=\"num\">void</th>\
         <th scope=\"col\" class=\"num\">disturbed</th><th scope=\"col\" class=\"num\">samples</th>\
         <th scope=\"col\" class=\"num\">least</th><th scope=\"col\" class=\"num\">mean</th>\
         <th scope=\"col\" class=\"num\">p50</th><th scope=\"col\" class=\"num\">p95</th>\
         <th scope=\"col\" class=\"num\">p99</th><th scope=\"col\" class=\"num\">most</th>\
         <th scope=\"col\" class=\"num\">first third, last third</th></tr></thead><tbody>",
        scroll("The numbers of these charts"),
    );
    for curve in curves {
        let show = |number: Option<f64>| {
            number.map_or_else(|| "–".into(), |number| escape(&value(&metric.name, number)))
        };
        let all = &curve.values;
        let voids = curve.points.iter().filter(|point| point.2).count();
        let cells = [
            ("runs", curve.points.len().to_string()),
            ("void", voids.to_string()),
            ("disturbed", curve.disturbed.to_string()),
            ("samples", all.len().to_string()),
            ("least", show(all.iter().copied().reduce(f64::min))),
            ("mean", show(mean(all))),
            ("p50", show(supported_quantile(all, 0.5))),
            ("p95", show(supported_quantile(all, 0.95))),
            ("p99", show(supported_quantile(all, 0.99))),
            ("most", show(all.iter().copied().reduce(f64::max))),
            ("thirds", thirds(metric, curve)),
        ];
        let _ = write!(out, "<tr><td class=\"layer\">{}</td>", escape(&curve.ink.label));
        for (name, cell) in cells {
            let _ = write!(out, "<td class=\"num\" data-name=\"{name}\">{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out + "</tbody></table></div></details>"
}

/// The mean over the first and the last third of the runs: what drifted.
fn thirds(metric: &Metric, curve: &Curve) -> String {
    let valid: Vec<f64> = curve.points.iter().filter(|p| !p.2).map(|p| p.1).collect();
    let third = valid.len() / 3;
    let ends = (mean(&valid[..third]), mean(&valid[valid.len() - third..]));
    match ends {
        (Some(first), Some(last)) => {
            escape(&format!("{}, {}", value(&metric.name, first), value(&metric.name, last)))
        }
        _ => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staircase_ends_at_the_top() {
        let axis = Axis::over([1.0, 2.0].into_iter()).unwrap();
        assert!(steps(&[2.0, 1.0], &axis).ends_with(&format!("V{TOP:.1}")));
    }
}

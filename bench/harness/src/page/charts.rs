//! Distributions and samples in time order, one pair of charts a case, and the numbers behind them.

use std::{collections::BTreeMap, fmt::Write};

use confide_estimate::{mean, supported_quantile};

use super::{
    plot::{
        Axis, Caption, CaseCharts, DrawnArm, LEFT, LineStyle, RIGHT, TOP, WIDTH, bench_attributes,
        draw_axis_y, draw_horizontal_gridline, draw_vertical_gridline, drawn_arms,
        render_figure_start, render_legend,
    },
    tables::number_cell,
    view::RecordView,
    vocabulary::{case_title, metric_name},
};
use crate::{
    document::{Block, Cell, Column, Section, Table},
    format::{format_axis_labels, format_number, format_value},
    plan::cases,
    samples::{Sample, SamplePlace, Slice},
    suite::bench::{Bench, Metric},
};

/// The number of cases that are open when the page is; the others are folded.
const OPEN_CASES: usize = 6;
/// The same number for a page of many records.
const OPEN_CASES_OF_MANY: usize = 1;
/// The most points of one curve: more cannot be seen.
const CURVE_POINTS_MAX: usize = 160;

const PLOT: f64 = 170.0;
const STRIP_TOP: f64 = TOP + PLOT + 30.0;
const STRIP: f64 = 34.0;
/// The height of a distribution's plot. It has no strip below it, so that both charts are as high.
const TALL: f64 = PLOT + 50.0;

/// The values and runs of one arm at one case.
struct ArmChartData {
    ink: LineStyle,
    /// The values of all valid samples.
    values: Vec<f64>,
    /// The time in seconds and the value of each run, and whether it is void.
    points: Vec<(f64, f64, bool)>,
    disturbed: usize,
}

/// Draws two charts for each case; on a page of `many` records most of them are folded.
pub(super) fn distributions_section(view: &RecordView<'_>, number: usize, many: bool) -> Section {
    let open_cases = if many { OPEN_CASES_OF_MANY } else { OPEN_CASES };
    let mut blocks = Vec::new();
    for bench in view.suite.iter().flat_map(|suite| &suite.benches) {
        let Some(metric) = bench.metrics.iter().find(|m| m.headline && m.compare) else { continue };
        for case in cases(bench, view.record.effort) {
            let curves = collect_chart_data(view, bench, metric, &case.key);
            if curves.iter().all(|curve| curve.values.is_empty()) {
                continue;
            }
            let drawn = blocks.len() + 1;
            let here: Vec<&Slice> = view
                .slices
                .iter()
                .filter(|s| s.place.bench == bench.name && s.place.case == case.key && !s.warmup)
                .collect();
            let id = format!("r{number}c{drawn}");
            let charts = CaseCharts {
                attributes: bench_attributes(view, bench, &metric.name),
                is_open: drawn <= open_cases,
                title: case_title(bench, &case),
                legend: render_legend(curves.iter().map(|curve| &curve.ink)),
                figures: draw_distribution(&id, metric, &curves)
                    + &draw_timeline(&id, metric, &curves, &here),
                class: "charts",
                numbers: Some(chart_table(metric, &curves)),
            };
            blocks.push(Block::Markup(charts.render()));
        }
    }
    Section {
        id: format!("charts-{number}"),
        heading: "Distributions, and runs in time order".to_owned(),
        about: "The first chart of a pair shows the share of samples at or below a value. The second shows \
                every run at its time (a cross is an excluded run), and below it how much tasks waited for \
                a CPU (PSI, pale) and how much CPU time the hypervisor took (steal, dark). A tick marks a \
                disturbed run."
            .to_owned(),
        blocks,
    }
}

/// Collects the curves of every arm of a bench at a case, the A/A arm last.
fn collect_chart_data(
    view: &RecordView<'_>,
    bench: &Bench,
    metric: &Metric,
    case: &str,
) -> Vec<ArmChartData> {
    let mut by_run: BTreeMap<(&str, bool, u32), Vec<f64>> = BTreeMap::new();
    let here = |place: &SamplePlace| place.bench == bench.name && place.case == case;
    for sample in view.samples.iter().filter(|s: &&Sample| !s.warmup && here(&s.place)) {
        if let Some(value) = sample.metrics.get(&metric.name) {
            let place = &sample.place;
            by_run.entry((&place.arm, place.twin, place.block)).or_default().push(*value);
        }
    }
    let slices: Vec<&Slice> = view.slices.iter().filter(|s| !s.warmup && here(&s.place)).collect();
    let mut curve = |DrawnArm { name, is_twin, ink }: DrawnArm<'_>| {
        let (mut values, mut points, mut disturbed) = (Vec::new(), Vec::new(), 0);
        for slice in slices.iter().filter(|s| s.place.arm == name && s.place.twin == is_twin) {
            disturbed += usize::from(!slice.disturbed.is_empty());
            let of_run = slice.metrics.get(&metric.name).copied();
            let key = (slice.place.arm.as_str(), is_twin, slice.place.block);
            let of_samples = by_run.remove(&key).unwrap_or_default();
            if let Some(centre) = metric.stat.reduce(&of_samples).or(of_run) {
                points.push((slice.started_s, centre, slice.void.is_some()));
            }
            if slice.void.is_none() {
                let alone = of_run.filter(|_| of_samples.is_empty());
                values.extend(of_samples.into_iter().chain(alone));
            }
        }
        ArmChartData { ink, values, points, disturbed }
    };
    drawn_arms(view, bench).into_iter().map(&mut curve).collect()
}

fn draw_distribution(id: &str, metric: &Metric, curves: &[ArmChartData]) -> String {
    let all = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let Some(axis) = Axis::from_values(all()) else { return String::new() };
    let samples = curves.iter().map(|curve| curve.values.len()).max().unwrap_or_default();
    let described = curves.iter().filter_map(|curve| {
        let middle = confide_estimate::quantile(&curve.values, 0.5)?;
        Some(format!("{}: median {}", curve.ink.label, format_value(&metric.name, middle)))
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let text = format!(
        "{}: distribution, up to {} {} an arm{}",
        metric_name(&metric.name),
        format_number(samples as f64),
        if samples == 1 { "sample" } else { "samples" },
        if axis.log { ", logarithmic" } else { "" }
    );
    let caption = Caption { text, metric: &metric.name, described };
    let mut out = render_figure_start(&format!("{id}e"), &caption, TOP + TALL + 24.0);
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        draw_horizontal_gridline(
            &mut out,
            TOP + TALL * (1.0 - share),
            &format!("{:.0} %", share * 100.0),
        );
    }
    let ticks = axis.ticks(5);
    for (tick, label) in ticks.iter().zip(format_axis_labels(&metric.name, &ticks)) {
        draw_vertical_gridline(
            &mut out,
            axis.position(*tick, LEFT, WIDTH - RIGHT),
            TOP + TALL,
            &label,
        );
    }
    for curve in curves.iter().filter(|curve| !curve.values.is_empty()) {
        out += &curve.ink.render_line(&draw_empirical_cdf(&curve.values, &axis), 2.0);
    }
    out + "</svg></figure>"
}

/// Draws a rising staircase, thinned to what can be seen.
fn draw_empirical_cdf(values: &[f64], axis: &Axis) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let stride = n.div_ceil(CURVE_POINTS_MAX).max(1);
    let mut path = String::new();
    let x = |v: f64| axis.position(v, LEFT, WIDTH - RIGHT);
    let y = |rank: usize| TOP + TALL * (1.0 - rank as f64 / n as f64);
    let _ = write!(path, "M{:.1} {:.1}", x(sorted[0]), y(0));
    for rank in (1..=n).filter(|rank| rank % stride == 0 || *rank == n) {
        let _ = write!(path, "H{:.1}V{:.1}", x(sorted[rank - 1]), y(rank));
    }
    path
}

fn draw_timeline(id: &str, metric: &Metric, curves: &[ArmChartData], slices: &[&Slice]) -> String {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let Some(axis) = Axis::from_values(all()) else { return String::new() };
    let times = || slices.iter().map(|slice| slice.started_s);
    let from = times().fold(f64::INFINITY, f64::min);
    let to = slices.iter().map(|s| s.started_s + s.wall_s).fold(from, f64::max).max(from + 0.1);
    let x = |t: f64| LEFT + (t - from) / (to - from) * (WIDTH - RIGHT - LEFT);
    let described = curves.iter().filter(|curve| !curve.points.is_empty()).map(|curve| {
        let voids = curve.points.iter().filter(|point| point.2).count();
        format!("{}: {} runs, {voids} excluded", curve.ink.label, curve.points.len())
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let text = format!("{}: every run in time order", metric_name(&metric.name));
    let caption = Caption { text, metric: &metric.name, described };
    let mut out = render_figure_start(&format!("{id}t"), &caption, STRIP_TOP + STRIP + 10.0);
    draw_axis_y(&mut out, &axis, &metric.name, TOP + PLOT);
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
        draw_runs(&mut out, curve, &x, &|v| axis.position(v, TOP + PLOT, TOP));
    }
    draw_disturbance_strip(&mut out, slices, &x);
    out + "</svg></figure>"
}

/// Draws two paths for each arm: marks, and crosses where a run is void.
fn draw_runs(
    out: &mut String,
    curve: &ArmChartData,
    x: &dyn Fn(f64) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
    let (mut marks, mut crosses) = (String::new(), String::new());
    for (time, value, void) in &curve.points {
        let (x, y) = (x(*time), y(*value));
        if *void {
            let _ = write!(crosses, "M{:.1} {:.1}l6 6m0-6l-6 6", x - 3.0, y - 3.0);
        } else {
            marks.push_str(&curve.ink.marker_path(x, y));
        }
    }
    if !marks.is_empty() {
        let _ = write!(out, "<path d=\"{marks}\" {}/>", curve.ink.marker_style());
    }
    if !crosses.is_empty() {
        let _ = write!(
            out,
            "<path d=\"{crosses}\" fill=\"none\" style=\"stroke:{}\" stroke-width=\"1.5\"/>",
            curve.ink.colour(),
        );
    }
}

/// Draws PSI and steal under the points, one bar for each slice.
fn draw_disturbance_strip(out: &mut String, slices: &[&Slice], x: &dyn Fn(f64) -> f64) {
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

/// Builds the table behind both charts.
fn chart_table(metric: &Metric, curves: &[ArmChartData]) -> Table {
    let mut columns = vec![Column::new_label("arm")];
    columns.extend(
        ["runs", "excluded", "disturbed", "samples", "min", "mean", "p50", "p95", "p99", "max"]
            .map(Column::new_number),
    );
    columns.push(Column::new_number("mean of the first third, of the last").with_name("drift"));
    let mut table = Table::new("The numbers of these charts", columns);
    for curve in curves {
        let all = &curve.values;
        let voids = curve.points.iter().filter(|point| point.2).count();
        let counts = [curve.points.len(), voids, curve.disturbed, all.len()];
        let figures = [
            all.iter().copied().reduce(f64::min),
            mean(all),
            supported_quantile(all, 0.5),
            supported_quantile(all, 0.95),
            supported_quantile(all, 0.99),
            all.iter().copied().reduce(f64::max),
        ];
        let mut cells = vec![Cell::from(curve.ink.label.clone())];
        cells.extend(counts.map(|count| Cell::from(count.to_string())));
        cells.extend(figures.map(|figure| number_cell(&metric.name, figure)));
        cells.push(describe_drift(metric, curve).into());
        table.push(cells);
    }
    table
}

/// Formats the mean over the first and over the last third of the runs, which shows drift.
fn describe_drift(metric: &Metric, curve: &ArmChartData) -> String {
    let valid: Vec<f64> = curve.points.iter().filter(|p| !p.2).map(|p| p.1).collect();
    let third = valid.len() / 3;
    match (mean(&valid[..third]), mean(&valid[valid.len() - third..])) {
        (Some(first), Some(last)) => {
            format!("{}, {}", format_value(&metric.name, first), format_value(&metric.name, last))
        }
        _ => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staircase_ends_at_the_top() {
        let axis = Axis::from_values([1.0, 2.0].into_iter()).unwrap();
        assert!(draw_empirical_cdf(&[2.0, 1.0], &axis).ends_with(&format!("V{TOP:.1}")));
    }
}

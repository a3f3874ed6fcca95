//! Curves over a parameter with three values or more: load curves with their saturation, and what
//! grows with callers, sizes or lengths.

use std::fmt::Write;

use serde_json::Value;

use super::{
    plot::{
        Axis, Caption, CaseCharts, DrawnArm, LEFT, LineStyle, RIGHT, TOP, WIDTH, bench_attributes,
        draw_axis_y, draw_vertical_gridline, drawn_arms, render_figure_start, render_folded_table,
        render_legend,
    },
    tables::figure_cells,
    view::RecordView,
    vocabulary::{describe_case, metric_name, param_name},
};
use crate::{
    document::{Block, Cell, Column, Section, Table},
    format::{format_number, format_value},
    plan::{Case, cases},
    rows::row::PooledFigure,
    suite::bench::Bench,
};

/// The number of points below which no curve is drawn.
const POINTS_MIN: usize = 3;
/// The most metrics of one bench that get a chart.
const METRICS_MAX: usize = 9;
/// The metrics that are drawn in addition to the suite's own, where runs have them.
const ALSO: &[&str] = &["itl_ms"];
/// The share of the offered load below which a server did not keep up.
const KEPT_UP: f64 = 0.95;
/// The parameter that is a share of the reference arm's saturation.
const LOAD_RATIO: &str = "load_ratio";
const PLOT: f64 = 190.0;

/// The points of one arm over the parameter.
struct Series<'a> {
    ink: LineStyle,
    points: Vec<CurvePoint<'a>>,
}

/// The figure of one arm at one value of the parameter.
struct CurvePoint<'a> {
    at: f64,
    figure: &'a PooledFigure,
    /// True where the server gave fewer answers than were asked for.
    saturated: bool,
}

/// Draws a chart for each metric of each bench with such a parameter.
pub(super) fn curves_section(view: &RecordView<'_>, number: usize) -> Section {
    let mut blocks = Vec::new();
    let mut drawn = 0;
    for bench in view.suite.iter().flat_map(|suite| &suite.benches) {
        let all = cases(bench, view.record.effort);
        for (name, group) in group_cases(bench, &all) {
            let (mut figures, mut inks) = (String::new(), Vec::new());
            for metric in metric_names(bench).take(METRICS_MAX) {
                let series = collect_series(view, bench, metric, &group);
                if series.iter().all(|one| one.points.len() < POINTS_MIN) {
                    continue;
                }
                drawn += 1;
                figures += &draw_chart(&format!("r{number}p{drawn}"), metric, &name, &series);
                figures += &render_folded_table(&series_table(&name, &series));
                figures += "</figure>";
                inks = series.into_iter().map(|one| one.ink).collect();
            }
            if figures.is_empty() {
                continue;
            }
            let metrics = metric_names(bench).collect::<Vec<_>>().join("\n");
            let charts = CaseCharts {
                attributes: bench_attributes(view, bench, &metrics),
                is_open: true,
                title: chart_title(bench, &name, &group),
                legend: render_legend(inks.iter()),
                figures,
                class: "charts",
                numbers: None,
            };
            blocks.push(Block::Markup(charts.render()));
        }
    }
    Section {
        id: format!("curves-{number}"),
        heading: "How figures change with load, concurrency and size".to_owned(),
        about: "The mean of all valid samples of an arm. The vertical line goes from p50 to p95, where \
                there are enough samples for them."
            .to_owned(),
        blocks,
    }
}

fn metric_names(bench: &Bench) -> impl Iterator<Item = &str> {
    bench.metrics.iter().map(|metric| metric.name.as_str()).chain(ALSO.iter().copied())
}

/// Cases with their values of one parameter.
type Group<'a> = Vec<(f64, &'a Case)>;

/// Groups cases that differ in one number only, by that number's name.
fn group_cases<'a>(bench: &Bench, all: &'a [Case]) -> Vec<(String, Group<'a>)> {
    let mut out: Vec<(String, String, Group<'a>)> = Vec::new();
    for name in bench.grid.keys() {
        for case in all {
            let Some(number) = case.params.get(name).and_then(Value::as_f64) else { continue };
            let rest = case_key_without(case, name);
            match out.iter_mut().find(|(known, other, _)| known == name && *other == rest) {
                Some((.., group)) => group.push((number, case)),
                None => out.push((name.clone(), rest, vec![(number, case)])),
            }
        }
    }
    let enough = out.into_iter().filter(|(.., group)| group.len() >= POINTS_MIN);
    enough
        .map(|(name, _, mut group)| {
            group.sort_by(|a, b| a.0.total_cmp(&b.0));
            (name, group)
        })
        .collect()
}

fn chart_title(bench: &Bench, name: &str, group: &[(f64, &Case)]) -> String {
    let rest = group.first().map(|(_, case)| describe_case(bench, case, name)).unwrap_or_default();
    let comma = if rest.is_empty() { "" } else { "; " };
    format!("{} over {}{comma}{rest}", bench.name, param_name(name))
}

/// Returns the key of a case without one of its parameters.
fn case_key_without(case: &Case, name: &str) -> String {
    let start = format!("{name}=");
    let parts = case.key.split(' ').filter(|part| !part.starts_with(&start));
    parts.collect::<Vec<_>>().join(" ")
}

fn collect_series<'a>(
    view: &RecordView<'a>,
    bench: &Bench,
    metric: &str,
    group: &[(f64, &Case)],
) -> Vec<Series<'a>> {
    let series = drawn_arms(view, bench).into_iter().map(|DrawnArm { name, is_twin, ink }| {
        let point = |(at, case): &(f64, &Case)| {
            let find = |metric: &str| {
                let is = |figure: &&PooledFigure| {
                    figure.bench == bench.name
                        && figure.case == case.key
                        && figure.arm == name
                        && figure.twin == is_twin
                        && figure.metric == metric
                };
                view.record.figures.iter().find(is)
            };
            let kept_up = find("rate_per_s")
                .zip(find("offered_per_s"))
                .is_none_or(|(rate, offered)| rate.mean >= KEPT_UP * offered.mean);
            Some(CurvePoint { at: *at, figure: find(metric)?, saturated: !kept_up })
        };
        Series { ink, points: group.iter().filter_map(point).collect() }
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

/// Opens a figure with its image; the figure stays open for what belongs to it.
fn draw_chart(id: &str, metric: &str, name: &str, series: &[Series<'_>]) -> String {
    let figures = || series.iter().flat_map(|one| one.points.iter());
    let heights = figures().flat_map(|p| [Some(p.figure.mean), p.figure.p95].into_iter().flatten());
    let (Some(xs), Some(ys)) =
        (choose_axis(figures().map(|point| point.at)), Axis::from_values(heights))
    else {
        return String::from("<figure>");
    };
    let described = series.iter().map(|one| {
        let ends = one.points.first().zip(one.points.last());
        let ends = ends.map_or_else(String::new, |(first, last)| {
            format!(
                "{} at {}, {} at {}",
                format_value(metric, first.figure.mean),
                format_param_value(name, first.at),
                format_value(metric, last.figure.mean),
                format_param_value(name, last.at)
            )
        });
        format!("{}: {ends}", one.ink.label)
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let text = format!("{} over {}", metric_name(metric), param_name(name));
    let mut out = render_figure_start(id, &Caption { text, metric, described }, TOP + PLOT + 24.0);
    draw_axis_y(&mut out, &ys, metric, TOP + PLOT);
    for (tick, text) in x_ticks(&xs, name, series) {
        draw_vertical_gridline(&mut out, xs.position(tick, LEFT, WIDTH - RIGHT), TOP + PLOT, &text);
    }
    if name == LOAD_RATIO && figures().any(|point| point.at >= 1.0) {
        let x = xs.position(1.0, LEFT, WIDTH - RIGHT);
        let _ = write!(
            out,
            "<path class=\"saturation\" d=\"M{x:.1} {TOP}V{}\"/><text x=\"{:.1}\" y=\"{}\" \
             text-anchor=\"end\">saturation of the reference</text>",
            TOP + PLOT,
            x - 5.0,
            TOP + 11.0,
        );
    }
    series.iter().for_each(|one| draw_series(&mut out, one, &xs, &ys));
    out.push_str("</svg>");
    if figures().any(|point| point.saturated) {
        out.push_str(
            "<p class=\"soft\"><small>Circled: saturated; less than 95 % of the offered load was \
             answered.</small></p>",
        );
    }
    out
}

/// Chooses the axis of a parameter: loads are read on an even scale, others by their span.
fn choose_axis(values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
    let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let low = values.clone().fold(f64::INFINITY, f64::min);
    if low > 0.0 && high <= 1.5 { Axis::from_zero(high) } else { Axis::from_values(values) }
}

/// Formats a value of the parameter in words.
fn format_param_value(name: &str, number: f64) -> String {
    if name == LOAD_RATIO {
        format!("{:.0} %", number * 100.0)
    } else if name.ends_with("_bytes") {
        format_value(name, number)
    } else {
        format_number(number)
    }
}

/// Chooses the ticks of the axis: the values of the grid where there is room for them.
fn x_ticks(axis: &Axis, name: &str, series: &[Series<'_>]) -> Vec<(f64, String)> {
    let mut values: Vec<f64> =
        series.iter().flat_map(|one| one.points.iter().map(|point| point.at)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let values = if values.len() <= 6 || axis.log { values } else { axis.ticks(6) };
    let stride = values.len().div_ceil(8).max(1);
    values.into_iter().step_by(stride).map(|x| (x, format_param_value(name, x))).collect()
}

fn draw_series(out: &mut String, series: &Series<'_>, xs: &Axis, ys: &Axis) {
    let (mut path, mut whiskers, mut marks) = (String::new(), String::new(), String::new());
    let mut rings = String::new();
    for (index, CurvePoint { at, figure, saturated }) in series.points.iter().enumerate() {
        let x = xs.position(*at, LEFT, WIDTH - RIGHT);
        let y = |v: f64| ys.position(v, TOP + PLOT, TOP);
        let _ = write!(path, "{}{x:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, y(figure.mean));
        marks.push_str(&series.ink.marker_path(x, y(figure.mean)));
        if *saturated {
            let _ = write!(rings, "M{:.1} {:.1}a6 6 0 1 1 0 .1z", x - 6.0, y(figure.mean));
        }
        if let (Some(p50), Some(p95)) = (figure.p50, figure.p95) {
            let _ = write!(whiskers, "M{x:.1} {:.1}V{:.1}", y(p50), y(p95));
        }
    }
    out.push_str(&series.ink.render_line(&path, 1.8));
    if !whiskers.is_empty() {
        let _ = write!(
            out,
            "<path d=\"{whiskers}\" fill=\"none\" style=\"stroke:{}\" opacity=\".6\"/>",
            series.ink.colour(),
        );
    }
    let _ = write!(out, "<path d=\"{marks}\" {}/>", series.ink.marker_style());
    if !rings.is_empty() {
        let _ = write!(out, "<path class=\"ring\" d=\"{rings}\"/>");
    }
}

fn series_table(name: &str, series: &[Series<'_>]) -> Table {
    let parameter = param_name(name);
    let mut columns = vec![Column::new_label(&parameter), Column::new_text("arm")];
    columns.extend(["mean", "p50", "p95", "n"].map(Column::new_number));
    let mut table = Table::new("The numbers of this chart", columns);
    for (ink, CurvePoint { at, figure, saturated }) in
        series.iter().flat_map(|one| one.points.iter().map(|point| (&one.ink, point)))
    {
        let saturated = if *saturated { ", saturated" } else { "" };
        let [mean, p50, p95, _] = figure_cells(figure);
        table.push(vec![
            format!("{}{saturated}", format_param_value(name, *at)).into(),
            Cell::from(ink.label.clone()).with_simulated(figure.simulated),
            mean,
            p50,
            p95,
            figure.n.to_string().into(),
        ]);
    }
    table
}

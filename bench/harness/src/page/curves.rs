//! Curves over a parameter with three values or more: load curves, and what grows with callers,
//! sizes or lengths.

use std::fmt::Write;

use serde_json::Value;

use super::{
    Shown,
    charts::keys,
    html::{escape, scroll},
    plot::{Axis, Ink, LEFT, RIGHT, TOP, WIDTH, grid_x, grid_y, legend, open},
};
use crate::{
    format::{digits, value},
    plan::{Case, cases},
    rows::Figure,
    suite::{Bench, Metric},
};

/// Fewer points are a table.
const POINTS_MIN: usize = 3;
/// Metrics of one bench that get a chart.
const METRICS_MAX: usize = 6;
const PLOT: f64 = 190.0;

/// One arm over the parameter.
struct Series<'a> {
    ink: Ink,
    points: Vec<(f64, &'a Figure)>,
}

/// A chart for each metric of each bench with such a parameter.
pub(super) fn section(shown: &Shown<'_>, index: usize) -> String {
    let Some(suite) = &shown.suite else { return String::new() };
    let mut out = format!(
        "<section class=\"group\">\n<h2 id=\"curves-{index}\">Over load, callers and sizes</h2>\n\
         <p class=\"soft\">Mean of all valid samples of an arm; the whisker goes from p50 to p95 \
         where the tails hold ten samples.</p>\n"
    );
    let mut drawn = 0;
    for bench in &suite.benches {
        let all = cases(bench, shown.record.effort);
        for (name, group) in groups(bench, &all) {
            let mut figures = String::new();
            let mut inks: Vec<Ink> = Vec::new();
            for metric in bench.metrics.iter().take(METRICS_MAX) {
                let series = series(shown, bench, metric, &name, &group);
                if series.iter().all(|one| one.points.len() < POINTS_MIN) {
                    continue;
                }
                inks = series.iter().map(|one| one.ink.clone()).collect();
                drawn += 1;
                chart(&mut figures, &format!("r{index}p{drawn}"), metric, &name, &series);
                figures.push_str(&numbers(metric, &name, &series));
                figures.push_str("</figure>");
            }
            if figures.is_empty() {
                continue;
            }
            let _ = write!(
                out,
                "<details class=\"case item\" open{}><summary>{}</summary>{}\
                 <div class=\"charts\">{figures}</div></details>\n",
                keys(shown.record, bench, &metrics_of(bench)),
                escape(&title(bench, &name, &group)),
                legend(inks.iter()),
            );
        }
    }
    if drawn == 0 { String::new() } else { out + "</section>\n" }
}

fn metrics_of(bench: &Bench) -> String {
    bench.metrics.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join("\n")
}

/// Cases that differ in one number only, by that number's name.
fn groups<'a>(bench: &Bench, all: &'a [Case]) -> Vec<(String, Vec<(f64, &'a Case)>)> {
    let mut out: Vec<(String, String, Vec<(f64, &Case)>)> = Vec::new();
    for name in bench.grid.keys() {
        for case in all {
            let Some(number) = case.params.get(name).and_then(Value::as_f64) else { continue };
            let start = format!("{name}=");
            let rest: Vec<&str> =
                case.key.split(' ').filter(|part| !part.starts_with(&start)).collect();
            let rest = rest.join(" ");
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

fn title(bench: &Bench, name: &str, group: &[(f64, &Case)]) -> String {
    let start = format!("{name}=");
    let rest: Vec<&str> = group
        .first()
        .map(|(_, case)| case.key.split(' ').filter(|part| !part.starts_with(&start)).collect())
        .unwrap_or_default();
    let rest = rest.join(" ");
    format!("{} over {}{}{rest}", bench.name, words(name), if rest.is_empty() { "" } else { ", " })
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn series<'a>(
    shown: &Shown<'a>,
    bench: &Bench,
    metric: &Metric,
    _name: &str,
    group: &[(f64, &Case)],
) -> Vec<Series<'a>> {
    let twin = bench.arms.first().map(|arm| (arm, true));
    let arms = bench.arms.iter().map(|arm| (arm, false)).chain(twin);
    arms.enumerate()
        .map(|(index, (arm, twin))| {
            let known = shown.record.arms.iter().find(|known| known.name == *arm);
            let label = known.map_or(arm.as_str(), |known| known.label.as_str());
            let point = |(x, case): &(f64, &Case)| {
                let is = |figure: &&Figure| {
                    figure.bench == bench.name
                        && figure.case == case.key
                        && figure.arm == *arm
                        && figure.twin == twin
                        && figure.metric == metric.name
                };
                Some((*x, shown.record.figures.iter().find(is)?))
            };
            let points = group.iter().filter_map(point).collect();
            Series { ink: Ink::new(index, label, twin), points }
        })
        .filter(|series| !series.points.is_empty())
        .collect()
}

fn chart(out: &mut String, id: &str, metric: &Metric, name: &str, series: &[Series<'_>]) {
    let figures = || series.iter().flat_map(|one| one.points.iter());
    let heights = figures().flat_map(|(_, f)| [Some(f.mean), f.p95].into_iter().flatten());
    let (Some(xs), Some(ys)) = (Axis::over(figures().map(|point| point.0)), Axis::over(heights))
    else {
        return;
    };
    let described = series.iter().map(|one| {
        let ends = one.points.first().zip(one.points.last());
        let ends = ends.map_or_else(String::new, |((a, first), (b, last))| {
            format!(
                "{} at {}, {} at {}",
                value(&metric.name, first.mean),
                digits(*a),
                value(&metric.name, last.mean),
                digits(*b)
            )
        });
        format!("{}: {ends}", one.ink.label)
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let caption = format!("{} over {}", metric.name, words(name));
    out.push_str(&open(id, &caption, &described, TOP + PLOT + 24.0));
    for tick in ys.ticks(5) {
        grid_y(out, ys.place(tick, TOP + PLOT, TOP), &value(&metric.name, tick));
    }
    for (tick, text) in x_ticks(&xs, name, series) {
        grid_x(out, xs.place(tick, LEFT, WIDTH - RIGHT), TOP + PLOT, &text);
    }
    for one in series {
        line(out, one, &xs, &ys);
    }
    out.push_str("</svg>");
}

/// The very values of the grid where there is room for them.
fn x_ticks(axis: &Axis, name: &str, series: &[Series<'_>]) -> Vec<(f64, String)> {
    let mut values: Vec<f64> =
        series.iter().flat_map(|one| one.points.iter().map(|point| point.0)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let values = if values.len() <= 6 || axis.log { values } else { axis.ticks(6) };
    let stride = values.len().div_ceil(8).max(1);
    let text = |x: f64| if name.ends_with("_bytes") { value(name, x) } else { digits(x) };
    values.into_iter().step_by(stride).map(|x| (x, text(x))).collect()
}

fn line(out: &mut String, series: &Series<'_>, xs: &Axis, ys: &Axis) {
    let (mut path, mut whiskers, mut marks) = (String::new(), String::new(), String::new());
    for (index, (number, figure)) in series.points.iter().enumerate() {
        let x = xs.place(*number, LEFT, WIDTH - RIGHT);
        let y = |v: f64| ys.place(v, TOP + PLOT, TOP);
        let _ = write!(path, "{}{x:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, y(figure.mean));
        marks.push_str(&series.ink.mark(x, y(figure.mean)));
        if let (Some(p50), Some(p95)) = (figure.p50, figure.p95) {
            let _ = write!(whiskers, "M{x:.1} {:.1}V{:.1}", y(p50), y(p95));
        }
    }
    let colour = series.ink.colour();
    let _ = write!(
        out,
        "<path d=\"{path}\" fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"1.8\"{}/>",
        series.ink.dash(),
    );
    if !whiskers.is_empty() {
        let _ = write!(
            out,
            "<path d=\"{whiskers}\" fill=\"none\" style=\"stroke:{colour}\" opacity=\".6\"/>"
        );
    }
    let _ = write!(out, "<path d=\"{marks}\" {}/>", series.ink.paint());
}

/// The table behind one chart; the figure stays open for it.
fn numbers(metric: &Metric, name: &str, series: &[Series<'_>]) -> String {
    let mut out = format!(
        "<details class=\"data\"><summary>The numbers of this chart</summary>{}<table>\
         <thead><tr><th scope=\"col\">{}</th><th scope=\"col\">arm</th>\
         <th scope=\"col\" class=\"num\">mean</th><th scope=\"col\" class=\"num\">p50</th>\
         <th scope=\"col\" class=\"num\">p95</th><th scope=\"col\" class=\"num\">n</th></tr></thead>\
         <tbody>",
        scroll("The numbers of this chart"),
        escape(&words(name)),
    );
    let show = |number: Option<f64>| {
        number.map_or_else(|| "–".into(), |number| escape(&value(&metric.name, number)))
    };
    for one in series {
        for (x, figure) in &one.points {
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
                 <td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
                digits(*x),
                escape(&one.ink.label),
                super::html::simulated(figure.simulated),
                show(Some(figure.mean)),
                show(figure.p50),
                show(figure.p95),
                figure.n,
            );
        }
    }
    out + "</tbody></table></div></details>"
}

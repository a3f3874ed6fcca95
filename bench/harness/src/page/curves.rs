//! Curves over a parameter with three values or more: load curves with their saturation, and what
//! grows with callers, sizes or lengths.

use std::fmt::Write;

use serde_json::Value;

use super::{
    charts::keys,
    html::{escape, scroll},
    plot::{Axis, Ink, LEFT, RIGHT, TOP, WIDTH, grid_x, grid_y, legend, open},
    view::RecordView,
};
use crate::{
    format::{digits, labels, value},
    plan::{Case, cases},
    rows::row::Figure,
    suite::bench::Bench,
};

/// Fewer points are a table.
const POINTS_MIN: usize = 3;
/// Metrics of one bench that get a chart.
const METRICS_MAX: usize = 9;
/// Drawn beside the suite's own metrics where runs have them.
const ALSO: &[&str] = &["itl_ms"];
/// Below this share of what was offered, a server did not keep up.
const KEPT_UP: f64 = 0.95;
/// The parameter that is a share of the reference arm's saturation.
const LOAD_RATIO: &str = "load_ratio";
const PLOT: f64 = 190.0;

/// One arm over the parameter.
struct Series<'a> {
    ink: Ink,
    points: Vec<Point<'a>>,
}

/// One case of one arm.
struct Point<'a> {
    at: f64,
    figure: &'a Figure,
    /// Fewer answers than were asked for.
    saturated: bool,
}

/// A chart for each metric of each bench with such a parameter.
pub(super) fn section(shown: &RecordView<'_>, index: usize) -> String {
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
            let names = bench.metrics.iter().map(|metric| metric.name.as_str());
            for metric in names.chain(ALSO.iter().copied()).take(METRICS_MAX) {
                let series = series(shown, bench, metric, &group);
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
            let _ = writeln!(
                out,
                "<details class=\"case item\" open{}><summary>{}</summary>{}\
                 <div class=\"charts\">{figures}</div></details>",
                keys(shown, bench, &metrics_of(bench)),
                escape(&title(bench, &name, &group)),
                legend(inks.iter()),
            );
        }
    }
    if drawn == 0 { String::new() } else { out + "</section>\n" }
}

fn metrics_of(bench: &Bench) -> String {
    let names = bench.metrics.iter().map(|metric| metric.name.as_str());
    names.chain(ALSO.iter().copied()).collect::<Vec<_>>().join("\n")
}

/// Cases with their values of one parameter.
type Group<'a> = Vec<(f64, &'a Case)>;

/// Cases that differ in one number only, by that number's name.
fn groups<'a>(bench: &Bench, all: &'a [Case]) -> Vec<(String, Group<'a>)> {
    let mut out: Vec<(String, String, Group<'a>)> = Vec::new();
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
    shown: &RecordView<'a>,
    bench: &Bench,
    metric: &str,
    group: &[(f64, &Case)],
) -> Vec<Series<'a>> {
    let twin = bench.arms.first().map(|arm| (arm, true));
    let arms = bench.arms.iter().map(|arm| (arm, false)).chain(twin);
    arms.enumerate()
        .map(|(index, (arm, twin))| {
            let known = shown.record.arms.iter().find(|known| known.name == *arm);
            let label = known.map_or(arm.as_str(), |known| known.label.as_str());
            let point = |(at, case): &(f64, &Case)| {
                let of = |metric: &str| {
                    let is = |figure: &&Figure| {
                        figure.bench == bench.name
                            && figure.case == case.key
                            && figure.arm == *arm
                            && figure.twin == twin
                            && figure.metric == metric
                    };
                    shown.record.figures.iter().find(is)
                };
                let kept_up = of("rate_per_s")
                    .zip(of("offered_per_s"))
                    .is_none_or(|(rate, offered)| rate.mean >= KEPT_UP * offered.mean);
                Some(Point { at: *at, figure: of(metric)?, saturated: !kept_up })
            };
            let points = group.iter().filter_map(point).collect();
            Series { ink: Ink::new(index, label, twin), points }
        })
        .filter(|series| !series.points.is_empty())
        .collect()
}

fn chart(out: &mut String, id: &str, metric: &str, name: &str, series: &[Series<'_>]) {
    let figures = || series.iter().flat_map(|one| one.points.iter());
    let heights = figures().flat_map(|p| [Some(p.figure.mean), p.figure.p95].into_iter().flatten());
    let (Some(xs), Some(ys)) = (across(figures().map(|point| point.at)), Axis::over(heights))
    else {
        return;
    };
    let described = series.iter().map(|one| {
        let ends = one.points.first().zip(one.points.last());
        let ends = ends.map_or_else(String::new, |(first, last)| {
            format!(
                "{} at {}, {} at {}",
                value(metric, first.figure.mean),
                at(name, first.at),
                value(metric, last.figure.mean),
                at(name, last.at)
            )
        });
        format!("{}: {ends}", one.ink.label)
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let caption = format!("{metric} over {}", words(name));
    out.push_str(&open(id, &caption, &described, TOP + PLOT + 24.0));
    let ticks = ys.ticks(5);
    for (tick, label) in ticks.iter().zip(labels(metric, &ticks)) {
        grid_y(out, ys.place(*tick, TOP + PLOT, TOP), &label);
    }
    for (tick, text) in x_ticks(&xs, name, series) {
        grid_x(out, xs.place(tick, LEFT, WIDTH - RIGHT), TOP + PLOT, &text);
    }
    if name == LOAD_RATIO && figures().any(|point| point.at >= 1.0) {
        let x = xs.place(1.0, LEFT, WIDTH - RIGHT);
        let _ = write!(
            out,
            "<path class=\"saturation\" d=\"M{x:.1} {TOP}V{}\"/><text x=\"{:.1}\" y=\"{}\" \
             text-anchor=\"end\">saturation of the reference</text>",
            TOP + PLOT,
            x - 5.0,
            TOP + 11.0,
        );
    }
    for one in series {
        line(out, one, &xs, &ys);
    }
    out.push_str("</svg>");
    if figures().any(|point| point.saturated) {
        out.push_str(
            "<p class=\"soft\"><small>Circled: saturated, under 95 % of what was offered was \
             answered.</small></p>",
        );
    }
}

/// Loads are read on an even scale, other parameters by their span.
fn across(values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
    let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let low = values.clone().fold(f64::INFINITY, f64::min);
    if low > 0.0 && high <= 1.5 { Axis::from_zero(high) } else { Axis::over(values) }
}

/// A value of the parameter.
fn at(name: &str, number: f64) -> String {
    if name == LOAD_RATIO {
        format!("{:.0} %", number * 100.0)
    } else if name.ends_with("_bytes") {
        value(name, number)
    } else {
        digits(number)
    }
}

/// The very values of the grid where there is room for them.
fn x_ticks(axis: &Axis, name: &str, series: &[Series<'_>]) -> Vec<(f64, String)> {
    let mut values: Vec<f64> =
        series.iter().flat_map(|one| one.points.iter().map(|point| point.at)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let values = if values.len() <= 6 || axis.log { values } else { axis.ticks(6) };
    let stride = values.len().div_ceil(8).max(1);
    values.into_iter().step_by(stride).map(|x| (x, at(name, x))).collect()
}

fn line(out: &mut String, series: &Series<'_>, xs: &Axis, ys: &Axis) {
    let (mut path, mut whiskers, mut marks) = (String::new(), String::new(), String::new());
    let mut rings = String::new();
    for (index, Point { at, figure, saturated }) in series.points.iter().enumerate() {
        let x = xs.place(*at, LEFT, WIDTH - RIGHT);
        let y = |v: f64| ys.place(v, TOP + PLOT, TOP);
        let _ = write!(path, "{}{x:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, y(figure.mean));
        marks.push_str(&series.ink.mark(x, y(figure.mean)));
        if *saturated {
            let _ = write!(rings, "M{:.1} {:.1}a6 6 0 1 1 0 .1z", x - 6.0, y(figure.mean));
        }
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
    if !rings.is_empty() {
        let _ = write!(out, "<path class=\"ring\" d=\"{rings}\"/>");
    }
}

/// The table behind one chart; the figure stays open for it.
fn numbers(metric: &str, name: &str, series: &[Series<'_>]) -> String {
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
        number.map_or_else(|| "–".into(), |number| escape(&value(metric, number)))
    };
    for one in series {
        for Point { at: x, figure, saturated } in &one.points {
            let _ = write!(
                out,
                "<tr><td>{}{}</td><td>{}{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
                 <td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
                escape(&at(name, *x)),
                if *saturated { ", saturated" } else { "" },
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

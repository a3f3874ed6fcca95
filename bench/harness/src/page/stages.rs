//! Where the time of one request goes: its stages, one bar an arm.

use std::{collections::BTreeMap, fmt::Write, sync::LazyLock};

use serde::Deserialize;

use super::{
    charts::keys,
    html::{escape, scroll},
    plot::{Axis, WIDTH, open},
    view::RecordView,
};
use crate::{format::value, plan::cases, samples::Place, suite::bench::Bench};

/// The stages in their order, as data: the rest of connecting and the wait for the first token are
/// what no named part of them claims.
const TEXT: &str = include_str!("../../../suites/stages.toml");

/// `bench/suites/stages.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stages {
    #[serde(rename = "stage")]
    stages: Vec<Stage>,
}

/// `[[stage]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stage {
    label: String,
    #[serde(default)]
    metrics: Vec<String>,
    #[serde(default)]
    holds: Vec<String>,
    #[serde(default)]
    rest_of: Vec<String>,
    since: Option<String>,
}

static STAGES: LazyLock<Vec<Stage>> =
    LazyLock::new(|| toml::from_str::<Stages>(TEXT).map_or_else(|_| Vec::new(), |all| all.stages));

/// A request's whole time, by any of its names; without one there are no stages.
const WHOLE: [&str; 3] = ["total_ms", "e2e_ms", "ttft_ms"];

/// An arm this many times as fast as the slowest could not be seen beside it.
const APART: f64 = 6.0;

const BAR: f64 = 20.0;
const ROW: f64 = BAR + 22.0;
const SIDE: f64 = 6.0;

/// Mean of every stage, in ms, of one arm at one case.
struct Bar {
    label: String,
    stages: Vec<f64>,
    n: usize,
    simulated: bool,
}

impl Bar {
    fn total(&self) -> f64 {
        self.stages.iter().sum()
    }
}

/// One chart for each case whose samples know their stages.
pub(super) fn section(shown: &RecordView<'_>, index: usize) -> String {
    let Some(suite) = &shown.suite else { return String::new() };
    let mut out = format!(
        "<section class=\"group\">\n<h2 id=\"stages-{index}\">Where the time goes</h2>\n\
         <p class=\"soft\">Mean of every stage of a request, in its order; from the scheduled \
         instant to the last byte. Stages that no sample names are not drawn.</p>\n"
    );
    let mut drawn = 0;
    for bench in &suite.benches {
        for case in cases(bench, shown.record.effort) {
            let bars = bars(shown, bench, &case.key);
            let parts = |bar: &Bar| bar.stages.iter().filter(|ms| **ms > 0.0).count();
            if bars.iter().all(|bar| parts(bar) < 2) {
                continue;
            }
            drawn += 1;
            let used = used(&bars);
            let title = [bench.name.as_str(), case.key.as_str()].join(" ");
            let _ = write!(
                out,
                "<details class=\"case item\"{}{}><summary>{}</summary>{}<div class=\"charts wide\">",
                keys(shown, bench, "total_ms"),
                if drawn <= 2 { " open" } else { "" },
                escape(title.trim()),
                legend(&used),
            );
            let most = bars.iter().map(Bar::total).fold(0.0, f64::max);
            let all: Vec<&Bar> = bars.iter().collect();
            let quick: Vec<&Bar> = bars.iter().filter(|bar| bar.total() < most / APART).collect();
            chart(&mut out, &format!("r{index}s{drawn}"), "stages of a request", &used, &all);
            if quick.len() > 1 {
                let caption = "the quick ones again, on an axis of their own";
                chart(&mut out, &format!("r{index}s{drawn}q"), caption, &used, &quick);
            }
            let _ = writeln!(out, "</div>{}</details>", numbers(&used, &bars));
        }
    }
    if drawn == 0 { String::new() } else { out + "</section>\n" }
}

fn bars(shown: &RecordView<'_>, bench: &Bench, case: &str) -> Vec<Bar> {
    let void: Vec<&Place> =
        shown.slices.iter().filter(|s| s.void.is_some()).map(|s| &s.place).collect();
    bench
        .arms
        .iter()
        .filter_map(|arm| {
            let (mut sums, mut n) = (BTreeMap::<&str, f64>::new(), 0usize);
            let mut simulated = false;
            for sample in shown.samples {
                let place = &sample.place;
                let mine = place.bench == bench.name && place.case == case && place.arm == *arm;
                if !mine || place.twin || sample.warmup || sample.error.is_some() {
                    continue;
                }
                if void.contains(&place) {
                    continue;
                }
                n += 1;
                simulated |= sample.simulated;
                for (name, value) in &sample.metrics {
                    *sums.entry(name).or_default() += value;
                }
            }
            let means = sums.into_iter().map(|(name, sum)| (name, sum / n as f64)).collect();
            let known = shown.record.arms.iter().find(|known| known.name == *arm);
            let label = known.map_or(arm.as_str(), |known| known.label.as_str()).to_owned();
            let simulated = simulated || known.is_some_and(|known| known.simulated);
            Some(Bar { label, stages: stages(&means)?, n, simulated })
        })
        .collect()
}

/// From the parts that samples name to parts that add up to the whole.
///
/// `connect_ms` holds `handshake_ms`, which holds the proof; `ttft_ms` holds `connect_ms`;
/// `total_ms` holds `ttft_ms` (MODELS.md, `chat-ttft`).
fn stages(means: &BTreeMap<&str, f64>) -> Option<Vec<f64>> {
    let mean = |name: &String| means.get(name.as_str()).copied();
    WHOLE.iter().find_map(|name| means.get(name))?;
    let mut out: Vec<f64> = Vec::with_capacity(STAGES.len());
    for stage in STAGES.iter() {
        let held: f64 = stage.holds.iter().filter_map(mean).map(|ms| ms.max(0.0)).sum();
        // The whole stage where it does not hold them.
        let named = stage.metrics.iter().find_map(mean);
        let named = named.map(|ms| if ms >= held { ms - held } else { ms });
        let since = |label: &String| STAGES.iter().position(|known| known.label == *label);
        let since = stage.since.as_ref().and_then(since).unwrap_or(0);
        let before: f64 = out.iter().skip(since).sum();
        let rest = || Some(stage.rest_of.iter().find_map(mean)? - before);
        out.push(named.or_else(rest).unwrap_or(0.0).max(0.0));
    }
    Some(out)
}

/// Stages that a case has, in order: their places are the numbers of the segments.
fn used(bars: &[Bar]) -> Vec<usize> {
    let has = |index: &usize| bars.iter().any(|bar| bar.stages[*index] > 0.0);
    (0..STAGES.len()).filter(has).collect()
}

/// Numbered as the segments are.
fn legend(used: &[usize]) -> String {
    let mut out = String::from("<ul class=\"legend stages\">");
    for (number, index) in used.iter().enumerate() {
        let _ = write!(
            out,
            "<li><i class=\"s{index}\" aria-hidden=\"true\">{}</i> {}</li>",
            number + 1,
            escape(&STAGES[*index].label),
        );
    }
    out + "</ul>"
}

fn chart(out: &mut String, id: &str, caption: &str, used: &[usize], bars: &[&Bar]) {
    let most = bars.iter().map(|bar| bar.total()).fold(0.0, f64::max);
    let Some(axis) = Axis::from_zero(most) else { return };
    let bottom = 6.0 + ROW * bars.len() as f64;
    let described =
        bars.iter().map(|bar| format!("{}: {} in all", bar.label, value("_ms", bar.total())));
    let described = described.collect::<Vec<_>>().join("; ");
    out.push_str(&open(id, caption, &described, bottom + 22.0));
    for tick in axis.ticks(5) {
        let x = axis.place(tick, SIDE, WIDTH - SIDE);
        let anchor = if tick == 0.0 {
            "start"
        } else if x > WIDTH - 30.0 {
            "end"
        } else {
            "middle"
        };
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} 6V{bottom:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"{anchor}\">{}</text>",
            bottom + 15.0,
            if tick == 0.0 { "0".into() } else { escape(&value("_ms", tick)) },
        );
    }
    for (row, bar) in bars.iter().enumerate() {
        let y = 6.0 + ROW * row as f64;
        let simulated = if bar.simulated { ", simulated" } else { "" };
        let _ = write!(
            out,
            "<text class=\"name\" x=\"{SIDE}\" y=\"{:.1}\">{}: {}{simulated}</text>",
            y + 12.0,
            escape(&bar.label),
            escape(&value("_ms", bar.total())),
        );
        let mut from = 0.0;
        for (index, ms) in bar.stages.iter().enumerate().filter(|(_, ms)| **ms > 0.0) {
            let left = axis.place(from, SIDE, WIDTH - SIDE);
            from += ms;
            let width = axis.place(from, SIDE, WIDTH - SIDE) - left;
            let number = used.iter().position(|known| *known == index).unwrap_or_default() + 1;
            segment(out, &Segment { stage: index, number, left, top: y + 17.0, width });
        }
    }
    out.push_str("</svg></figure>");
}

/// One stage of one bar, in pixels; `number` is its place among the stages that are drawn.
struct Segment {
    stage: usize,
    number: usize,
    left: f64,
    top: f64,
    width: f64,
}

fn segment(out: &mut String, segment: &Segment) {
    let Segment { stage, number, left, top, width } = *segment;
    let _ = write!(
        out,
        "<rect class=\"s{stage}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
        width.max(0.6),
    );
    if width >= 16.0 {
        let _ = write!(
            out,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + width / 2.0,
            top + 14.5,
            number,
        );
    }
}

fn numbers(used: &[usize], bars: &[Bar]) -> String {
    let mut out = format!(
        "<details class=\"data\"><summary>The numbers of this chart</summary>{}\
         <table class=\"cards\"><thead><tr><th scope=\"col\">arm</th>\
         <th scope=\"col\" class=\"num\">samples</th>",
        scroll("The numbers of this chart"),
    );
    for index in used {
        let _ =
            write!(out, "<th scope=\"col\" class=\"num\">{}</th>", escape(&STAGES[*index].label));
    }
    out.push_str("<th scope=\"col\" class=\"num\">whole</th></tr></thead><tbody>");
    for bar in bars {
        let _ = write!(
            out,
            "<tr><td class=\"layer\">{}{}</td><td class=\"num\" data-name=\"samples\">{}</td>",
            escape(&bar.label),
            super::html::simulated(bar.simulated),
            bar.n,
        );
        for index in used {
            let _ = write!(
                out,
                "<td class=\"num\" data-name=\"{}\">{}</td>",
                escape(&STAGES[*index].label),
                escape(&value("_ms", bar.stages[*index])),
            );
        }
        let _ = write!(
            out,
            "<td class=\"num\" data-name=\"whole\">{}</td></tr>",
            escape(&value("_ms", bar.total()))
        );
    }
    out + "</tbody></table></div></details>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, f64)]) -> Vec<f64> {
        stages(&pairs.iter().copied().collect()).unwrap()
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let chat = [
            ("total_ms", 10.0),
            ("ttft_ms", 7.0),
            ("connect_ms", 5.0),
            ("handshake_ms", 4.0),
            ("quote_ms", 1.0),
            ("collateral_ms", 0.5),
            ("appraisal_ms", 0.5),
        ];
        let parts = of(&chat);
        assert!((parts.iter().sum::<f64>() - 10.0).abs() < 1e-9);
        assert_eq!(parts[3], 2.0, "the handshake without the proof");
        assert_eq!(parts[7], 1.0, "TCP and tunnel, which the arm does not name");
        assert_eq!((parts[10], parts[11]), (2.0, 3.0));
    }

    #[test]
    fn stages_that_a_load_names_stand_for_themselves() {
        let load = [
            ("total_ms", 100.0),
            ("ttft_ms", 40.0),
            ("dns_ms", 1.0),
            ("tcp_ms", 2.0),
            ("tls_ms", 7.0),
            ("queue_ms", 10.0),
            ("prefill_ms", 20.0),
            ("decode_ms", 60.0),
        ];
        let parts = of(&load);
        let rest = [1.0, 2.0, 7.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 0.0, 60.0];
        assert_eq!((parts[0], &parts[1..]), (0.0, &rest[..]));
    }

    #[test]
    fn samples_without_a_whole_have_no_stages() {
        assert!(stages(&BTreeMap::from([("connect_ms", 3.0)])).is_none());
    }
}

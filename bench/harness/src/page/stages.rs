//! The stages of a request, which show where its time goes: one bar for each arm.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::{
    plot::{Axis, Caption, CaseCharts, WIDTH, bench_attributes, render_figure_start},
    tables::ABSENT,
    view::RecordView,
    vocabulary::case_title,
};
use crate::{
    document::{Block, Cell, Column, Section, Table, html::escape},
    format::format_value,
    plan::cases,
    samples::SamplePlace,
    suite::bench::Bench,
};

/// The stages in their order, as data. What no named part claims is the rest of connecting, or of
/// the wait for the first token.
const TEXT: &str = include_str!("../../../suites/stages.toml");

/// The file `bench/suites/stages.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StagesFile {
    #[serde(rename = "stage")]
    stages: Vec<Stage>,
}

/// A `[[stage]]` of that file.
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

static STAGES: LazyLock<Vec<Stage>> = LazyLock::new(|| {
    toml::from_str::<StagesFile>(TEXT).map_or_else(|_| Vec::new(), |all| all.stages)
});

/// The names that the whole time of a request may have; without one there are no stages.
const WHOLE_METRICS: [&str; 3] = ["total_ms", "e2e_ms", "ttft_ms"];

/// The factor by which an arm is faster than the slowest and could then not be seen next to it.
const APART: f64 = 6.0;

const BAR: f64 = 20.0;
const ROW: f64 = BAR + 22.0;
const SIDE: f64 = 6.0;

/// The mean of every stage, in ms, of one arm at one case; `None` for a stage that the arm does not have.
struct StageBar {
    label: String,
    stages: Vec<Option<f64>>,
    n: usize,
    simulated: bool,
}

impl StageBar {
    fn total(&self) -> f64 {
        self.stages.iter().flatten().sum()
    }
}

/// Draws one chart for each case whose samples know their stages.
pub(super) fn stages_section(view: &RecordView<'_>, number: usize) -> Section {
    let mut blocks = Vec::new();
    for bench in view.suite.iter().flat_map(|suite| &suite.benches) {
        for case in cases(bench, view.record.effort) {
            let bars = collect_bars(view, bench, &case.key);
            let parts = |bar: &StageBar| bar.stages.iter().flatten().count();
            if bars.iter().all(|bar| parts(bar) < 2) {
                continue;
            }
            let drawn = blocks.len() + 1;
            let used = used_stages(&bars);
            let most = bars.iter().map(StageBar::total).fold(0.0, f64::max);
            let all: Vec<&StageBar> = bars.iter().collect();
            let quick: Vec<&StageBar> =
                bars.iter().filter(|bar| bar.total() < most / APART).collect();
            let id = format!("r{number}s{drawn}");
            let mut figures =
                draw_chart(&id, "stages of a request, one bar for each arm", &used, &all);
            if quick.len() > 1 {
                let caption = "the fast arms again, on a larger scale";
                figures += &draw_chart(&format!("{id}q"), caption, &used, &quick);
            }
            let charts = CaseCharts {
                attributes: bench_attributes(view, bench, "total_ms"),
                is_open: drawn <= 2,
                title: case_title(bench, &case),
                legend: render_legend(&used),
                figures,
                class: "charts wide",
                numbers: Some(numbers_table(&used, &bars)),
            };
            blocks.push(Block::Markup(charts.render()));
        }
    }
    Section {
        id: format!("stages-{number}"),
        heading: "Where the time goes".to_owned(),
        about: "The mean duration of each stage of a request, in order, from the scheduled start to the last \
                byte. The numbers in the bars are those of the stages in the legend."
            .to_owned(),
        blocks,
    }
}

fn collect_bars(view: &RecordView<'_>, bench: &Bench, case: &str) -> Vec<StageBar> {
    let void: Vec<&SamplePlace> =
        view.slices.iter().filter(|s| s.void.is_some()).map(|s| &s.place).collect();
    bench
        .arms
        .iter()
        .filter_map(|arm| {
            let (mut sums, mut n) = (BTreeMap::<&str, f64>::new(), 0usize);
            let mut simulated = false;
            for sample in view.samples {
                let place = &sample.place;
                let mine = place.bench == bench.name && place.case == case && place.arm == *arm;
                let is_valid = !sample.warmup && sample.error.is_none() && !void.contains(&place);
                if !mine || place.twin || !is_valid {
                    continue;
                }
                n += 1;
                simulated |= sample.simulated;
                for (name, value) in &sample.metrics {
                    *sums.entry(name).or_default() += value;
                }
            }
            let means = sums.into_iter().map(|(name, sum)| (name, sum / n as f64)).collect();
            let known = view.record.arms.iter().find(|known| known.name == *arm);
            let simulated = simulated || known.is_some_and(|known| known.simulated);
            let label = view.arm_label(arm).to_owned();
            Some(StageBar { label, stages: stage_means(&means)?, n, simulated })
        })
        .collect()
}

/// Turns the parts that samples name into parts that add up to the whole.
///
/// `connect_ms` holds `handshake_ms`, which holds the proof; `ttft_ms` holds `connect_ms`;
/// `total_ms` holds `ttft_ms` (MODELS.md, `chat-ttft`).
///
/// `None` is a stage that no sample names, or that took no time at all.
fn stage_means(means: &BTreeMap<&str, f64>) -> Option<Vec<Option<f64>>> {
    let mean = |name: &String| means.get(name.as_str()).copied();
    WHOLE_METRICS.iter().find_map(|name| means.get(name))?;
    let mut out: Vec<Option<f64>> = Vec::with_capacity(STAGES.len());
    for stage in STAGES.iter() {
        let held: f64 = stage.holds.iter().filter_map(mean).map(|ms| ms.max(0.0)).sum();
        // The whole stage counts where its time is shorter than what it should hold.
        let named = stage.metrics.iter().find_map(mean);
        let named = named.map(|ms| if ms >= held { ms - held } else { ms });
        let since = |label: &String| STAGES.iter().position(|known| known.label == *label);
        let since = stage.since.as_ref().and_then(since).unwrap_or(0);
        let before: f64 = out.iter().skip(since).flatten().sum();
        let rest = || Some(stage.rest_of.iter().find_map(mean)? - before);
        out.push(named.or_else(rest).filter(|ms| *ms > 0.0));
    }
    Some(out)
}

/// Lists the stages that a case has, in order: their places are the numbers of the segments.
fn used_stages(bars: &[StageBar]) -> Vec<usize> {
    let has = |index: &usize| bars.iter().any(|bar| bar.stages[*index].is_some());
    (0..STAGES.len()).filter(has).collect()
}

/// Writes the names of the stages, numbered as their segments are.
fn render_legend(used: &[usize]) -> String {
    let item = |(at, index): (usize, &usize)| {
        format!(
            "<li><i class=\"s{index}\" aria-hidden=\"true\">{}</i> {}</li>",
            at + 1,
            escape(&STAGES[*index].label),
        )
    };
    let items: String = used.iter().enumerate().map(item).collect();
    format!("<ul class=\"legend stages\">{items}</ul>")
}

fn draw_chart(id: &str, caption: &str, used: &[usize], bars: &[&StageBar]) -> String {
    let most = bars.iter().map(|bar| bar.total()).fold(0.0, f64::max);
    let Some(axis) = Axis::from_zero(most) else { return String::new() };
    let bottom = 6.0 + ROW * bars.len() as f64;
    let described = bars
        .iter()
        .map(|bar| format!("{}: {} in all", bar.label, format_value("_ms", bar.total())));
    let described = described.collect::<Vec<_>>().join("; ");
    let caption = Caption { text: caption.to_owned(), metric: "", described };
    let mut out = render_figure_start(id, &caption, bottom + 22.0);
    for tick in axis.ticks(5) {
        let x = axis.position(tick, SIDE, WIDTH - SIDE);
        let (anchor, name) = match tick {
            0.0 => ("start", "0".to_owned()),
            _ if x > WIDTH - 30.0 => ("end", format_value("_ms", tick)),
            _ => ("middle", format_value("_ms", tick)),
        };
        out += &format!(
            "<path class=\"grid\" d=\"M{x:.1} 6V{bottom:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"{anchor}\">{}</text>",
            bottom + 15.0,
            escape(&name),
        );
    }
    for (row, bar) in bars.iter().enumerate() {
        out += &draw_bar(bar, used, &axis, 6.0 + ROW * row as f64);
    }
    out + "</svg></figure>"
}

/// Draws the name of a bar and its segments, numbered by their places among the stages that are
/// drawn.
fn draw_bar(bar: &StageBar, used: &[usize], axis: &Axis, y: f64) -> String {
    let simulated = if bar.simulated { ", simulated" } else { "" };
    let mut out = format!(
        "<text class=\"name\" x=\"{SIDE}\" y=\"{:.1}\">{}: {}{simulated}</text>",
        y + 12.0,
        escape(&bar.label),
        escape(&format_value("_ms", bar.total())),
    );
    let mut from = 0.0;
    for (at, index) in used.iter().enumerate() {
        let Some(ms) = bar.stages[*index] else { continue };
        let left = axis.position(from, SIDE, WIDTH - SIDE);
        from += ms;
        let width = axis.position(from, SIDE, WIDTH - SIDE) - left;
        out += &format!(
            "<rect class=\"s{index}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            y + 17.0,
            width.max(0.6),
        );
        if width >= 16.0 {
            out += &format!(
                "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left + width / 2.0,
                y + 31.5,
                at + 1,
            );
        }
    }
    out
}

fn numbers_table(used: &[usize], bars: &[StageBar]) -> Table {
    let mut columns = vec![Column::new_label("arm"), Column::new_number("samples")];
    columns.extend(used.iter().map(|index| Column::new_number(&STAGES[*index].label)));
    columns.push(Column::new_number("whole"));
    let mut table = Table::new("The numbers of this chart", columns);
    for bar in bars {
        let mut cells = vec![
            Cell::from(bar.label.clone()).with_simulated(bar.simulated),
            bar.n.to_string().into(),
        ];
        let numbers = used.iter().map(|index| bar.stages[*index]).chain([Some(bar.total())]);
        cells.extend(numbers.map(|ms| match ms {
            Some(ms) => Cell::from(format_value("_ms", ms)).with_sort_key(ms),
            None => ABSENT.into(),
        }));
        table.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_of(pairs: &[(&'static str, f64)]) -> Vec<Option<f64>> {
        stage_means(&pairs.iter().copied().collect()).unwrap()
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
        let parts = parts_of(&chat);
        assert!((parts.iter().flatten().sum::<f64>() - 10.0).abs() < 1e-9);
        assert_eq!(parts[3], Some(2.0), "the handshake without the proof");
        assert_eq!(parts[7], Some(1.0), "TCP and tunnel, which the arm does not name");
        assert_eq!((parts[10], parts[11]), (Some(2.0), Some(3.0)));
    }

    #[test]
    fn a_stage_that_took_no_time_is_absent_and_never_zero() {
        let standard =
            [("total_ms", 10.0), ("ttft_ms", 7.0), ("handshake_ms", 4.0), ("quote_ms", 0.0)];
        let parts = parts_of(&standard);
        assert_eq!((parts[3], parts[4]), (Some(4.0), None));
        let absent = StageBar { label: "TLS".into(), stages: parts, n: 1, simulated: false };
        let table = numbers_table(&[3, 4], &[absent]);
        let row = table.rows().next().unwrap();
        let texts: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(texts, ["TLS", "1", "4.00 ms", "absent", "10.0 ms"]);
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
        let parts = parts_of(&load);
        let rest = [1.0, 2.0, 7.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 0.0, 60.0];
        let rest = rest.map(|ms| (ms > 0.0).then_some(ms));
        assert_eq!((parts[0], &parts[1..]), (None, &rest[..]));
    }

    #[test]
    fn samples_without_a_whole_have_no_stages() {
        assert!(stage_means(&BTreeMap::from([("connect_ms", 3.0)])).is_none());
    }
}

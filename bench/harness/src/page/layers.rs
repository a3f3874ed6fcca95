//! The content of the records by layer: rows, figures, and what is missing.

use super::{layer::Layer, view::RecordView};
use crate::{
    format::{capitalise, fill_label, format_value},
    plan::{block_count, cases},
    record::Record,
    rows::row::{PooledFigure, Row},
    suite::bench::Bench,
    utc::format_utc,
};

/// A row, and the record that it is in.
#[derive(Clone, Copy)]
pub(crate) struct RowView<'a> {
    pub(crate) view: &'a RecordView<'a>,
    /// The number of the record in the report.
    pub(crate) number: usize,
    pub(crate) row: &'a Row,
}

/// The rows and figures of all records about one layer.
pub(crate) struct LayerRows<'a> {
    pub(crate) layer: Layer,
    /// The headline rows, without A/A rows.
    pub(crate) rows: Vec<RowView<'a>>,
    /// The figures that have no other arm to be compared with, as sentences.
    pub(crate) figures: Vec<String>,
    /// The benches and suites that were planned and not measured, with the reasons.
    pub(crate) missing: Vec<String>,
}

impl LayerRows<'_> {
    /// True where there is a row or a figure.
    pub(crate) fn is_measured(&self) -> bool {
        !self.rows.is_empty() || !self.figures.is_empty()
    }
}

/// A suite of a run of many that has no record, and the reason.
#[derive(Clone, Debug)]
pub(crate) struct MissingSuite {
    pub(crate) suite: String,
    pub(crate) reason: String,
}

/// Collects every layer, empty ones included, except those that no suite measures.
pub(crate) fn collect_layers<'a>(
    views: &'a [RecordView<'a>],
    absent: &[MissingSuite],
) -> Vec<LayerRows<'a>> {
    let select = |layer: Layer| {
        let (mut rows, mut figures) = (Vec::new(), Vec::new());
        let mine = |one: &&MissingSuite| Layer::from_suite(&one.suite) == layer;
        let mut missing: Vec<String> = absent
            .iter()
            .filter(mine)
            .map(|one| format!("suite {}: {}", one.suite, one.reason))
            .collect();
        for (number, view) in views.iter().enumerate() {
            let mine = |row: &&Row| {
                row.headline && !row.twin && view.layer(&row.bench, &row.model) == layer
            };
            let record = view.record;
            rows.extend(record.rows.iter().filter(mine).map(|row| RowView { view, number, row }));
            // Where several records are on a page, each sentence says whose figure it is.
            let source = match views.len() {
                1 => String::new(),
                _ => format!(" ({}, {})", record.suite.name, format_utc(record.started_unix_s)),
            };
            let sentences = single_arm_figures(view, layer).into_iter();
            figures.extend(sentences.map(|sentence| sentence + &source));
            missing.extend(missing_benches(view, layer));
        }
        missing.dedup();
        LayerRows { layer, rows, figures, missing }
    };
    let has_text = |layer: &LayerRows<'_>| {
        layer.is_measured() || !layer.missing.is_empty() || layer.layer.suite().is_some()
    };
    Layer::all().map(select).filter(has_text).collect()
}

/// Writes the headline figures of benches with one arm as sentences.
fn single_arm_figures(view: &RecordView<'_>, layer: Layer) -> Vec<String> {
    let Some(suite) = &view.suite else { return Vec::new() };
    let mut out = Vec::new();
    let mine =
        |bench: &&Bench| bench.arms.len() == 1 && view.layer(&bench.name, &bench.model) == layer;
    for bench in suite.benches.iter().filter(mine) {
        for case in cases(bench, view.record.effort) {
            for metric in bench.metrics.iter().filter(|metric| metric.headline) {
                let is = |figure: &&PooledFigure| {
                    figure.bench == bench.name
                        && figure.case == case.key
                        && figure.metric == metric.name
                        && !figure.twin
                };
                let Some(figure) = view.record.figures.iter().find(is) else { continue };
                let simulated = if figure.simulated { ", simulated" } else { "" };
                out.push(format!(
                    "{}: {}, the mean of {}{simulated}; not compared with anything.",
                    capitalise(&fill_label(&metric.label, &case.params), view.program_names()),
                    format_value(&metric.name, figure.mean),
                    figure.n,
                ));
            }
        }
    }
    out
}

/// Lists benches that failed or gave no row, arms that were left out, and benches that this effort
/// does not run, each with its reason.
fn missing_benches(view: &RecordView<'_>, layer: Layer) -> Vec<String> {
    let Some(suite) = &view.suite else { return Vec::new() };
    let record = view.record;
    let mut out = Vec::new();
    let mine = |bench: &&Bench| view.layer(&bench.name, &bench.model) == layer;
    for bench in suite.benches.iter().filter(mine) {
        if let Some(not) = record.not_run.iter().find(|not| not.bench == bench.name) {
            out.push(format!("{}: {}", bench.name, not.reason));
        } else if block_count(bench, record.effort, None) == 0 {
            out.push(format!("{}: in a full run only", bench.name));
        } else if !record.rows.iter().any(|row| row.bench == bench.name) {
            out.extend(
                reason_without_rows(record, bench).map(|why| format!("{}: {why}", bench.name)),
            );
        }
        out.extend(describe_left_out_arms(record, &bench.name));
    }
    out
}

/// Returns the reason why a bench that was planned has no row.
fn reason_without_rows(record: &Record, bench: &Bench) -> Option<String> {
    let voids: Vec<_> = record.voids.iter().filter(|void| void.bench == bench.name).collect();
    match (voids.first(), &record.partial) {
        (Some(first), _) => {
            Some(format!("{} runs were excluded, the first: {}", voids.len(), first.reason))
        }
        (None, Some(partial)) => Some(partial.clone()),
        _ => None,
    }
}

/// Names the arms of one bench that were left out, in one sentence, each with its reason.
pub(super) fn describe_left_out_arms(record: &Record, bench: &str) -> Option<String> {
    let reasons: Vec<String> = record
        .arms
        .iter()
        .filter(|arm| arm.bench == bench && !arm.twin)
        .filter_map(|arm| Some(format!("{}: {}", arm.label, arm.given_up.as_ref()?)))
        .collect();
    match reasons.as_slice() {
        [] => None,
        [one] => Some(format!("{bench}, {one}")),
        many => Some(format!("{bench}, {} arms: {}", many.len(), many.join("; "))),
    }
}

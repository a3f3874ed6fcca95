//! Layers: what a row is about, in words of somebody who buys a machine.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Shown, html::utc, words::capital};
use crate::{
    format::{label, value},
    plan::{blocks, cases},
    record::Record,
    rows::{Figure, Row},
    suite::{Bench, Suite},
    suites::embedded_suites,
};

/// The layers in the page's order, as data.
const TEXT: &str = include_str!("../../../suites/layers.toml");

/// The layer of rows whose suite names none.
const OTHER: &str = "other";

/// `bench/suites/layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    #[serde(rename = "layer")]
    layers: Vec<LayerText>,
}

/// `[[layer]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerText {
    id: String,
    title: String,
    question: String,
    suite: Option<String>,
}

static LAYERS: LazyLock<Vec<LayerText>> =
    LazyLock::new(|| toml::from_str::<Layers>(TEXT).map_or_else(|_| Vec::new(), |all| all.layers));

/// One part of the page: the place of its text in `bench/suites/layers.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer(usize);

impl Layer {
    /// Every layer, in the order of the page.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..LAYERS.len()).map(Self)
    }

    /// The layer of this id; the last one where the id is unknown or absent.
    fn by_id(id: Option<&str>) -> Self {
        let place = |id: &str| LAYERS.iter().position(|layer| layer.id == id);
        Self(id.and_then(place).or_else(|| place(OTHER)).unwrap_or_default())
    }

    /// The layer of a bench: what `suite` says of it, else what today's suites say of the
    /// definition, else that of the suite.
    pub(super) fn of(suite: Option<&Suite>, bench: &str, model: &str) -> Self {
        let own = suite.and_then(|suite| suite.layer_of(suite.bench(bench)?));
        let defined = || {
            let mut benches = embedded_suites()
                .iter()
                .flat_map(|suite| suite.benches.iter().map(move |bench| (suite, bench)));
            let (suite, bench) = benches.find(|(_, bench)| bench.model == model)?;
            suite.layer_of(bench)
        };
        let of_suite = || suite.and_then(|suite| suite.suite.layer.as_deref());
        Self::by_id(own.or_else(defined).or_else(of_suite))
    }

    /// The layer of a suite that has no record.
    fn of_suite(name: &str) -> Self {
        let suite = embedded_suites().iter().find(|suite| suite.suite.name == name);
        Self::by_id(suite.and_then(|suite| suite.suite.layer.as_deref()))
    }

    fn text(self) -> Option<&'static LayerText> {
        LAYERS.get(self.0)
    }

    /// The name in links and filters.
    pub(crate) fn id(self) -> &'static str {
        self.text().map_or(OTHER, |layer| &layer.id)
    }

    /// The heading.
    pub(crate) fn title(self) -> &'static str {
        self.text().map_or("", |layer| &layer.title)
    }

    /// What a buyer asks of it.
    pub(crate) fn question(self) -> &'static str {
        self.text().map_or("", |layer| &layer.question)
    }

    /// The suite that would measure it, where no record does.
    pub(crate) fn suite(self) -> Option<&'static str> {
        self.text()?.suite.as_deref()
    }
}

/// A row and the record it stands in.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) shown: &'a Shown<'a>,
    pub(crate) index: usize,
    pub(crate) row: &'a Row,
}

/// One layer over all records.
pub(crate) struct LayerRows<'a> {
    pub(crate) layer: Layer,
    /// Headline rows but for A/A.
    pub(crate) rows: Vec<Said<'a>>,
    /// What has no other arm to be compared with: figures, as sentences.
    pub(crate) figures: Vec<String>,
    /// What was planned and not measured, and why.
    pub(crate) missing: Vec<String>,
}

impl LayerRows<'_> {
    /// Whether there is anything to say.
    pub(crate) fn is_measured(&self) -> bool {
        !self.rows.is_empty() || !self.figures.is_empty()
    }
}

/// A suite of a run of many that has no record, and why.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) suite: String,
    pub(crate) reason: String,
}

/// Every layer, empty ones among them, but for those that no suite measures.
pub(crate) fn layers<'a>(shown: &'a [Shown<'a>], absent: &[Absent]) -> Vec<LayerRows<'a>> {
    let of = |layer: Layer| {
        let (mut rows, mut figures) = (Vec::new(), Vec::new());
        let mine = |one: &&Absent| Layer::of_suite(&one.suite) == layer;
        let mut missing: Vec<String> = absent
            .iter()
            .filter(mine)
            .map(|one| format!("suite {}: {}", one.suite, one.reason))
            .collect();
        for (index, one) in shown.iter().enumerate() {
            let mine = |row: &&Row| {
                row.headline && !row.twin && one.layer(&row.bench, &row.model) == layer
            };
            rows.extend(one.record.rows.iter().filter(mine).map(|row| Said {
                shown: one,
                index,
                row,
            }));
            // Where several records are on a page, each sentence says whose figure it is.
            let record = one.record;
            let of = match shown.len() {
                1 => String::new(),
                _ => format!(" ({}, {})", record.suite.name, utc(record.started_unix_s)),
            };
            figures.extend(alone(one, layer).into_iter().map(|figure| figure + &of));
            missing.extend(not_measured(one, layer));
        }
        missing.dedup();
        LayerRows { layer, rows, figures, missing }
    };
    let kept = |layer: &LayerRows<'_>| {
        layer.is_measured() || !layer.missing.is_empty() || layer.layer.suite().is_some()
    };
    Layer::all().map(of).filter(kept).collect()
}

/// Headline figures of benches with one arm.
fn alone(shown: &Shown<'_>, layer: Layer) -> Vec<String> {
    let Some(suite) = &shown.suite else { return Vec::new() };
    let mut out = Vec::new();
    let mine =
        |bench: &&Bench| bench.arms.len() == 1 && shown.layer(&bench.name, &bench.model) == layer;
    for bench in suite.benches.iter().filter(mine) {
        for case in cases(bench, shown.record.effort) {
            for metric in bench.metrics.iter().filter(|metric| metric.headline) {
                let is = |figure: &&Figure| {
                    figure.bench == bench.name
                        && figure.case == case.key
                        && figure.metric == metric.name
                        && !figure.twin
                };
                let Some(figure) = shown.record.figures.iter().find(is) else { continue };
                let simulated = if figure.simulated { ", simulated" } else { "" };
                out.push(format!(
                    "{}: {}, the mean of {}{simulated}; nothing stands beside it.",
                    capital(&label(&metric.label, &case.params), shown.names()),
                    value(&metric.name, figure.mean),
                    figure.n,
                ));
            }
        }
    }
    out
}

/// Benches that failed or gave no row, arms that were left out, benches that this effort does not
/// run.
fn not_measured(shown: &Shown<'_>, layer: Layer) -> Vec<String> {
    let Some(suite) = &shown.suite else { return Vec::new() };
    let record = shown.record;
    let mut out = Vec::new();
    let mine = |bench: &&Bench| shown.layer(&bench.name, &bench.model) == layer;
    for bench in suite.benches.iter().filter(mine) {
        if let Some(not) = record.not_run.iter().find(|not| not.bench == bench.name) {
            out.push(format!("{}: {}", bench.name, not.reason));
        } else if blocks(bench, record.effort, None) == 0 {
            out.push(format!("{}: in a full run only", bench.name));
        } else if !record.rows.iter().any(|row| row.bench == bench.name) {
            out.extend(without_rows(record, bench).map(|why| format!("{}: {why}", bench.name)));
        }
        out.extend(left_out(record, &bench.name));
    }
    out
}

/// Why a bench that was planned has no row.
fn without_rows(record: &Record, bench: &Bench) -> Option<String> {
    let voids: Vec<_> = record.voids.iter().filter(|void| void.bench == bench.name).collect();
    match (voids.first(), &record.partial) {
        (Some(first), _) => Some(format!("{} runs void, the first: {}", voids.len(), first.reason)),
        (None, Some(partial)) => Some(partial.clone()),
        _ => None,
    }
}

/// Arms of one bench that were left out, in one sentence, each with its reason.
pub(super) fn left_out(record: &Record, bench: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The layer's id of a row by its suite's name, its bench and its definition.
    fn layer(suite: &str, bench: &str, model: &str) -> &'static str {
        let suite = embedded_suites().iter().find(|known| known.suite.name == suite);
        Layer::of(suite, bench, model).id()
    }

    #[test]
    fn a_row_belongs_to_the_layer_of_its_suite_else_of_its_definition() {
        assert_eq!(layer("storage", "new here", "anything"), "storage");
        assert_eq!(layer("main", "chat/new", "chat-ttft"), "chat");
        assert_eq!(layer("main", "nested", "nested-transfer"), "transport");
        assert_eq!(layer("main", "verify", "quote-verify"), "attestation");
        assert_eq!(layer("main", "gone since", "quote-verify"), "attestation");
        assert_eq!(layer("mine.toml", "one", "zk-stage"), "proofs");
        assert_eq!(layer("mine.toml", "one", "mine"), "other");
        assert_eq!(Layer::of_suite("verify").id(), "attestation");
    }

    #[test]
    fn every_layer_has_its_own_id() {
        let mut ids: Vec<&str> = Layer::all().map(Layer::id).collect();
        assert_eq!(ids.last(), Some(&OTHER));
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn every_bench_names_a_layer_of_the_page_and_every_layer_a_suite_that_is_there() {
        for suite in embedded_suites() {
            for bench in &suite.benches {
                let id = suite.layer_of(bench);
                let known = Layer::all().any(|layer| Some(layer.id()) == id);
                assert!(known, "{}: {}: {id:?}", suite.suite.name, bench.name);
            }
        }
        for layer in Layer::all() {
            let known = |name| embedded_suites().iter().any(|suite| suite.suite.name == name);
            assert!(layer.suite().is_none_or(known), "{}", layer.id());
        }
    }
}

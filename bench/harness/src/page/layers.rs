//! Layers: what a row is about, in words of somebody who buys a machine.

use super::{Shown, html::utc, words::capital};
use crate::{
    Record,
    format::{label, value},
    rows::{Figure, Row},
    suite::Bench,
};

/// From the metal up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    Cpu,
    Memory,
    Storage,
    Network,
    Jitter,
    Transport,
    Attestation,
    Adapters,
    Proofs,
    Chat,
    Instrument,
    Other,
}

/// In the order of the page.
pub(crate) const LAYERS: &[Layer] = &[
    Layer::Chat,
    Layer::Transport,
    Layer::Attestation,
    Layer::Adapters,
    Layer::Proofs,
    Layer::Cpu,
    Layer::Memory,
    Layer::Storage,
    Layer::Network,
    Layer::Jitter,
    Layer::Instrument,
    Layer::Other,
];

/// Suites that are one layer whole.
const BY_SUITE: &[(&str, Layer)] = &[
    ("cpu", Layer::Cpu),
    ("memory", Layer::Memory),
    ("storage", Layer::Storage),
    ("network", Layer::Network),
    ("jitter", Layer::Jitter),
    ("gateway", Layer::Transport),
    ("nested", Layer::Transport),
    ("llm", Layer::Chat),
    ("adapters", Layer::Adapters),
    ("zk", Layer::Proofs),
    ("tls-claims", Layer::Proofs),
    ("selftest", Layer::Instrument),
    ("empty", Layer::Instrument),
    ("peers", Layer::Instrument),
];

/// Definitions by how their id begins; the first that fits.
const BY_MODEL: &[(&str, Layer)] = &[
    ("chat", Layer::Chat),
    ("llm", Layer::Chat),
    ("nested", Layer::Transport),
    ("gateway", Layer::Transport),
    ("tls", Layer::Transport),
    ("quote", Layer::Attestation),
    ("snp", Layer::Attestation),
    ("endorsed", Layer::Attestation),
    ("adapter", Layer::Adapters),
    ("split", Layer::Adapters),
    ("zk", Layer::Proofs),
    ("claim", Layer::Proofs),
    ("empty", Layer::Instrument),
    ("spin", Layer::Instrument),
    ("storage", Layer::Storage),
    ("fio", Layer::Storage),
    ("cpu", Layer::Cpu),
    ("memory", Layer::Memory),
    ("network", Layer::Network),
    ("iperf", Layer::Network),
    ("jitter", Layer::Jitter),
    ("cyclic", Layer::Jitter),
    ("generate", Layer::Attestation),
    ("verify", Layer::Attestation),
    ("batch", Layer::Attestation),
    ("collateral", Layer::Attestation),
];

impl Layer {
    /// Of a row of a suite.
    pub(crate) fn of(suite: &str, model: &str) -> Self {
        let by_suite = BY_SUITE.iter().find(|(name, _)| *name == suite);
        let by_model = || BY_MODEL.iter().find(|(start, _)| model.starts_with(start));
        by_suite.or_else(by_model).map_or(Self::Other, |(_, layer)| *layer)
    }

    /// For links and filters.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Storage => "storage",
            Self::Network => "network",
            Self::Jitter => "jitter",
            Self::Transport => "transport",
            Self::Attestation => "attestation",
            Self::Adapters => "adapters",
            Self::Proofs => "proofs",
            Self::Chat => "chat",
            Self::Instrument => "instrument",
            Self::Other => "other",
        }
    }

    /// Its heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cpu => "Machine: processor",
            Self::Memory => "Machine: memory",
            Self::Storage => "Machine: storage",
            Self::Network => "Machine: network",
            Self::Jitter => "Machine: punctuality",
            Self::Transport => "The connection: TLS, tunnel, gateway",
            Self::Attestation => "The proof: quotes, endorsements, verification",
            Self::Adapters => "Private adapters",
            Self::Proofs => "Proofs: what ran, and what a session said",
            Self::Chat => "The whole answer: chat with a language model",
            Self::Instrument => "The instrument itself",
            Self::Other => "Other",
        }
    }

    /// What a buyer asks of it.
    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::Cpu => "Does the same program compute more slowly?",
            Self::Memory => "Is memory slower, or further away?",
            Self::Storage => "Do reads and writes of the disk take longer?",
            Self::Network => "Does less go through the network?",
            Self::Jitter => "Does a program wake up late?",
            Self::Transport => "What does the encrypted way to the server cost?",
            Self::Attestation => "What does it cost to prove what answers, and to check the proof?",
            Self::Adapters => "What does it cost that an adapter's host sees nothing of the text?",
            Self::Proofs => "What does it cost to prove what ran, and to check it?",
            Self::Chat => "How much longer does somebody wait who asks a question?",
            Self::Instrument => "What does the measuring cost by itself?",
            Self::Other => "What else was measured?",
        }
    }

    /// The suite that would measure it, where no record does.
    pub(crate) fn suite(self) -> Option<&'static str> {
        match self {
            Self::Cpu => Some("cpu"),
            Self::Memory => Some("memory"),
            Self::Storage => Some("storage"),
            Self::Network => Some("network"),
            Self::Jitter => Some("jitter"),
            Self::Transport => Some("nested"),
            Self::Attestation => Some("verify"),
            Self::Adapters => Some("adapters"),
            Self::Proofs => Some("zk"),
            Self::Chat => Some("chat"),
            Self::Instrument | Self::Other => None,
        }
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
        let mine = |one: &&Absent| Layer::of(&one.suite, &one.suite) == layer;
        let mut missing: Vec<String> = absent
            .iter()
            .filter(mine)
            .map(|one| format!("suite {}: {}", one.suite, one.reason))
            .collect();
        for (index, one) in shown.iter().enumerate() {
            let suite = one.record.suite.name.as_str();
            let mine =
                |row: &&Row| row.headline && !row.twin && Layer::of(suite, &row.model) == layer;
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
    LAYERS.iter().map(|layer| of(*layer)).filter(kept).collect()
}

/// Headline figures of benches with one arm.
fn alone(shown: &Shown<'_>, layer: Layer) -> Vec<String> {
    let Some(suite) = &shown.suite else { return Vec::new() };
    let name = shown.record.suite.name.as_str();
    let mut out = Vec::new();
    let mine = |bench: &&Bench| bench.arms.len() == 1 && Layer::of(name, &bench.model) == layer;
    for bench in suite.benches.iter().filter(mine) {
        for case in crate::plan::cases(bench, shown.record.effort) {
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
                    capital(&label(&metric.label, &case.params)),
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
    let name = record.suite.name.as_str();
    let mut out = Vec::new();
    for bench in suite.benches.iter().filter(|bench| Layer::of(name, &bench.model) == layer) {
        if let Some(not) = record.not_run.iter().find(|not| not.bench == bench.name) {
            out.push(format!("{}: {}", bench.name, not.reason));
        } else if crate::plan::blocks(bench, record.effort, None) == 0 {
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

    #[test]
    fn a_row_belongs_to_the_layer_of_its_suite_else_of_its_definition() {
        assert_eq!(Layer::of("storage", "anything"), Layer::Storage);
        assert_eq!(Layer::of("main", "chat-ttft"), Layer::Chat);
        assert_eq!(Layer::of("main", "nested-transfer"), Layer::Transport);
        assert_eq!(Layer::of("main", "quote-verify"), Layer::Attestation);
        assert_eq!(Layer::of("mine.toml", "zk-stage"), Layer::Proofs);
        assert_eq!(Layer::of("mine.toml", "mine"), Layer::Other);
    }

    #[test]
    fn every_layer_has_its_own_id() {
        let mut ids: Vec<&str> = LAYERS.iter().map(|layer| layer.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), LAYERS.len());
    }
}

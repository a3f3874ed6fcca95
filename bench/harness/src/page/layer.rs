//! Layers: what a row is about, in the words of somebody who buys a machine.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::{suite::Suite, suites::embedded_suites};

/// The layers in the page's order, as data.
const TEXT: &str = include_str!("../../../suites/layers.toml");

/// The layer of rows whose suite names none.
const OTHER: &str = "other";

/// The file `bench/suites/layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayersFile {
    #[serde(rename = "layer")]
    layers: Vec<LayerDefinition>,
}

/// A `[[layer]]` of that file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerDefinition {
    id: String,
    title: String,
    question: String,
    suite: Option<String>,
}

static LAYERS: LazyLock<Vec<LayerDefinition>> = LazyLock::new(|| {
    toml::from_str::<LayersFile>(TEXT).map_or_else(|_| Vec::new(), |all| all.layers)
});

/// A part of the page, as the index of its text in `bench/suites/layers.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer(usize);

impl Layer {
    /// Iterates over all layers, in the order of the page.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..LAYERS.len()).map(Self)
    }

    /// Returns the layer of this id; the last one where the id is unknown or absent.
    fn from_id(id: Option<&str>) -> Self {
        let place = |id: &str| LAYERS.iter().position(|layer| layer.id == id);
        Self(id.and_then(place).or_else(|| place(OTHER)).unwrap_or_default())
    }

    /// Returns the layer of a bench: what `suite` says of it, else what the embedded suites say of
    /// the definition, else that of the suite.
    pub(super) fn from_bench(suite: Option<&Suite>, bench: &str, model: &str) -> Self {
        let own = suite.and_then(|suite| suite.layer_of(suite.bench(bench)?));
        let defined = || {
            let mut benches = embedded_suites()
                .iter()
                .flat_map(|suite| suite.benches.iter().map(move |bench| (suite, bench)));
            let (suite, bench) = benches.find(|(_, bench)| bench.model == model)?;
            suite.layer_of(bench)
        };
        let general = || suite.and_then(|suite| suite.suite.layer.as_deref());
        Self::from_id(own.or_else(defined).or_else(general))
    }

    /// Returns the layer of a suite that has no record.
    pub(super) fn from_suite(name: &str) -> Self {
        let suite = embedded_suites().iter().find(|suite| suite.suite.name == name);
        Self::from_id(suite.and_then(|suite| suite.suite.layer.as_deref()))
    }

    fn definition(self) -> Option<&'static LayerDefinition> {
        LAYERS.get(self.0)
    }

    /// Returns the name that links and filters use.
    pub(crate) fn id(self) -> &'static str {
        self.definition().map_or(OTHER, |layer| &layer.id)
    }

    /// Returns the heading that the report gives the layer.
    pub(crate) fn title(self) -> &'static str {
        self.definition().map_or("", |layer| &layer.title)
    }

    /// Returns the question that a buyer asks about the layer.
    pub(crate) fn question(self) -> &'static str {
        self.definition().map_or("", |layer| &layer.question)
    }

    /// Returns the suite that would measure it, where no record does.
    pub(crate) fn suite(self) -> Option<&'static str> {
        self.definition()?.suite.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layer's id of a row by its suite's name, its bench and its definition.
    fn layer(suite: &str, bench: &str, model: &str) -> &'static str {
        let suite = embedded_suites().iter().find(|known| known.suite.name == suite);
        Layer::from_bench(suite, bench, model).id()
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
        assert_eq!(Layer::from_suite("verify").id(), "attestation");
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

//! Words for metrics, parameters, cases and rows, in place of their ids.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use crate::{
    format::{fill_label, id_to_words},
    plan::Case,
    rows::row::Row,
    suite::bench::{Bench, Params},
};

/// The words, as data.
const TEXT: &str = include_str!("../../../suites/metrics.toml");

/// The file `bench/suites/metrics.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vocabulary {
    metric: BTreeMap<String, String>,
    param: BTreeMap<String, String>,
}

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| toml::from_str(TEXT).unwrap_or_default());

/// Returns what a reader calls a metric; for one that the data file does not know, the words of its id.
pub(super) fn metric_name(id: &str) -> String {
    VOCABULARY.metric.get(id).cloned().unwrap_or_else(|| id_to_words(id))
}

/// Returns what a reader calls a parameter of a grid.
pub(super) fn param_name(id: &str) -> String {
    VOCABULARY.param.get(id).cloned().unwrap_or_else(|| id.replace('_', " "))
}

/// Writes the parameters that differ between the cases of a bench, without one of them: `payload size: 64 KiB,
/// concurrency: 4`.
pub(super) fn describe_case(bench: &Bench, case: &Case, without: &str) -> String {
    let varied = bench.grid.iter().filter(|(name, values)| *name != without && values.len() > 1);
    let parts = varied.filter_map(|(name, _)| {
        let only = Params::from([(name.clone(), case.params.get(name)?.clone())]);
        Some(format!("{}: {}", param_name(name), fill_label(&format!("{{{name}}}"), &only)))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns the title of a case: the label of the bench's headline metric, else its name and
/// parameters.
pub(super) fn case_title(bench: &Bench, case: &Case) -> String {
    match bench.metrics.iter().find(|metric| metric.headline) {
        Some(metric) => fill_label(&metric.label, &case.params),
        None => {
            let title = format!("{}, {}", bench.name, describe_case(bench, case, ""));
            title.trim_end_matches(", ").to_owned()
        }
    }
}

/// Names what a row measures and its arm, which labels of benches with two arms leave out.
pub(super) fn row_label(row: &Row) -> String {
    let Row { label, arm_label, .. } = row;
    match row.twin {
        true => format!("A/A {label}"),
        false if label.contains(arm_label.as_str()) => label.clone(),
        false => format!("{label}: {arm_label}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::embedded_suites;

    #[test]
    fn every_metric_and_every_parameter_of_a_suite_has_words() {
        let benches = || embedded_suites().iter().flat_map(|suite| &suite.benches);
        for metric in benches().flat_map(|bench| &bench.metrics) {
            assert!(VOCABULARY.metric.contains_key(&metric.name), "{}", metric.name);
        }
        for bench in benches() {
            for (name, values) in &bench.grid {
                let has_words = VOCABULARY.param.contains_key(name) || values.len() < 2;
                assert!(has_words, "{}: {name}", bench.name);
            }
        }
    }

    #[test]
    fn an_unknown_metric_is_called_by_its_id_without_unit() {
        assert_eq!(metric_name("ttft_ms"), "time to first token");
        assert_eq!(metric_name("new_work_ms"), "new work");
        assert_eq!(param_name("queue_depth"), "queue depth");
    }
}

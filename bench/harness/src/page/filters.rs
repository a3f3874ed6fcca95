//! Filters that live in the address, and the one script of the page.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use super::{layer::Layer, view::RecordView, vocabulary::metric_name};
use crate::{document::html::escape, rows::text::verdict_name};

/// The one script of the page; nothing else runs.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// Verdicts in the words of the filter, in its order.
const VERDICTS: &[&str] = &[
    "within",
    "above",
    "below",
    "not distinguishable",
    "undecided",
    "not evaluated",
    "no interval",
    "invalid",
];

/// Returns the source of the one script, for the Content-Security-Policy.
pub(super) fn script_hash() -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(SCRIPT)))
}

/// Writes the form of the filters. It stays hidden until the script shows it, because without one
/// it could do nothing.
pub(super) fn render_filter_form(views: &[RecordView<'_>]) -> String {
    let (mut suites, mut arms, mut metrics) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut layers, mut verdicts) = (Vec::new(), Vec::new());
    for view in views {
        suites.insert(view.record.suite.name.as_str(), view.record.suite.name.as_str());
        for row in &view.record.rows {
            arms.entry(row.arm.as_str()).or_insert(row.arm_label.as_str());
            metrics
                .entry(row.metric.as_str())
                .or_insert_with(|| format!("{} ({})", metric_name(&row.metric), row.metric));
            layers.push(view.layer(&row.bench, &row.model));
            verdicts.push(verdict_name(row));
        }
    }
    let layers = Layer::all().filter(|layer| layers.contains(layer));
    let verdicts = VERDICTS.iter().filter(|verdict| verdicts.contains(verdict));
    let mut metrics: Vec<(&str, String)> = metrics.into_iter().collect();
    metrics.sort_by(|(_, one), (_, other)| one.cmp(other));
    let selects = [
        render_select("suite", suites.into_iter()),
        render_select("layer", layers.map(|layer| (layer.id(), layer.title()))),
        render_select("arm", arms.into_iter()),
        render_select("metric", metrics.iter().map(|(id, words)| (*id, words.as_str()))),
        render_select("verdict", verdicts.map(|verdict| (*verdict, *verdict))),
    ];
    format!(
        "<form id=\"filters\" class=\"screen\" hidden aria-label=\"Filters\">\n<h2>Show</h2>\n{}\
         <label class=\"tick\"><input type=\"checkbox\" name=\"aa\" checked> A/A rows</label>\n\
         <span class=\"buttons\"><button type=\"reset\">Show all</button>\n\
         <button type=\"button\" id=\"open\" aria-pressed=\"false\">Open every chart</button></span>\n\
         <p id=\"said\" class=\"soft\" role=\"status\"></p>\n</form>\n",
        selects.concat()
    )
}

fn render_select<'a>(name: &str, options: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let option = |(value, text): (&str, &str)| {
        format!("<option value=\"{}\">{}</option>", escape(value), escape(text))
    };
    let options: String = options.map(option).collect();
    format!(
        "<label>{name} <select name=\"{name}\"><option value=\"\">all {name}s</option>{options}\
         </select></label>\n"
    )
}

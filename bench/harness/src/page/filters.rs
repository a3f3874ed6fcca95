//! Filters that live in the address, and the one script of the page.

use std::{collections::BTreeMap, fmt::Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use super::{html::escape, layer::Layer, view::RecordView};
use crate::rows::row::{Aa, Outcome, Row};

/// Ours, whole; nothing else runs.
pub(super) const SCRIPT: &str = include_str!("script.js");

/// Verdicts in the words of the filter.
pub(super) const VERDICTS: &[&str] =
    &["within", "above", "below", "undecided", "not evaluated", "no interval", "invalid"];

/// For the Content-Security-Policy.
pub(super) fn script_hash() -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(SCRIPT)))
}

/// The verdict of a row as the filter names it.
pub(super) fn verdict_of(row: &Row) -> &'static str {
    if matches!(row.aa, Some(Aa::OutsideMargin | Aa::ExcludesOne)) {
        return "invalid";
    }
    if !row.has_interval() {
        return "no interval";
    }
    match row.outcome {
        Outcome::WithinMargin => "within",
        Outcome::AboveMargin => "above",
        Outcome::BelowMargin => "below",
        Outcome::Undecided { .. } => "undecided",
        Outcome::NotEvaluated => "not evaluated",
    }
}

/// The form. It stays hidden until the script shows it: without one it could do nothing.
pub(super) fn form(shown: &[RecordView<'_>]) -> String {
    let rows = || shown.iter().flat_map(|one| one.record.rows.iter().map(move |row| (one, row)));
    let suites: BTreeMap<String, String> =
        shown.iter().map(|one| same(&one.record.suite.name)).collect();
    let used: Vec<Layer> = rows().map(|(one, row)| one.layer(&row.bench, &row.model)).collect();
    let layers: Vec<(String, String)> = Layer::all()
        .filter(|layer| used.contains(layer))
        .map(|layer| (layer.id().to_owned(), layer.title().to_owned()))
        .collect();
    let mut arms: BTreeMap<String, String> = BTreeMap::new();
    let mut metrics: BTreeMap<String, String> = BTreeMap::new();
    let mut verdicts: Vec<&str> = Vec::new();
    for (_, row) in rows() {
        arms.entry(row.arm.clone()).or_insert_with(|| row.arm_label.clone());
        metrics.extend([same(&row.metric)]);
        verdicts.push(verdict_of(row));
    }
    let verdicts: Vec<(String, String)> =
        VERDICTS.iter().filter(|v| verdicts.contains(v)).map(|v| same(v)).collect();
    let mut out = String::from(
        "<form id=\"filters\" class=\"screen\" hidden aria-label=\"Filters\">\n<h2>Show</h2>\n",
    );
    select(&mut out, "suite", suites.into_iter());
    select(&mut out, "layer", layers.into_iter());
    select(&mut out, "arm", arms.into_iter());
    select(&mut out, "metric", metrics.into_iter());
    select(&mut out, "verdict", verdicts.into_iter());
    out.push_str(
        "<label class=\"tick\"><input type=\"checkbox\" name=\"aa\" checked> A/A rows</label>\n\
         <span class=\"buttons\"><button type=\"reset\">Show all</button>\n\
         <button type=\"button\" id=\"open\" aria-pressed=\"false\">Open every chart</button></span>\n\
         <p id=\"said\" class=\"soft\" role=\"status\"></p>\n</form>\n",
    );
    out
}

fn same(text: &str) -> (String, String) {
    (text.to_owned(), text.to_owned())
}

fn select(out: &mut String, name: &str, options: impl Iterator<Item = (String, String)>) {
    let _ = write!(
        out,
        "<label>{name} <select name=\"{name}\"><option value=\"\">every {name}</option>"
    );
    for (value, text) in options {
        let _ = write!(out, "<option value=\"{}\">{}</option>", escape(&value), escape(&text));
    }
    out.push_str("</select></label>\n");
}

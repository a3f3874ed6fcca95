//! The answers, layer by layer, before any table.

use std::fmt::Write;

use super::{
    filters::verdict_of,
    html::{chip, class_of, data, escape},
    layers::{LayerRows, MissingSuite, layers},
    view::RecordView,
    words::{Sentence, answers, tally},
};

/// Reasons listed in full; more of them have few causes.
const MISSING_SHOWN: usize = 6;

/// Every layer with its answer, its record, and what is missing.
pub(super) fn section(shown: &[RecordView<'_>], absent: &[MissingSuite]) -> String {
    let mut out = String::from(
        "<section id=\"overview\">\n<h2>The answers, layer by layer</h2>\n<p class=\"soft\">Each \
         sentence is one row of a record: cost, 95 % interval, verdict about a margin that was set \
         before the run. Rows that are client-bound, have under ten blocks or stand beside a failed \
         A/A row are not named here while there are others.</p>\n",
    );
    let all = layers(shown, absent);
    let (measured, absent): (Vec<_>, Vec<_>) = all.iter().partition(|layer| !layer.rows.is_empty());
    for layer in measured {
        card(&mut out, shown, layer);
    }
    if !absent.is_empty() {
        out.push_str("<h3>Not measured here</h3>\n<ul class=\"absent\">\n");
        for layer in absent {
            let why = missing_reason(layer);
            let _ = writeln!(
                out,
                "<li class=\"item\"{}><b>{}</b> {why}</li>",
                data(&[("layer", layer.layer.id())]),
                escape(layer.layer.title()),
            );
        }
        out.push_str("</ul>\n");
    }
    out + "</section>\n"
}

/// Why a layer has no row, and the command that would give it some.
fn missing_reason(layer: &LayerRows<'_>) -> String {
    if !layer.missing.is_empty() {
        return reasons(&layer.missing);
    }
    match layer.layer.suite() {
        Some(suite) => format!(
            "No record of it was given. <code>confide bench run {suite} --out \
             bench-out/{suite}</code> makes one."
        ),
        None => String::new(),
    }
}

fn reasons(missing: &[String]) -> String {
    let mut text =
        escape(&missing.iter().take(MISSING_SHOWN).cloned().collect::<Vec<_>>().join("; "));
    if missing.len() > MISSING_SHOWN {
        let _ = write!(text, "; and {} more, in the record", missing.len() - MISSING_SHOWN);
    }
    text
}

fn card(out: &mut String, shown: &[RecordView<'_>], layer: &LayerRows<'_>) {
    let id = layer.layer.id();
    let mut suites: Vec<&str> =
        layer.rows.iter().map(|said| said.shown.record.suite.name.as_str()).collect();
    suites.dedup();
    let _ = write!(
        out,
        "<article class=\"answer item\" id=\"layer-{id}\"{}>\n<div><h3>{}</h3>\
         <p class=\"soft\">{}</p></div>\n<div>",
        data(&[("layer", id), ("suite", &suites.join("\n"))]),
        escape(layer.layer.title()),
        escape(layer.layer.question()),
    );
    for (index, sentence) in answers(layer).iter().enumerate() {
        let class = if index == 0 { " class=\"lead\"" } else { "" };
        let before = match sentence.before {
            "" => String::new(),
            before => format!("<b>{before}:</b> "),
        };
        let _ = writeln!(
            out,
            "<p{class}>{} {before}{} <small>{}{}</small></p>",
            chip(class_of(sentence.said.row), verdict_of(sentence.said.row)),
            escape(&sentence.text),
            escape(&sentence.detail),
            source(shown, sentence),
        );
    }
    for figure in &layer.figures {
        let _ = writeln!(out, "<p>{}</p>", escape(figure));
    }
    if let Some(first) = layer.rows.first() {
        let _ = write!(
            out,
            "<p class=\"soft\">{} <a class=\"screen\" data-filter=\"layer={id}\" \
             href=\"?layer={id}#rows-{}\">Show these rows only</a></p>",
            escape(&tally(layer.rows.iter().map(|said| said.row))),
            first.index,
        );
    }
    if !layer.missing.is_empty() {
        let _ = write!(
            out,
            "<p class=\"soft\"><b>Not measured here:</b> {}</p>",
            reasons(&layer.missing)
        );
    }
    out.push_str("</div>\n</article>\n");
}

/// Of many records, which one.
fn source(shown: &[RecordView<'_>], sentence: &Sentence<'_>) -> String {
    if shown.len() < 2 {
        return String::new();
    }
    let said = &sentence.said;
    let name = escape(&said.shown.name());
    format!("; <a class=\"source\" href=\"#r{}\">{name}</a>", said.index)
}

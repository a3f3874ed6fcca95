//! The answers, layer by layer, before any table.

use super::{
    layers::{LayerRows, MissingSuite, layers},
    view::RecordView,
    words::{sentences, tally},
};
use crate::document::{Answer, Block, Item, Section};

/// Reasons listed in full; more of them have few causes.
const MISSING_SHOWN: usize = 6;

/// Every layer with its answer, then the layers that no record measured.
pub(super) fn answers(views: &[RecordView<'_>], absent: &[MissingSuite]) -> Section {
    let all = layers(views, absent);
    let (measured, absent): (Vec<_>, Vec<_>) = all.iter().partition(|layer| layer.is_measured());
    let answers = measured.into_iter().map(|layer| Block::Answer(answer(layer, views.len() > 1)));
    let mut blocks: Vec<Block> = answers.collect();
    if !absent.is_empty() {
        blocks.push(Block::Heading("Not measured here".to_owned()));
        blocks.push(Block::List(absent.into_iter().map(missing_layer).collect()));
    }
    Section {
        id: "overview".to_owned(),
        heading: "The answers, layer by layer".to_owned(),
        about: "Each sentence is one row of a record: cost, 95 % interval, and a verdict about a margin \
                that was set before the run. Rows that are client-bound, have fewer than ten blocks or \
                failed their A/A row are named only where a layer has no others."
            .to_owned(),
        blocks,
    }
}

fn answer(layer: &LayerRows<'_>, many: bool) -> Answer {
    let mut suites: Vec<&str> =
        layer.rows.iter().map(|row| row.view.record.suite.name.as_str()).collect();
    suites.dedup();
    let mut attributes = vec![("layer", layer.layer.id().to_owned())];
    if !suites.is_empty() {
        attributes.push(("suite", suites.join("\n")));
    }
    let first = layer.rows.first();
    Answer {
        id: layer.layer.id().to_owned(),
        title: layer.layer.title().to_owned(),
        question: layer.layer.question().to_owned(),
        attributes,
        sentences: sentences(layer, many),
        figures: layer.figures.clone(),
        tally: first.map_or_else(String::new, |_| tally(layer.rows.iter().map(|row| row.row))),
        record: first.map_or(0, |row| row.number),
        missing: join_reasons(&layer.missing),
    }
}

/// Why a layer has no row, and the command that would give it some.
fn missing_layer(layer: &LayerRows<'_>) -> Item {
    let (text, command) = match layer.layer.suite() {
        Some(suite) if layer.missing.is_empty() => (
            "no record of it was given; make one with".to_owned(),
            format!("confide bench run {suite} --out bench-out/{suite}"),
        ),
        _ => (join_reasons(&layer.missing), String::new()),
    };
    Item {
        strong: format!("{}:", layer.layer.title()),
        text,
        command,
        attributes: vec![("layer", layer.layer.id().to_owned())],
    }
}

fn join_reasons(reasons: &[String]) -> String {
    let text = reasons[..reasons.len().min(MISSING_SHOWN)].join("; ");
    match reasons.len().saturating_sub(MISSING_SHOWN) {
        0 => text,
        more => format!("{text}; and {more} more, in the record"),
    }
}

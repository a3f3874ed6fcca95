//! The answers, layer by layer, before any table.

use super::{
    layers::{LayerRows, MissingSuite, collect_layers},
    view::RecordView,
    words::{describe_verdict_counts, layer_sentences},
};
use crate::document::{Block, ListItem, Section};

/// The most reasons that are listed; more of them have few causes.
const MISSING_SHOWN: usize = 6;

/// Builds the section of every layer with its answer, then of the layers that no record measured.
pub(super) fn answers_section(views: &[RecordView<'_>], absent: &[MissingSuite]) -> Section {
    let all = collect_layers(views, absent);
    let (measured, absent): (Vec<_>, Vec<_>) = all.iter().partition(|layer| layer.is_measured());
    let mut blocks: Vec<Block> =
        measured.into_iter().map(|layer| layer_answer(layer, views.len() > 1)).collect();
    if !absent.is_empty() {
        blocks.push(Block::Heading("Not measured here".to_owned()));
        blocks.push(Block::List(absent.into_iter().map(missing_layer_item).collect()));
    }
    Section {
        id: "overview".to_owned(),
        heading: "The answers, layer by layer".to_owned(),
        about: "Each sentence is one row of a record: its cost, the 95 % interval, and a verdict against a \
                margin that was set before the run. Rows that are client-bound, have fewer than ten blocks \
                or failed their A/A check appear only where a layer has no others."
            .to_owned(),
        blocks,
    }
}

/// Writes the question of a layer, its sentences, and how many comparisons came to which verdict.
fn layer_answer(layer: &LayerRows<'_>, many: bool) -> Block {
    let id = layer.layer.id();
    let mut suites: Vec<&str> =
        layer.rows.iter().map(|row| row.view.record.suite.name.as_str()).collect();
    suites.dedup();
    let mut attributes = vec![("layer", id.to_owned())];
    if !suites.is_empty() {
        attributes.push(("suite", suites.join("\n")));
    }
    let mut items = layer_sentences(layer, many);
    items.extend(
        layer.figures.iter().map(|text| ListItem { text: text.clone(), ..ListItem::default() }),
    );
    let mut blocks = vec![
        Block::Heading(layer.layer.title().to_owned()),
        Block::Paragraph(layer.layer.question().to_owned()),
        Block::List(items),
    ];
    if let Some(first) = layer.rows.first() {
        blocks
            .push(Block::Paragraph(describe_verdict_counts(layer.rows.iter().map(|row| row.row))));
        blocks.push(Block::Markup(format!(
            "<p><a class=\"screen\" data-filter=\"layer={id}\" href=\"?layer={id}#rows-{}\">Show these rows \
             only</a></p>\n",
            first.number
        )));
    }
    if !layer.missing.is_empty() {
        let missing = join_reasons(&layer.missing);
        blocks.push(Block::Paragraph(format!("Not measured here: {missing}")));
    }
    Block::Group { id: format!("layer-{id}"), attributes, blocks }
}

/// Says why a layer has no row, and which command would give it some.
fn missing_layer_item(layer: &LayerRows<'_>) -> ListItem {
    let (text, command) = match layer.layer.suite() {
        Some(suite) if layer.missing.is_empty() => (
            "no record of this layer was given; make one with".to_owned(),
            format!("confide bench run {suite} --out bench-out/{suite}"),
        ),
        _ => (join_reasons(&layer.missing), String::new()),
    };
    ListItem {
        strong: format!("{}:", layer.layer.title()),
        text,
        command,
        attributes: vec![("layer", layer.layer.id().to_owned())],
        ..ListItem::default()
    }
}

fn join_reasons(reasons: &[String]) -> String {
    let text = reasons[..reasons.len().min(MISSING_SHOWN)].join("; ");
    match reasons.len().saturating_sub(MISSING_SHOWN) {
        0 => text,
        more => format!("{text}; and {more} more, in the record"),
    }
}

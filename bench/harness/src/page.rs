//! The report of one record or of many: as a page that works offline, as Markdown, and as text.
//!
//! Each is a list of sections, made once from rows by the modules below and written by
//! [`crate::document`]. Charts are markup of the page alone. What a record says is somebody else's text,
//! which the writers escape.

mod arms;
mod charts;
mod costs;
mod curves;
mod download;
mod environment;
mod filters;
mod forest;
pub(crate) mod judgement;
pub(crate) mod layer;
pub(crate) mod layers;
mod overview;
pub(crate) mod plot;
mod published;
mod remarks;
mod stages;
mod tables;
pub(crate) mod view;
mod vocabulary;
mod words;

use std::path::{Path, PathBuf};

use crate::{
    document::{
        Block, ListItem, Section, html,
        markdown::{self, escape},
        text::{self, Terminal},
    },
    record::Record,
    rows::row::Row,
};
use download::Attached;
use layers::MissingSuite;
use view::RecordView;

/// Writes the page of all records that will lie at `page`.
pub(crate) fn render_html(
    views: &[RecordView<'_>],
    absent: &[MissingSuite],
    page: &Path,
) -> String {
    let title = title(views);
    let attached = download::attach(views, page);
    let mut body = format!(
        "<a class=\"skip\" href=\"#overview\">Skip to the answers</a>\n<header>\n<h1>{}</h1>\n{}\
         </header>\n<main>\n{}{}",
        html::escape(&title),
        render_introduction(views, &attached),
        filters::form(views),
        html::write(&[overview::answers(views, absent)]),
    );
    let many = views.len() != 1;
    if many {
        body += &html::write(&[judgement::record_list(views, &attached)]);
    }
    for (number, (view, attached)) in views.iter().zip(&attached).enumerate() {
        body += &render_record(view, number, many, attached);
    }
    body += &format!("</main>\n{FOOTER}<script>{}</script>\n", filters::SCRIPT);
    let script = format!("script-src '{}'; ", filters::script_hash());
    html::write_page(&title, &script, &body)
}

const FOOTER: &str = "<footer><p class=\"soft\">bench/MODELS.md defines every number under the id that is given \
    with it, and bench/METHODOLOGY.md the methods. This page loads nothing and sends nothing. Without its \
    script everything is readable; only filters and sorting are missing.</p></footer>\n";

fn title(views: &[RecordView<'_>]) -> String {
    match views {
        [one] => one.record.suite.title.clone(),
        many => format!("What protection costs here: {} records", many.len()),
    }
}

/// Writes what the page is about, and whether to believe it, before any figure.
fn render_introduction(views: &[RecordView<'_>], attached: &[Attached]) -> String {
    let ([view], [attached]) = (views, attached) else {
        return format!(
            "<p>{} <a href=\"#records\">They are listed</a> below the answers.</p>\n",
            judgement::count_validity(views)
        );
    };
    let facts = judgement::placement(view.record);
    let facts: String =
        facts.iter().map(|fact| format!("<li>{}</li>", html::escape(fact))).collect();
    let data = attached.link();
    let judgements = judgement::judgement_blocks(view.record);
    format!(
        "{}<ul class=\"facts\">{facts}<li class=\"screen data\">{data}</li></ul>\n{}",
        html::write_block(&Block::Paragraph(view.record.suite.about.clone())),
        judgements.iter().map(html::write_block).collect::<String>(),
    )
}

/// Writes the part of a page that is about one record.
fn render_record(view: &RecordView<'_>, number: usize, many: bool, attached: &Attached) -> String {
    let record = view.record;
    let mut out = format!("<section class=\"record group\" id=\"r{number}\">\n");
    if many {
        let mut blocks = vec![Block::Paragraph(record.suite.about.clone())];
        blocks.extend(judgement::judgement_blocks(record));
        out += &format!(
            "<h2 class=\"record\">{} <small>{}</small></h2>\n{}",
            html::escape(&record.suite.title),
            html::escape(&view.name()),
            blocks.iter().map(html::write_block).collect::<String>(),
        );
    }
    let mut environment = environment::environment(view, many);
    environment.blocks.extend(environment::sources(record));
    environment.blocks.push(Block::Paragraph(attached.sentence()));
    let sections = [
        tables::headline(view, number),
        tables::growth(record),
        published::answers(view),
        published::quoted_rates(view),
        forest::ratios(view, number),
        curves::curves(view, number),
        stages::stages(view, number),
        charts::distributions(view, number, many),
        arms::arms(record),
        every_number(view, number),
        environment,
    ];
    out + &html::write(&sections) + "</section>\n"
}

/// Builds the section of rows and figures of every metric, folded.
fn every_number(view: &RecordView<'_>, number: usize) -> Section {
    let fold = |summary: String, blocks| Block::Folded { summary, is_open: false, blocks };
    let rows = &view.record.rows;
    let comparisons = tables::comparisons(view, rows.iter());
    let percentiles = "A percentile is given only where its tail holds ten samples: p50 from 20, p95 from \
                       200, p99 from 1,000.";
    let blocks = vec![
        fold(
            format!("All metrics, all arms, A/A rows among them: {} rows", rows.len()),
            vec![Block::Table(comparisons)],
        ),
        fold(
            "All figures: pooled means and percentiles".to_owned(),
            vec![Block::Paragraph(percentiles.to_owned()), Block::Table(tables::figures(view))],
        ),
    ];
    Section { id: format!("all-{number}"), ..Section::new("Every comparison", blocks) }
}

/// Writes Markdown of all records, for a code host.
pub(crate) fn render_markdown(views: &[RecordView<'_>], absent: &[MissingSuite]) -> String {
    let mut out = format!("# {}\n\n", escape(&title(views)));
    let many = views.len() != 1;
    out += &match views {
        [view] => format!("{}\n\n", escape(&view.record.suite.about)),
        many => markdown::write(&[judgement::record_list(many, &[])], "##"),
    };
    out += &markdown::write(&[overview::answers(views, absent)], "##");
    for (number, view) in views.iter().enumerate() {
        let record = view.record;
        let mut marks = "##";
        if many {
            let (name, title) = (escape(&view.name()), escape(&record.suite.title));
            out += &format!("## {name}\n\n{title}\n\n");
            marks = "###";
        }
        let facts = judgement::placement(record).into_iter();
        let facts = facts.map(|text| ListItem { text, ..ListItem::default() }).collect();
        let mut blocks = vec![Block::List(facts)];
        blocks.extend(judgement::judgement_blocks(record));
        let others: Vec<&Row> = record.rows.iter().filter(|row| !row.headline).collect();
        let sections = [
            Section::new("", blocks),
            tables::headline(view, number),
            tables::growth(record),
            published::answers(view),
            published::quoted_rates(view),
            arms::arms(record),
            other_comparisons(view, others),
            environment::environment(view, many),
        ];
        out += &markdown::write(&sections, marks);
    }
    out
}

/// Builds the section of the rows that are not among the headline's.
fn other_comparisons(view: &RecordView<'_>, rows: Vec<&Row>) -> Section {
    let table = tables::comparisons(view, rows.into_iter());
    let blocks = if table.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    Section::new("Every other comparison", blocks)
}

/// Writes the answers of all records and their headline rows, for a terminal.
pub(crate) fn render_terminal(
    views: &[RecordView<'_>],
    absent: &[MissingSuite],
    terminal: Terminal,
) -> String {
    let answers = overview::answers(views, absent);
    let mut sections = vec![Section::new("", answers.blocks)];
    for (number, view) in views.iter().enumerate() {
        let record = view.record;
        let mut blocks = vec![Block::Paragraph(judgement::placement(record)[1..].join(", "))];
        blocks.extend(judgement::judgement_blocks(record));
        let again = format!("again: {}", environment::command_line(record));
        sections.extend([
            Section::new(format!("{}: {}", view.name(), record.suite.title), blocks),
            tables::headline(view, number),
            tables::growth(record),
            Section::new("", vec![Block::Paragraph(again)]),
        ]);
    }
    text::write(&sections, terminal)
}

/// Writes the headline rows of a record, what has to be known to read them, and what its runs used,
/// as text of any width that ends in a newline.
pub fn table(record: &Record) -> String {
    let view = RecordView::new(record, &[], &[], PathBuf::new());
    let unnamed = |section: Section| Section { heading: String::new(), ..section };
    let sections = [
        Section::new("", vec![Block::Paragraph(judgement::placement(record).join(", "))]),
        unnamed(tables::headline(&view, 0)),
        Section::new("", remarks::remarks(record)),
        unnamed(tables::growth(record)),
        Section::new("", judgement::judgement_blocks(record)),
        unnamed(costs::costs(record)),
    ];
    text::write(&sections, Terminal::UNLIMITED)
}

#[cfg(test)]
mod style_tests;
#[cfg(test)]
mod tests;

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
use download::RecordAttachment;
use layers::MissingSuite;
use view::RecordView;

/// Writes the page of all records that will lie at `page`.
pub(crate) fn render_html(
    views: &[RecordView<'_>],
    absent: &[MissingSuite],
    page: &Path,
) -> String {
    let title = page_title(views);
    let attached = download::attach_records(views, page);
    let mut body = format!(
        "<a class=\"skip\" href=\"#overview\">Skip to the answers</a>\n<header>\n<h1>{}</h1>\n{}\
         </header>\n<main>\n{}{}",
        html::escape(&title),
        render_introduction(views, &attached),
        filters::render_filter_form(views),
        html::render_sections(&[overview::answers_section(views, absent)]),
    );
    let many = views.len() != 1;
    if many {
        body += &html::render_sections(&[judgement::record_list_section(views, &attached)]);
    }
    for (number, (view, attached)) in views.iter().zip(&attached).enumerate() {
        body += &render_record(view, number, many, attached);
    }
    body += &format!("</main>\n{FOOTER}<script>{}</script>\n", filters::SCRIPT);
    let script = format!("script-src '{}'; ", filters::script_hash());
    html::render_page(&title, &script, &body)
}

const FOOTER: &str = "<footer><p class=\"soft\">bench/MODELS.md defines every number under the id \
    that is given with it; bench/METHODOLOGY.md describes the methods. This page loads nothing and \
    sends nothing. Without its script everything is readable; only filters and sorting are \
    missing.</p></footer>\n";

fn page_title(views: &[RecordView<'_>]) -> String {
    match views {
        [one] => one.record.suite.title.clone(),
        many => format!("What protection costs here: {} records", many.len()),
    }
}

/// Writes what the page is about, and whether to believe it, before any figure.
fn render_introduction(views: &[RecordView<'_>], attached: &[RecordAttachment]) -> String {
    let ([view], [attached]) = (views, attached) else {
        return format!(
            "<p>{} <a href=\"#records\">They are listed</a> below the answers.</p>\n",
            judgement::describe_validity(views)
        );
    };
    let facts = judgement::record_summary(view.record);
    let facts: String =
        facts.iter().map(|fact| format!("<li>{}</li>", html::escape(fact))).collect();
    let data = attached.render_link();
    let judgements = judgement::judgement_blocks(view.record);
    format!(
        "{}<ul class=\"facts\">{facts}<li class=\"screen data\">{data}</li></ul>\n{}",
        html::render_block(&Block::Paragraph(view.record.suite.about.clone())),
        judgements.iter().map(html::render_block).collect::<String>(),
    )
}

/// Writes the part of a page that is about one record.
fn render_record(
    view: &RecordView<'_>,
    number: usize,
    many: bool,
    attached: &RecordAttachment,
) -> String {
    let record = view.record;
    let mut out = format!("<section class=\"record group\" id=\"r{number}\">\n");
    if many {
        let mut blocks = vec![Block::Paragraph(record.suite.about.clone())];
        blocks.extend(judgement::judgement_blocks(record));
        out += &format!(
            "<h2 class=\"record\">{} <small>{}</small></h2>\n{}",
            html::escape(&record.suite.title),
            html::escape(&view.display_name()),
            blocks.iter().map(html::render_block).collect::<String>(),
        );
    }
    let mut environment = environment::environment_section(view, many);
    environment.blocks.extend(environment::source_blocks(record));
    environment.blocks.push(Block::Paragraph(attached.describe()));
    let sections = [
        tables::headline_section(view, number),
        tables::cost_growth_section(record),
        published::published_tables_section(view),
        published::quoted_rates_section(view),
        forest::ratios_section(view, number),
        curves::curves_section(view, number),
        stages::stages_section(view, number),
        charts::distributions_section(view, number, many),
        arms::arms_section(record),
        every_comparison_section(view, number),
        environment,
    ];
    out + &html::render_sections(&sections) + "</section>\n"
}

/// Builds the section of rows and figures of every metric, folded.
fn every_comparison_section(view: &RecordView<'_>, number: usize) -> Section {
    let fold = |summary: String, blocks| Block::Folded { summary, is_open: false, blocks };
    let rows = &view.record.rows;
    let comparisons = tables::comparisons_table(view, rows.iter());
    let percentiles = "A percentile is given only where its tail holds ten samples: p50 from 20, p95 from \
                       200, p99 from 1,000.";
    let blocks = vec![
        fold(
            format!("All metrics, all arms, A/A rows among them: {} rows", rows.len()),
            vec![Block::Table(comparisons)],
        ),
        fold(
            "All figures: pooled means and percentiles".to_owned(),
            vec![
                Block::Paragraph(percentiles.to_owned()),
                Block::Table(tables::figures_table(view)),
            ],
        ),
    ];
    Section { id: format!("all-{number}"), ..Section::new("Every comparison", blocks) }
}

/// Writes Markdown of all records, for a code host.
pub(crate) fn render_markdown(views: &[RecordView<'_>], absent: &[MissingSuite]) -> String {
    let mut out = format!("# {}\n\n", escape(&page_title(views)));
    let many = views.len() != 1;
    out += &match views {
        [view] => format!("{}\n\n", escape(&view.record.suite.about)),
        many => markdown::render_sections(&[judgement::record_list_section(many, &[])], "##"),
    };
    out += &markdown::render_sections(&[overview::answers_section(views, absent)], "##");
    for (number, view) in views.iter().enumerate() {
        let record = view.record;
        let mut marks = "##";
        if many {
            let (name, title) = (escape(&view.display_name()), escape(&record.suite.title));
            out += &format!("## {name}\n\n{title}\n\n");
            marks = "###";
        }
        let facts = judgement::record_summary(record).into_iter();
        let facts = facts.map(|text| ListItem { text, ..ListItem::default() }).collect();
        let mut blocks = vec![Block::List(facts)];
        blocks.extend(judgement::judgement_blocks(record));
        let others: Vec<&Row> = record.rows.iter().filter(|row| !row.headline).collect();
        let sections = [
            Section::new("", blocks),
            tables::headline_section(view, number),
            tables::cost_growth_section(record),
            published::published_tables_section(view),
            published::quoted_rates_section(view),
            arms::arms_section(record),
            other_comparisons_section(view, others),
            environment::environment_section(view, many),
        ];
        out += &markdown::render_sections(&sections, marks);
    }
    out
}

/// Builds the section of the rows that are not among the headline's.
fn other_comparisons_section(view: &RecordView<'_>, rows: Vec<&Row>) -> Section {
    let table = tables::comparisons_table(view, rows.into_iter());
    let blocks = if table.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    Section::new("Every other comparison", blocks)
}

/// Writes the answers of all records and their headline rows, for a terminal.
pub(crate) fn render_terminal(
    views: &[RecordView<'_>],
    absent: &[MissingSuite],
    terminal: Terminal,
) -> String {
    let answers = overview::answers_section(views, absent);
    let mut sections = vec![Section::new("", answers.blocks)];
    for (number, view) in views.iter().enumerate() {
        let record = view.record;
        let mut blocks = vec![Block::Paragraph(judgement::record_summary(record)[1..].join(", "))];
        blocks.extend(judgement::judgement_blocks(record));
        let again = format!("again: {}", environment::format_command_line(record));
        sections.extend([
            Section::new(format!("{}: {}", view.display_name(), record.suite.title), blocks),
            tables::headline_section(view, number),
            tables::cost_growth_section(record),
            Section::new("", vec![Block::Paragraph(again)]),
        ]);
    }
    text::render_sections(&sections, terminal)
}

/// Writes the headline rows of a record, what has to be known to read them, and what its runs used,
/// as text of any width that ends in a newline.
pub fn render_record_text(record: &Record) -> String {
    let view = RecordView::new(record, &[], &[], PathBuf::new());
    let unnamed = |section: Section| Section { heading: String::new(), ..section };
    let sections = [
        Section::new("", vec![Block::Paragraph(judgement::record_summary(record).join(", "))]),
        unnamed(tables::headline_section(&view, 0)),
        Section::new("", remarks::remark_blocks(record)),
        unnamed(tables::cost_growth_section(record)),
        Section::new("", judgement::judgement_blocks(record)),
        unnamed(costs::costs_section(record)),
    ];
    text::render_sections(&sections, Terminal::UNLIMITED)
}

#[cfg(test)]
mod style_tests;
#[cfg(test)]
mod tests;

//! Sections as Markdown, for a code host: what a record says is escaped, and nothing but tables is drawn.

use super::{Block, Cell, ListItem, Section, Table, is_invisible, replace_invisible};

/// Writes sections; each heading starts with `marks`, such as `##`.
pub(crate) fn render_sections(sections: &[Section], marks: &str) -> String {
    let mut out = String::new();
    for section in sections.iter().filter(|section| !section.blocks.is_empty()) {
        if !section.heading.is_empty() {
            out += &format!("{marks} {}\n\n", escape(&section.heading));
        }
        section.blocks.iter().for_each(|block| out += &render_block(block, marks));
    }
    out
}

/// Escapes whatever Markdown or HTML would act on.
pub(crate) fn escape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.trim().chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            c if is_invisible(c) => out.push('\u{fffd}'),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' | '$' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Writes a table of cells that are Markdown already; `numbers` says for each column whether it
/// aligns to the right.
pub(crate) fn render_grid(heads: &[&str], rows: &[Vec<String>], numbers: &[bool]) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = |is_number: &bool| if *is_number { "---:" } else { "---" };
    let mut out = line(&mut heads.iter().copied());
    out += &line(&mut numbers.iter().map(rule));
    rows.iter().for_each(|cells| out += &line(&mut cells.iter().map(String::as_str)));
    out + "\n"
}

fn render_block(block: &Block, marks: &str) -> String {
    match block {
        Block::Heading(text) => format!("{marks}# {}\n\n", escape(text)),
        Block::Paragraph(text) => format!("{}\n\n", escape(text)),
        Block::Judgement(judgement) => {
            format!("**{}** {}\n\n", escape(&judgement.strong), escape(&judgement.text))
        }
        Block::Group { blocks, .. } => {
            blocks.iter().map(|block| render_block(block, marks)).collect()
        }
        Block::List(items) => items.iter().map(render_item).collect::<String>() + "\n",
        Block::Table(table) => render_table(table),
        Block::Facts(facts) => {
            let rows: Vec<Vec<String>> = facts
                .iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| vec![escape(name), escape(text)])
                .collect();
            render_grid(&["what", "here"], &rows, &[false; 2])
        }
        Block::Code(text) => fence_code(text),
        Block::Folded { summary, blocks, .. } => {
            let below = format!("{marks}#");
            let blocks: String = blocks.iter().map(|block| render_block(block, &below)).collect();
            format!("{marks}# {}\n\n{blocks}", escape(summary))
        }
        Block::Markup(_) => String::new(),
    }
}

fn render_item(item: &ListItem) -> String {
    let origin = item.describe_origin();
    let parts = [
        ("**", escape(&item.strong)),
        ("", escape(&item.text)),
        ("", escape(&origin)),
        ("`", item.command.clone()),
    ];
    let parts = parts.iter().filter(|(_, text)| !text.is_empty());
    let parts: Vec<String> = parts.map(|(mark, text)| format!("{mark}{text}{mark}")).collect();
    format!("- {}\n", parts.join(" "))
}

/// Writes each body as a table of its own, under its heading.
fn render_table(table: &Table) -> String {
    let columns = table.columns_without_classes(&["data", "wide"]);
    let heads: Vec<&str> = columns.iter().map(|at| table.columns[*at].heading.as_str()).collect();
    let numbers: Vec<bool> = columns.iter().map(|at| table.columns[*at].is_number()).collect();
    let mut out = String::new();
    for body in table.bodies.iter().filter(|body| !body.rows.is_empty()) {
        if !body.heading.is_empty() {
            out += &format!("{}\n\n", escape(&body.heading));
        }
        let row = |cells: &[Cell]| columns.iter().map(|at| render_cell(&cells[*at])).collect();
        let rows: Vec<Vec<String>> = body.rows.iter().map(|one| row(&one.cells)).collect();
        out += &render_grid(&heads, &rows, &numbers);
    }
    out
}

fn render_cell(cell: &Cell) -> String {
    let simulated = if cell.is_simulated { ", *simulated*" } else { "" };
    let notes: String =
        cell.notes.iter().map(|(_, note)| format!("<br>{}", escape(note))).collect();
    let text = format!("{}{simulated}{notes}", escape(&cell.text));
    let known = cell.folded.iter().filter(|(_, text)| !text.is_empty());
    let plain = |text: &str| escape(&text.replace('`', ""));
    let facts: Vec<String> =
        known.map(|(name, text)| format!("{}: {}", escape(name), plain(text))).collect();
    match facts.as_slice() {
        [] => text,
        facts => {
            format!("<details><summary>{text}</summary>{}</details>", facts.join("<br>"))
        }
    }
}

/// Writes a code block whose fence is longer than any run of backticks within, so that nothing in
/// it acts.
fn fence_code(raw: &str) -> String {
    let longest = raw.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n\n", replace_invisible(raw).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Column;

    #[test]
    fn text_of_a_record_stays_text() {
        let hostile = "<img src=x onerror=alert(1)> [x](javascript:1) `a` |b| # c\n> d \u{1b}[0m";
        let shown = escape(hostile);
        for acting in ["<img", " [x]", " `a", " |b", "\n", "\u{1b}"] {
            assert!(!shown.contains(acting), "{acting:?} in {shown}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert!(fence_code("a ```` b").starts_with("`````text\n"));
    }

    #[test]
    fn a_table_has_a_rule_that_aligns_numbers() {
        let mut table = Table::new("", vec![Column::new_label("name"), Column::new_number("n")]);
        table.push(vec!["a".into(), "1".into()]);
        assert_eq!(render_table(&table), "| name | n |\n| --- | ---: |\n| a | 1 |\n\n");
    }
}

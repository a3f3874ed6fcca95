//! Sections as a page that works offline. Every text is escaped here, and nowhere else.

use super::{
    Attributes, Block, Cell, CellContent, Column, Judgement, JudgementColour, ListItem, Section,
    Table, TableBody, TableRow, is_invisible,
};

/// Writes a whole page. `script_source` names the one script that may run
/// (Content-Security-Policy); `body` is markup, with the script in it.
pub(crate) fn render_page(title: &str, script_source: &str, body: &str) -> String {
    let title = escape(title);
    let style = include_str!("../page/style.css");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; {script_source}base-uri 'none'; form-action 'none'\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Writes sections, each a group that the filters hide when nothing in it is left.
pub(crate) fn render_sections(sections: &[Section]) -> String {
    sections.iter().filter(|section| !section.blocks.is_empty()).map(render_section).collect()
}

fn render_section(section: &Section) -> String {
    let Section { id, heading, about, blocks } = section;
    let id = if id.is_empty() { String::new() } else { format!(" id=\"{}\"", escape(id)) };
    let mut out = format!("<section class=\"group\"{id}>\n");
    if !heading.is_empty() {
        out += &format!("<h2>{}</h2>\n", escape_and_mark_code(heading));
    }
    if !about.is_empty() {
        out += &format!("<p class=\"soft\">{}</p>\n", escape_and_mark_code(about));
    }
    blocks.iter().for_each(|block| out += &render_block(block));
    out + "</section>\n"
}

/// Writes one block, without a section around it.
pub(crate) fn render_block(block: &Block) -> String {
    match block {
        Block::Heading(text) => format!("<h3>{}</h3>\n", escape_and_mark_code(text)),
        Block::Paragraph(text) => format!("<p>{}</p>\n", escape_and_mark_code(text)),
        Block::Judgement(judgement) => render_judgement(judgement),
        Block::Group { id, attributes, blocks } => {
            let blocks: String = blocks.iter().map(render_block).collect();
            let (id, attributes) = (escape(id), render_attributes(attributes));
            format!("<article class=\"item\" id=\"{id}\"{attributes}>\n{blocks}</article>\n")
        }
        Block::List(items) => {
            let items: String = items.iter().map(render_item).collect();
            format!("<ul class=\"entries\">\n{items}</ul>\n")
        }
        Block::Table(table) => render_table(table),
        Block::Facts(facts) => render_facts(facts) + "\n",
        Block::Code(text) => format!("<pre>{}</pre>\n", escape(text)),
        Block::Folded { summary, is_open, blocks } => {
            let open = if *is_open { " open" } else { "" };
            let blocks: String = blocks.iter().map(render_block).collect();
            let summary = escape_and_mark_code(summary);
            format!(
                "<details class=\"group\"{open}><summary>{summary}</summary>{blocks}</details>\n"
            )
        }
        Block::Markup(markup) => markup.clone(),
    }
}

fn render_judgement(judgement: &Judgement) -> String {
    let class = judgement.class;
    let mark = if class == JudgementColour::Warn { "!" } else { class.symbol() };
    format!(
        "<div class=\"judgement {}\"><span class=\"mark\" aria-hidden=\"true\">{mark}</span>\
         <p><b>{}</b> {}</p></div>\n",
        class.css_class(),
        escape_and_mark_code(&judgement.strong),
        escape_and_mark_code(&judgement.text),
    )
}

fn render_item(item: &ListItem) -> String {
    let ListItem { verdict, strong, text, detail, source, command, attributes } = item;
    let class = if attributes.is_empty() { "" } else { "item" };
    let verdict = verdict.map(|(class, name)| render_chip(class, name) + " ").unwrap_or_default();
    let element = |name: &str, text: &str| match text {
        "" => String::new(),
        text => format!("<{name}>{}</{name}> ", escape(text)),
    };
    let source = source.iter().map(|(name, number)| {
        format!("; <a class=\"source\" href=\"#r{number}\">{}</a>", escape(name))
    });
    let origin = escape_and_mark_code(detail) + &source.collect::<String>();
    let origin = if origin.is_empty() { origin } else { format!(" <small>{origin}</small>") };
    format!(
        "<li{}{}>{verdict}{}{}{origin} {}</li>\n",
        render_class(class),
        render_attributes(attributes),
        element("b", strong),
        escape_and_mark_code(text),
        element("code", command),
    )
}

fn render_facts(facts: &[(String, String)]) -> String {
    let known = facts.iter().filter(|(_, text)| !text.is_empty());
    let pair = |(name, text): &(String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape_and_mark_code(text))
    };
    format!("<dl>{}</dl>", known.map(pair).collect::<String>())
}

/// Writes a table in a region that the keyboard can scroll. Rows below a heading are folded, in a
/// table of their own.
pub(crate) fn render_table(table: &Table) -> String {
    let has_rows = |body: &&TableBody| !body.rows.is_empty();
    let (plain, folded): (Vec<_>, Vec<_>) =
        table.bodies.iter().filter(has_rows).partition(|body| body.heading.is_empty());
    let mut out = String::new();
    if !plain.is_empty() {
        out += &render_bodies(table, &table.name, &plain);
    }
    for body in folded {
        let name = format!("{}, folded", table.name);
        out += &format!(
            "<details class=\"more group\"><summary>{} ({})</summary>{}</details>\n",
            escape_and_mark_code(&body.heading),
            body.rows.len(),
            render_bodies(table, &name, &[body]),
        );
    }
    out
}

fn render_bodies(table: &Table, name: &str, bodies: &[&TableBody]) -> String {
    let heads: String = table.columns.iter().map(render_heading).collect();
    let bodies = bodies.iter().map(|body| {
        let rows: String = body.rows.iter().map(|row| render_row(&table.columns, row)).collect();
        format!("<tbody>\n{rows}</tbody>\n")
    });
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\
         <table class=\"cards sorts\"><thead><tr>{heads}</tr></thead>\n{}</table></div>\n",
        escape(name),
        bodies.collect::<String>(),
    )
}

fn render_heading(column: &Column) -> String {
    let heading = escape_and_mark_code(&column.heading);
    let class = render_class(column.class);
    match column.class {
        "wide" => format!("<th scope=\"col\"{class}><span class=\"unseen\">{heading}</span></th>"),
        _ => format!("<th scope=\"col\"{class}>{heading}</th>"),
    }
}

fn render_row(columns: &[Column], row: &TableRow) -> String {
    let attributes = render_attributes(&row.attributes);
    let cells = columns.iter().zip(&row.cells).map(|(column, cell)| render_cell(column, cell));
    let class = render_class(row.class);
    format!("<tr{class}{attributes}>{}</tr>\n", cells.collect::<String>())
}

fn render_cell(column: &Column, cell: &Cell) -> String {
    let shown = if cell.short.is_empty() { &cell.text } else { &cell.short };
    let text = escape_and_mark_code(shown);
    let text = match cell.content {
        CellContent::Text => text,
        CellContent::Strong => format!("<b>{text}</b>"),
        CellContent::Figure => match text.split_once(" [") {
            Some((number, interval)) => format!("<b>{number}</b> <span>[{interval}</span>"),
            None => format!("<b>{text}</b>"),
        },
        CellContent::Verdict(class) => render_chip(class, shown),
        CellContent::Markup => cell.text.clone(),
    };
    let simulated = if cell.is_simulated { SIMULATED } else { "" };
    let note = |(class, note): &(&str, String)| {
        format!("<small class=\"{class}\">{}</small>", escape_and_mark_code(note))
    };
    let notes: String = cell.notes.iter().map(note).collect();
    let text = if cell.folded.is_empty() {
        text
    } else {
        let facts = render_facts(&cell.folded);
        format!("<details class=\"more\"><summary>{text}</summary><div>{facts}</div></details>")
    };
    let mut attributes = render_class(column.class);
    if !column.name.is_empty() && !cell.text.is_empty() {
        attributes += &format!(" data-name=\"{}\"", escape(&column.name));
    }
    if let Some(sort) = cell.sort {
        attributes += &format!(" data-v=\"{sort}\"");
    }
    // On a narrow screen the cell is a grid of its name and one element.
    let is_plain = cell.content == CellContent::Text && simulated.is_empty() && notes.is_empty();
    if column.name.is_empty() || is_plain {
        return format!("<td{attributes}>{text}{simulated}{notes}</td>");
    }
    format!("<td{attributes}><div>{text}{simulated}{notes}</div></td>")
}

fn render_class(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

/// The dashed mark that stands wherever something simulated shows.
const SIMULATED: &str = " <span class=\"tag\">simulated</span>";

/// Writes a text on the background of its class, after the sign of the class.
pub(crate) fn render_chip(class: JudgementColour, text: &str) -> String {
    format!(
        "<span class=\"chip {}\"><span aria-hidden=\"true\">{}</span> {}</span>",
        class.css_class(),
        class.symbol(),
        escape_and_mark_code(text)
    )
}

/// Writes ` data-name="…"` for each attribute.
pub(crate) fn render_attributes(attributes: &Attributes) -> String {
    let pair = |(name, text): &(&str, String)| format!(" data-{name}=\"{}\"", escape(text));
    attributes.iter().map(pair).collect()
}

/// Escapes text for HTML, also within double quotes, and marks each character that acts unseen.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_invisible(c) => out.push('\u{fffd}'),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Escapes text and turns what is between backticks into code; a backtick without a partner stays.
fn escape_and_mark_code(text: &str) -> String {
    let escaped = escape(text);
    let parts: Vec<&str> = escaped.split('`').collect();
    let mut out = String::with_capacity(escaped.len());
    for (index, part) in parts.iter().enumerate() {
        match (index % 2, index + 1 == parts.len()) {
            (0, _) => out += part,
            (_, true) => out += &format!("`{part}"),
            (_, false) => out += &format!("<code>{part}</code>"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code_and_escaped() {
        assert_eq!(escape_and_mark_code("run `a <b>` twice"), "run <code>a &lt;b&gt;</code> twice");
        assert_eq!(escape_and_mark_code("a ` alone"), "a ` alone");
    }

    #[test]
    fn markup_in_a_text_stays_text() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(escape("a\u{202e}b\u{1b}[0m\n"), "a\u{fffd}b\u{fffd}[0m\n");
    }
}

//! Sections as plain text for a terminal: wrapped at its width, tables in columns where they fit.

use super::{Block, Cell, CellContent, JudgementColour, Section, Table, replace_invisible};

/// The capabilities of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// The width in characters.
    pub width: usize,
    /// Whether escape sequences are understood and wanted.
    pub colour: bool,
}

impl Terminal {
    /// A file or a pipe: lines are not broken, and nothing is coloured.
    pub(crate) const UNLIMITED: Self = Self { width: usize::MAX, colour: false };
}

/// The least width in characters: below it a line would hold one word.
const WIDTH_MIN: usize = 40;
/// The greatest width in characters: longer lines are hard to read.
const WIDTH_MAX: usize = 160;
/// The width in characters from which a row of a table may be one line.
const COLUMNS_WIDTH_MIN: usize = 118;
/// The least width to which the first column is cut; with less room each row takes several lines.
const LABEL_WIDTH_MIN: usize = 24;

const BOLD: &str = "1";

/// Writes sections at the terminal's width, which is taken as at least 40 and at most 160 characters.
pub(crate) fn render_sections(sections: &[Section], terminal: Terminal) -> String {
    let width = match terminal.width {
        usize::MAX => usize::MAX,
        width => width.clamp(WIDTH_MIN, WIDTH_MAX),
    };
    let mut writer =
        TextWriter { out: String::new(), width, has_colour: terminal.colour, indent: "" };
    for section in sections.iter().filter(|section| !section.blocks.is_empty()) {
        writer.indent = "";
        if !section.heading.is_empty() {
            writer.write_heading(&section.heading);
        }
        section.blocks.iter().for_each(|block| writer.write_block(block));
        writer.write_line("");
    }
    writer.out.truncate(writer.out.trim_end().len());
    writer.out + "\n"
}

struct TextWriter {
    out: String,
    width: usize,
    has_colour: bool,
    indent: &'static str,
}

impl TextWriter {
    fn write_block(&mut self, block: &Block) {
        match block {
            Block::Heading(text) => self.write_heading(text),
            Block::Paragraph(text) => self.write_wrapped(text),
            Block::Judgement(judgement) => {
                let from = self.out.len();
                self.write_wrapped(&format!("{} {}", judgement.strong, judgement.text));
                // The words are wrapped before they are painted, because paint has no width.
                let strong = sanitise_text(&judgement.strong);
                if let Some(at) = self.out[from..].find(&strong) {
                    let painted = self.paint(colour_code(judgement.class), &strong);
                    self.out.replace_range(from + at..from + at + strong.len(), &painted);
                }
            }
            Block::Group { blocks, .. } => {
                blocks.iter().for_each(|block| self.write_block(block));
                self.write_line("");
            }
            Block::List(items) => {
                for item in items {
                    let origin = item.describe_origin();
                    let parts = [&item.strong, &item.text, &origin, &item.command];
                    let parts: Vec<&str> =
                        parts.into_iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
                    self.write_wrapped(&parts.join(" "));
                }
            }
            Block::Table(table) => self.write_table(table),
            Block::Facts(facts) => {
                let known = facts.iter().filter(|(_, text)| !text.is_empty());
                known.for_each(|(name, text)| self.write_wrapped(&format!("{name}: {text}")));
            }
            Block::Code(text) => {
                text.lines().for_each(|line| self.write_line(&sanitise_text(line)))
            }
            Block::Folded { blocks, .. } => {
                blocks.iter().for_each(|block| self.write_block(block));
            }
            Block::Markup(_) => {}
        }
    }

    fn write_table(&mut self, table: &Table) {
        let mut columns = table.columns_without_classes(&["data", "wide"]);
        // Verdicts differ in length, so that they stand last, where nothing is aligned behind them.
        columns.sort_by_key(|at| table.columns[*at].class == "verdict");
        let texts = |cells: &[Cell]| -> Vec<String> {
            columns.iter().map(|at| plain_text(&cells[*at])).collect()
        };
        let mut rows: Vec<Vec<String>> = table.rows().map(|row| texts(&row.cells)).collect();
        rows.insert(0, columns.iter().map(|at| table.columns[*at].heading.clone()).collect());
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
        let mut widths: Vec<usize> = (0..columns.len()).filter_map(width).collect();
        let numbers = widths[1..].iter().sum::<usize>() + 2 * widths.len();
        if self.width < COLUMNS_WIDTH_MIN || self.width <= numbers.saturating_add(LABEL_WIDTH_MIN) {
            return self.write_stacked_rows(table, &columns);
        }
        widths[0] = widths[0].min(self.width - numbers);
        let line = |writer: &mut Self, texts: &[String], cells: Option<&[Cell]>| {
            let parts = texts.iter().zip(&widths).enumerate().map(|(at, (text, width))| {
                let text = align_text(
                    &truncate_text(text, *width),
                    *width,
                    table.columns[columns[at]].is_number(),
                );
                cells.map_or_else(
                    || text.clone(),
                    |cells| writer.paint_cell(&cells[columns[at]], &text),
                )
            });
            let parts = parts.collect::<Vec<_>>().join("  ");
            writer.write_line(&parts);
        };
        line(self, &rows[0], None);
        let mut texts = rows[1..].iter();
        for (number, body) in table.bodies.iter().enumerate() {
            if number > 0 && !body.rows.is_empty() {
                self.write_line("");
            }
            for (row, texts) in body.rows.iter().zip(&mut texts) {
                line(self, texts, Some(&row.cells));
            }
        }
    }

    /// Writes each row as a line with its name and lines with the other cells.
    fn write_stacked_rows(&mut self, table: &Table, columns: &[usize]) {
        for row in table.rows() {
            self.write_wrapped(&plain_text(&row.cells[columns[0]]));
            let start = format!("{}    ", self.indent);
            let (mut line, mut length) = (start.clone(), start.len());
            for at in &columns[1..] {
                let cell = &row.cells[*at];
                if cell.text.is_empty() {
                    continue;
                }
                // Outside its column a number needs the column's name.
                let column = &table.columns[*at];
                let name = if column.is_number() { &*column.name } else { "" };
                let text = format!("{name} {}", plain_text(cell)).trim_start().to_owned();
                let more = text.chars().count() + 3;
                if length > start.len() && length + more > self.width {
                    self.write_line(line[self.indent.len()..].trim_end());
                    (line, length) = (start.clone(), start.len());
                }
                line += &format!("{}   ", self.paint_cell(cell, &text));
                length += more;
            }
            self.write_line(line[self.indent.len()..].trim_end());
        }
    }

    /// Writes a heading at the margin; what follows is indented.
    fn write_heading(&mut self, text: &str) {
        let painted = self.paint(BOLD, &sanitise_text(text));
        self.indent = "";
        self.write_line(&painted);
        self.indent = "  ";
    }

    fn write_line(&mut self, line: &str) {
        let line = format!("{}{line}", self.indent);
        self.out += line.trim_end();
        self.out.push('\n');
    }

    fn paint(&self, paint: &str, text: &str) -> String {
        if self.has_colour && !paint.is_empty() {
            format!("\x1b[{paint}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn paint_cell(&self, cell: &Cell, text: &str) -> String {
        match cell.content {
            CellContent::Verdict(class) => self.paint(colour_code(class), text),
            _ => text.to_owned(),
        }
    }

    /// Writes lines of whole words within the width; further lines are indented by two more.
    fn write_wrapped(&mut self, text: &str) {
        let (text, indent) = (sanitise_text(text), self.indent);
        let (mut line, mut length) = (String::new(), indent.len());
        for word in text.split_whitespace() {
            let more = word.chars().count() + usize::from(!line.is_empty());
            if !line.trim().is_empty() && length + more > self.width {
                self.write_line(&line);
                (line, length) = ("  ".to_owned(), indent.len() + 2);
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            length += more;
        }
        if !line.is_empty() {
            self.write_line(&line);
        }
    }
}

/// Returns the number of the escape sequence that colours a class; empty for no colour.
fn colour_code(class: JudgementColour) -> &'static str {
    match class {
        JudgementColour::Good => "32",
        JudgementColour::Warn => "33",
        JudgementColour::Bad => "31",
        JudgementColour::Calm => "34",
        JudgementColour::Mute => "",
    }
}

fn plain_text(cell: &Cell) -> String {
    sanitise_text(&cell.text) + if cell.is_simulated { ", simulated" } else { "" }
}

fn align_text(text: &str, width: usize, is_number: bool) -> String {
    if is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// Marks what must not reach the terminal as a command to it, and joins lines.
fn sanitise_text(text: &str) -> String {
    replace_invisible(&text.replace(['\n', '\t'], " "))
}

/// Cuts a text to at most `room` characters, the last an ellipsis where more were cut.
fn truncate_text(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let start: String = text.chars().take(room.saturating_sub(1)).collect();
    start + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Column, TableBody};

    fn writer(width: usize) -> TextWriter {
        TextWriter { out: String::new(), width, has_colour: false, indent: "  " }
    }

    #[test]
    fn lines_break_between_words_and_escapes_stay_text() {
        let mut writer = writer(20);
        writer.write_wrapped("one two three four five\x1b[2J six");
        assert!(writer.out.lines().all(|line| line.chars().count() <= 20), "{}", writer.out);
        assert!(!writer.out.contains('\x1b'));
    }

    #[test]
    fn without_colour_nothing_is_painted() {
        assert_eq!(writer(80).paint(colour_code(JudgementColour::Bad), "text"), "text");
        assert_eq!(truncate_text("abcdef", 4), "abc…");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("", vec![Column::new_label("name"), Column::new_number("n")]);
        assert!(table.is_empty());
        table.push(vec!["a longer name".into(), "12".into()]);
        table.bodies.push(TableBody::default());
        table.push(vec!["b".into(), "3".into()]);
        let text =
            render_sections(&[Section::new("", vec![Block::Table(table)])], Terminal::UNLIMITED);
        assert_eq!(text, "name            n\na longer name  12\n\nb               3\n");
    }
}

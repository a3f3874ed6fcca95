//! The report for a terminal: readable at 80 columns, one line a row where there is room.

use std::fmt::Write;

use crate::{
    fit::fits,
    page::{
        environment::command_line,
        html::is_invisible,
        judgement::{judgements, placement},
        layers::{LayerRows, MissingSuite, layers},
        view::RecordView,
        words::{answers, tally},
    },
    rows::{
        row::{Aa, Outcome, Row},
        text::cells,
    },
};

/// What a terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// In characters.
    pub width: usize,
    /// Whether escape sequences are understood and wanted.
    pub colour: bool,
}

/// Narrower, lines would be one word each.
const WIDTH_MIN: usize = 40;
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 160;
/// From here on a row is one line.
const ONE_LINE: usize = 118;

/// The whole text.
pub(crate) fn render(
    shown: &[RecordView<'_>],
    absent: &[MissingSuite],
    terminal: Terminal,
) -> String {
    let width = terminal.width.clamp(WIDTH_MIN, WIDTH_MAX);
    let mut page = Page { out: String::new(), width, colour: terminal.colour };
    let all = layers(shown, absent);
    for layer in &all {
        page.layer(layer, shown.len() > 1);
    }
    page.absent(&all);
    for one in shown {
        page.record(one);
    }
    page.out
}

struct Page {
    out: String,
    width: usize,
    colour: bool,
}

impl Page {
    fn layer(&mut self, layer: &LayerRows<'_>, many: bool) {
        if !layer.is_measured() {
            return;
        }
        self.heading(layer.layer.title());
        for sentence in answers(layer) {
            let before = match sentence.before {
                "" => String::new(),
                before => format!("{before}: "),
            };
            let source =
                if many { format!("; {}", sentence.said.shown.name()) } else { String::new() };
            let (said, detail) = (&sentence.text, &sentence.detail);
            self.wrapped("  ", &format!("{before}{said} ({detail}{source})"));
        }
        for figure in &layer.figures {
            self.wrapped("  ", figure);
        }
        if !layer.rows.is_empty() {
            self.wrapped("  ", &tally(layer.rows.iter().map(|said| said.row)));
        }
        if !layer.missing.is_empty() {
            self.wrapped("  ", &format!("Not measured here: {}", layer.missing.join("; ")));
        }
        self.out.push('\n');
    }

    fn absent(&mut self, all: &[LayerRows<'_>]) {
        let absent: Vec<&LayerRows<'_>> = all.iter().filter(|one| !one.is_measured()).collect();
        if absent.is_empty() {
            return;
        }
        self.heading("Not measured here");
        for layer in absent {
            let why = match layer.layer.suite() {
                Some(suite) if layer.missing.is_empty() => {
                    format!("no record of it was given; confide bench run {suite}")
                }
                _ => layer.missing.join("; "),
            };
            self.wrapped("  ", &format!("{}: {why}", layer.layer.title()));
        }
        self.out.push('\n');
    }

    fn record(&mut self, shown: &RecordView<'_>) {
        let record = shown.record;
        self.heading(&format!("{}: {}", shown.name(), record.suite.title));
        self.wrapped("  ", &placement(record)[1..].join(", "));
        for judgement in judgements(record) {
            let paint = match judgement.class {
                "good" => GREEN,
                "bad" => RED,
                _ => YELLOW,
            };
            let strong = self.painted(paint, &clean(&judgement.strong));
            // The strong words are painted, so the wrapping counts them without their paint.
            let plain = format!("{} {}", judgement.strong, judgement.text);
            let from = self.out.len();
            self.wrapped("  ", &plain);
            let strong_plain = clean(&judgement.strong);
            if let Some(at) = self.out[from..].find(&strong_plain) {
                self.out.replace_range(from + at..from + at + strong_plain.len(), &strong);
            }
        }
        self.out.push('\n');
        let rows: Vec<&Row> = record.rows.iter().filter(|row| row.headline).collect();
        let of = |twin: bool| rows.iter().filter(move |row| row.twin == twin).copied();
        self.rows(&of(false).collect::<Vec<_>>());
        if of(true).next().is_some() {
            self.out.push('\n');
            self.wrapped("  ", "A/A, the reference arm against itself:");
            self.rows(&of(true).collect::<Vec<_>>());
        }
        for fitted in fits(record) {
            let simulated = if fitted.simulated { " (simulated)" } else { "" };
            self.wrapped("  ", &format!("{}: {}{simulated}", fitted.name, fitted.text));
        }
        self.out.push('\n');
        self.wrapped("  ", &format!("again: {}", command_line(record)));
        self.out.push('\n');
    }

    fn rows(&mut self, rows: &[&Row]) {
        let cells: Vec<[String; 6]> =
            rows.iter().map(|row| cells(row).map(|text| clean(&text))).collect();
        let wide = |column: usize| {
            cells.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [0, 1, 2, 3, 4, 5].map(wide);
        let numbers: usize = widths[1..].iter().sum::<usize>() + 14;
        if self.width >= ONE_LINE && self.width > numbers + 24 {
            let room = (self.width - numbers).min(widths[0]);
            self.one_line_each(rows, &cells, &widths, room);
        } else {
            self.two_lines_each(rows, &cells);
        }
    }

    fn one_line_each(
        &mut self,
        rows: &[&Row],
        cells: &[[String; 6]],
        widths: &[usize; 6],
        room: usize,
    ) {
        for (row, [label, clear, protected, cost, n, said]) in rows.iter().zip(cells) {
            let label = cut(label, room);
            let said = self.painted(paint_of(row), said);
            let _ = writeln!(
                self.out,
                "  {label:<room$}  {clear:>w1$}  {protected:>w2$}  {cost:<w3$}  {n:>w4$}  {said}",
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
                w4 = widths[4],
            );
        }
    }

    fn two_lines_each(&mut self, rows: &[&Row], cells: &[[String; 6]]) {
        for (row, [label, clear, protected, cost, n, said]) in rows.iter().zip(cells) {
            self.wrapped("  ", label);
            let line = format!("      {clear} -> {protected}   {cost}   n {n}");
            let together = format!("{line}   {said}");
            if together.chars().count() <= self.width {
                let said = self.painted(paint_of(row), said);
                let _ = writeln!(self.out, "{line}   {said}");
            } else {
                let _ = writeln!(self.out, "{line}");
                let said = self.painted(paint_of(row), said);
                let _ = writeln!(self.out, "      {said}");
            }
        }
    }

    fn heading(&mut self, text: &str) {
        let text = clean(text);
        let painted = self.painted(BOLD, &text);
        let _ = writeln!(self.out, "{painted}");
    }

    fn painted(&self, paint: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{paint}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Lines of whole words within the width; further lines stand in by two.
    fn wrapped(&mut self, indent: &str, text: &str) {
        let text = clean(text);
        let mut line = indent.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            let long = line.chars().count() + 1 + word.chars().count() > self.width;
            if long && !empty {
                let _ = writeln!(self.out, "{line}");
                line = format!("{indent}  ");
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        let _ = writeln!(self.out, "{line}");
    }
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const PLAIN: &str = "0";

fn paint_of(row: &Row) -> &'static str {
    match (row.aa, row.outcome) {
        (Some(Aa::OutsideMargin | Aa::ExcludesOne), _) => RED,
        _ if row.twin => PLAIN,
        (_, Outcome::WithinMargin) => GREEN,
        (_, Outcome::AboveMargin) => YELLOW,
        (_, Outcome::BelowMargin) => BLUE,
        _ => PLAIN,
    }
}

/// What a record says must not reach the terminal as a command to it.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if is_invisible(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// At most `room` characters, the last an ellipsis where more were cut.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_escapes_stay_text() {
        let mut page = Page { out: String::new(), width: 20, colour: false };
        page.wrapped("  ", "one two three four five\x1b[2J six");
        assert!(page.out.lines().all(|line| line.chars().count() <= 20), "{}", page.out);
        assert!(!page.out.contains('\x1b'));
    }

    #[test]
    fn without_colour_nothing_is_painted() {
        let page = Page { out: String::new(), width: 80, colour: false };
        assert_eq!(page.painted(RED, "text"), "text");
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}

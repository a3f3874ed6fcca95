//! The report as Markdown, for a code host: tables, verdicts, environment, no markup of ours.

use std::fmt::Write;

use crate::{
    fit::fits,
    page::{
        environment::{command_line, facts},
        html::is_invisible,
        judgement::{judgements, placement},
        layers::{LayerRows, MissingSuite, layers},
        view::RecordView,
        words::{answers, tally},
    },
    record::{ArmRecord, Record},
    rows::{
        row::Row,
        text::{HEAD, cells},
    },
    text_table::TextTable,
};

/// Voids listed in full.
const VOIDS_SHOWN: usize = 20;

/// The whole text.
pub(crate) fn render(shown: &[RecordView<'_>], absent: &[MissingSuite]) -> String {
    let mut out = match shown {
        [one] => {
            format!("# {}\n\n{}\n\n", text(&one.record.suite.title), text(&one.record.suite.about))
        }
        many => format!("# What protection costs here: {} records\n\n", many.len()),
    };
    if shown.len() > 1 {
        list(&mut out, shown);
    }
    overview(&mut out, shown, absent);
    for one in shown {
        record(&mut out, one, shown.len() > 1);
    }
    out
}

/// Text of a record as plain text: what Markdown or HTML would act on is escaped.
fn text(raw: &str) -> String {
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

/// A block in which nothing acts: its fence is longer than any run of backticks within.
fn fenced(out: &mut String, raw: &str) {
    let mut longest = 0;
    let mut run = 0;
    for c in raw.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest.max(2) + 1);
    let clean: String = raw.chars().map(|c| if is_invisible(c) { '\u{fffd}' } else { c }).collect();
    let _ = write!(out, "{fence}text\n{}\n{fence}\n\n", clean.trim_end());
}

fn list(out: &mut String, shown: &[RecordView<'_>]) {
    let mut records = TextTable::new(&["record", "machine", "may it be believed?"]);
    for one in shown {
        let placed = placement(one.record);
        let said: Vec<String> =
            judgements(one.record).iter().map(|judgement| text(&judgement.strong)).collect();
        records.push([text(&one.name()), text(&placed[2]), said.join(" ")]);
    }
    out.push_str(&records.markdown(&[]));
}

fn overview(out: &mut String, shown: &[RecordView<'_>], absent: &[MissingSuite]) {
    out.push_str("## The answers, layer by layer\n\n");
    let all = layers(shown, absent);
    for layer in all.iter().filter(|layer| layer.is_measured()) {
        write_answers(out, layer, shown.len() > 1);
    }
    let absent = || all.iter().filter(|layer| !layer.is_measured());
    if absent().next().is_some() {
        out.push_str("### Not measured here\n\n");
        for layer in absent() {
            let why = match (layer.missing.as_slice(), layer.layer.suite()) {
                ([], Some(suite)) => {
                    format!("no record of it was given: `confide bench run {suite}`")
                }
                (missing, _) => text(&missing.join("; ")),
            };
            let _ = writeln!(out, "- **{}**: {why}", layer.layer.title());
        }
        out.push('\n');
    }
}

fn write_answers(out: &mut String, layer: &LayerRows<'_>, many: bool) {
    let _ = write!(out, "### {}\n\n*{}*\n\n", layer.layer.title(), layer.layer.question());
    for sentence in answers(layer) {
        let before = match sentence.before {
            "" => String::new(),
            before => format!("{before}: "),
        };
        let source =
            if many { format!("; {}", text(&sentence.said.shown.name())) } else { String::new() };
        let (said, detail) = (text(&sentence.text), text(&sentence.detail));
        let _ = writeln!(out, "- {before}{said} ({detail}{source})");
    }
    for figure in &layer.figures {
        let _ = writeln!(out, "- {}", text(figure));
    }
    if !layer.rows.is_empty() {
        let _ = writeln!(out, "\n{}", tally(layer.rows.iter().map(|said| said.row)));
    }
    out.push('\n');
    if !layer.missing.is_empty() {
        let _ = write!(out, "Not measured here: {}\n\n", text(&layer.missing.join("; ")));
    }
}

fn record(out: &mut String, shown: &RecordView<'_>, many: bool) {
    let record = shown.record;
    let below = if many {
        let _ = write!(out, "## {}\n\n{}\n\n", text(&shown.name()), text(&record.suite.title));
        "###"
    } else {
        "##"
    };
    for fact in placement(record) {
        let _ = writeln!(out, "- {}", text(&fact));
    }
    out.push('\n');
    for judgement in judgements(record) {
        let _ = writeln!(out, "- **{}** {}", text(&judgement.strong), text(&judgement.text));
    }
    let _ = write!(out, "\n{below} Cost of each layer\n\n");
    let headline = |twin: bool| record.rows.iter().filter(move |r| r.headline && r.twin == twin);
    table(out, headline(false));
    let _ = write!(out, "{below} A/A: the reference arm against itself\n\n");
    table(out, headline(true));
    let grown = fits(record);
    if !grown.is_empty() {
        let _ = write!(out, "{below} How cost grows with work\n\n");
        for fitted in grown {
            let simulated = if fitted.simulated { ", *simulated*" } else { "" };
            let _ = writeln!(out, "- {}: {}{simulated}", text(&fitted.name), text(&fitted.text));
        }
        out.push('\n');
    }
    let rest: Vec<&Row> = record.rows.iter().filter(|row| !row.headline).collect();
    if !rest.is_empty() {
        let _ = write!(out, "{below} Every other comparison\n\n");
        table(out, rest.into_iter());
    }
    arms(out, record, below);
    environment(out, shown, below);
}

fn table<'a>(out: &mut String, rows: impl Iterator<Item = &'a Row>) {
    let [label, clear, protected, _, n, verdict] = HEAD;
    let head = [label, clear, protected, "cost [95 %]", n, verdict, "definition"];
    let mut lines = TextTable::new(&head);
    for one in rows {
        let [label, clear, protected, cost, n, judged] = cells(one);
        let twin = if one.twin { ", A/A" } else { "" };
        let definition =
            format!("{}, {}, {} loop", text(&one.model), text(&one.metric), text(&one.load));
        let label = format!("{}{twin}", text(&label));
        lines.push([label, clear, protected, cost, n, text(&judged), definition]);
    }
    out.push_str(&lines.markdown(&[1, 2, 4]));
}

fn arms(out: &mut String, record: &Record, below: &str) {
    let _ = write!(out, "{below} What was compared, and who is protected from whom\n\n");
    let mut arms = TextTable::new(&["arm", "what it does", "protects", "guarantee it computed"]);
    let mut seen: Vec<&str> = Vec::new();
    for arm in record.arms.iter().filter(|arm| !arm.twin) {
        if !seen.contains(&arm.name.as_str()) {
            seen.push(&arm.name);
            arms.push(arm_cells(arm));
        }
    }
    out.push_str(&arms.markdown(&[]));
}

fn arm_cells(arm: &ArmRecord) -> [String; 4] {
    let simulated = if arm.simulated { ", *simulated*" } else { "" };
    [
        format!("{}{simulated}", text(&arm.label)),
        text(&arm.description),
        text(&arm.protects),
        text(arm.guarantee.as_deref().unwrap_or("none said")),
    ]
}

fn environment(out: &mut String, shown: &RecordView<'_>, below: &str) {
    let record = shown.record;
    let _ = write!(out, "{below} Environment, and how to run it again\n\n");
    fenced(out, &command_line(record));
    for (title, facts) in facts(record, shown.slices) {
        let _ = write!(out, "{below}# {}\n\n", text(&title));
        let mut lines = TextTable::new(&["what", "here"]);
        facts.iter().for_each(|(name, fact)| lines.push([text(name), text(fact)]));
        out.push_str(&lines.markdown(&[]));
    }
    if record.voids.is_empty() {
        return;
    }
    let _ = write!(out, "{below} Voids\n\n");
    for void in record.voids.iter().take(VOIDS_SHOWN) {
        let place = format!("{} {} block {} {}", void.bench, void.case, void.block, void.arm);
        let _ = writeln!(out, "- {}: {}", text(&place), text(&void.reason));
    }
    if record.voids.len() > VOIDS_SHOWN {
        let _ = writeln!(out, "- and {} more, in the record", record.voids.len() - VOIDS_SHOWN);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_record_stays_text() {
        let hostile = "<img src=x onerror=alert(1)> [x](javascript:1) `a` |b| # c\n> d \u{1b}[0m";
        let shown = text(hostile);
        for acting in ["<img", " [x]", " `a", " |b", "\n", "\u{1b}"] {
            assert!(!shown.contains(acting), "{acting:?} in {shown}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        let mut out = String::new();
        fenced(&mut out, "a ```` b");
        assert!(out.starts_with("`````text\n"));
    }
}

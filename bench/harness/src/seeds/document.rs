//! The document: Markdown, made whole from the data file and the records.

use std::fmt::Write;

use super::{
    Suites,
    data::{AnswersOf, Check, Kind, Report, Row, Seeds, Table},
    found::{SeedAnswer, find, name},
};
use crate::{format::digits, loaded::Loaded, plan::Effort, validity::Validity};

/// Before the command, in the document's head.
const MADE_BY: &str = "Made by `";

/// The command that a document says it was made by.
#[cfg(test)]
pub(super) fn command_of(document: &str) -> Option<&str> {
    document.split_once(MADE_BY)?.1.split('`').next()
}

/// What the document is made of.
pub(super) struct Document<'a> {
    pub(super) seeds: &'a Seeds,
    pub(super) suites: &'a Suites,
    pub(super) records: &'a [Loaded],
}

impl Document<'_> {
    /// The whole text, ending in a newline.
    pub(super) fn markdown(&self, command: &str) -> String {
        let mut text = String::new();
        head(&mut text, self.seeds, command);
        for report in &self.seeds.reports {
            self.report(&mut text, report);
        }
        machines(&mut text, self.records);
        text
    }

    fn report(&self, text: &mut String, report: &Report) {
        let Report { id, title, source, compared } = report;
        let _ = write!(text, "\n## {id}: {title}\n\n{source}. {compared}\n");
        for table in self.seeds.tables.iter().filter(|table| table.report == *id) {
            let _ = write!(text, "\n### {id}, {}\n\n", table.name);
            text.push_str("| row | theirs | ours | record |\n| --- | --- | --- | --- |\n");
            table.answers.iter().for_each(|of| self.answers(text, of));
            table.rows.iter().for_each(|row| self.row(text, row));
            let of_table = |check: &&Check| check.report == *id && check.table == table.name;
            verdicts(text, table, self.seeds.checks.iter().filter(of_table));
        }
    }

    fn row(&self, text: &mut String, row: &Row) {
        let (mut ours, mut named) = (Vec::new(), Vec::new());
        for answer in &row.ours {
            match find(answer, self.suites, self.records) {
                SeedAnswer::NotBuilt => ours.push(format!("*not built*: suite `{}`", answer.suite)),
                SeedAnswer::NoRecord => {
                    let (suite, bench, arm) = (&answer.suite, &answer.bench, &answer.arm);
                    ours.push(format!("*no record*: `{suite}`, {bench}, {arm}, {}", answer.metric));
                }
                SeedAnswer::Figure(said, loaded) => {
                    ours.push(said);
                    named.push(format!("`{}`", name(loaded)));
                }
            }
        }
        if let Some(wanted) = &row.not_built {
            ours.push(match self.suites.of(wanted) {
                None => format!("*not built*: suite `{wanted}`"),
                Some(_) => format!("suite `{wanted}` has no row for it yet"),
            });
        }
        ours.extend(row.absent.clone());
        ours.extend(row.note.iter().map(|note| format!("({note})")));
        ours.dedup();
        named.dedup();
        line(text, &row.what, &row.theirs, &ours.join("<br>"), &named.join("<br>"));
    }

    /// Rows that a suite holds beside its own.
    fn answers(&self, text: &mut String, of: &AnswersOf) {
        let suite = self.suites.of(&of.suite);
        let Some(table) =
            suite.and_then(|suite| suite.answers.iter().find(|table| table.title == of.title))
        else {
            let missing = format!("*not built*: suite `{}`", of.suite);
            return line(text, &of.title, "–", &missing, "");
        };
        for row in &table.rows {
            self.row(text, &Row::of_suite(&of.suite, row));
        }
    }
}

fn head(text: &mut String, seeds: &Seeds, command: &str) {
    let of = |kind: Kind| seeds.checks.iter().filter(|check| check.kind == kind).count();
    let (wrong, same) = (of(Kind::Contradiction), of(Kind::Identity));
    let (fine, few) = (of(Kind::TooFine), of(Kind::TooFew));
    let _ = write!(
        text,
        "# The five published reports, table by table\n\n\
         {MADE_BY}{command}`, from records and `bench/seeds.toml`: do not edit it by hand.\n\n\
         What they printed is quoted as printed, for one purpose: to say which row of ours answers \
         it. Theirs was measured on other machines, other models and other years, so that no ratio \
         of ours and theirs is made anywhere. Ours is of the records named at the end; a row whose \
         suite does not exist says *not built*, a row without a record *no record*. Evidence here \
         is simulated: what is measured is work, not the protection of a machine, and no row of \
         ours says what a TEE costs.\n\n\
         Each sum below is made anew by this command and by `cargo test -p confide-bench seeds`, \
         from numbers that the report itself prints: in {wrong} places they disagree with what it \
         says of them, in {same} two figures are one, {fine} figures are finer than the digits they \
         rest on, {few} percentiles have no tail.\n"
    );
}

fn verdicts<'a>(text: &mut String, table: &Table, checks: impl Iterator<Item = &'a Check>) {
    let sums: Vec<String> = checks.map(sum).collect();
    let list = |text: &mut String, title: &str, points: &[String]| {
        if !points.is_empty() {
            let _ = write!(text, "\n{title}\n\n");
            points.iter().for_each(|point| {
                let _ = writeln!(text, "- {point}");
            });
        }
    };
    list(text, "Their own numbers:", &sums);
    list(text, "What else is wrong or not said in theirs:", &table.wrong);
    list(text, "How ours is kept from it:", &table.kept);
    if !table.traps.is_empty() {
        let traps: Vec<String> = table.traps.iter().map(|trap| format!("*{trap}*")).collect();
        let _ = write!(text, "\nTried by `confide bench selftest`: {}.\n", traps.join(", "));
    }
    if let Some(hardware) = &table.hardware {
        let _ = write!(text, "\nNot measured here: {hardware}.\n");
    }
}

fn sum(check: &Check) -> String {
    let Some((computed, _)) = check.judged() else { return check.claim.clone() };
    let unit = match check.unit.as_str() {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let [low, high] = check.printed.ends();
    let printed =
        if low == high { quoted(low) } else { format!("{} to {}", quoted(low), quoted(high)) };
    let computed = beside(computed, low);
    let said = if check.implied { "wanted" } else { "printed" };
    let joint = match check.kind {
        Kind::Contradiction => format!("{said} {printed}{unit}, computed"),
        Kind::Identity => format!("{said} {printed}{unit}, from the other figures"),
        Kind::TooFine => format!("{said} {printed}{unit}, while the digits resolve"),
        Kind::TooFew => format!("wanted {printed} samples beyond it, had"),
    };
    let note = check.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let (claim, compute) = (&check.claim, &check.compute);
    format!("{claim}: {joint} `{compute}` = **{computed}{unit}**{note}")
}

/// A number as it was printed, digit for digit.
fn quoted(number: f64) -> String {
    let text = number.to_string();
    if number.abs() >= 10_000.0 { signed(digits(number)) } else { signed(text) }
}

/// A sum with as many decimals as what it stands beside, or three digits.
fn beside(number: f64, printed: f64) -> String {
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, after)| after.len());
    let (short, places) = (digits(number), decimals(&printed.to_string()));
    signed(if decimals(&short) < places { format!("{number:.places$}") } else { short })
}

fn signed(text: String) -> String {
    text.replacen('-', "−", 1)
}

fn line(text: &mut String, what: &str, theirs: &str, ours: &str, record: &str) {
    let cell =
        |cell: &str| if cell.is_empty() { "–".to_owned() } else { cell.replace('|', "\\|") };
    let [what, theirs, ours, record] = [what, theirs, ours, record].map(cell);
    let _ = writeln!(text, "| {what} | {theirs} | {ours} | {record} |");
}

fn machines(text: &mut String, records: &[Loaded]) {
    text.push_str("\n## Records\n\n| record | suite | blocks | A/A | machine | commit |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for loaded in records {
        let record = &loaded.record;
        let effort = match (record.effort, record.blocks_asked) {
            (_, Some(blocks)) => format!("{blocks} asked for"),
            (Effort::Quick, None) => "quick".to_owned(),
            (Effort::Full, None) => "full".to_owned(),
        };
        let validity = match &record.validity {
            Validity::Valid { judged, failed } => {
                format!("passed, {} of {judged}", judged - failed)
            }
            Validity::Invalid { .. } => "**failed**".to_owned(),
            Validity::NotJudged { .. } => "not judged: indicative".to_owned(),
        };
        let machine = &record.machine;
        let commit: String = record.commit.chars().take(12).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {effort} | {validity} | {}, {} CPUs, Linux {} | `{commit}` |",
            name(loaded),
            record.suite.name,
            machine.cpu_model,
            machine.cpus_online,
            machine.kernel,
        );
    }
    if records.is_empty() {
        text.push_str("| none | – | – | – | – | – |\n");
    }
}

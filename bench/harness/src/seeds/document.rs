//! The document: Markdown, made whole from the data file and the records.

use super::{
    answers::{RowLookup, find_answer, record_name},
    data::{
        ArithmeticCheck, CheckKind, OurRow, PublishedReport, PublishedReports, PublishedRow,
        PublishedTable, SuiteTableReference,
    },
    suites::NamedSuites,
};
use crate::{
    document::markdown::render_grid, format::format_number, loaded::LoadedRecord, plan::Effort,
    validity::Validity,
};

/// The words before the command in the document's introduction.
const MADE_BY: &str = "Made by `";

/// Finds the command that a document says it was made by.
#[cfg(test)]
pub(super) fn find_command(document: &str) -> Option<&str> {
    document.split_once(MADE_BY)?.1.split('`').next()
}

/// The data file, its suites, and the records that answer it.
pub(super) struct ReportsDocument<'a> {
    pub(super) seeds: &'a PublishedReports,
    pub(super) suites: &'a NamedSuites,
    pub(super) records: &'a [LoadedRecord],
}

impl ReportsDocument<'_> {
    /// Writes the whole text, ending in a newline.
    pub(super) fn render(&self, command: &str) -> String {
        let mut text = render_introduction(self.seeds, command);
        for report in &self.seeds.reports {
            text += &self.render_report(report);
        }
        text + &render_record_list(self.records)
    }

    /// Lists the rows that are to be answered by a record, and are not.
    pub(super) fn unanswered_rows(&self) -> Vec<String> {
        let mut unanswered = Vec::new();
        for table in &self.seeds.tables {
            let held: Vec<PublishedRow> =
                table.answers.iter().flat_map(|answers| self.suite_table_rows(answers)).collect();
            for row in held.iter().chain(&table.rows) {
                for answer in &row.ours {
                    if !matches!(
                        find_answer(answer, self.suites, self.records),
                        RowLookup::Figure(..)
                    ) {
                        let OurRow { suite, bench, arm, metric, .. } = answer;
                        unanswered.push(format!(
                            "{}, {}, {}: {suite}, {bench}, {arm}, {metric}",
                            table.report, table.name, row.what
                        ));
                    }
                }
            }
        }
        unanswered
    }

    fn render_report(&self, report: &PublishedReport) -> String {
        let PublishedReport { id, title, source, compared } = report;
        let mut text = format!("\n## {id}: {title}\n\n{source}. {compared}\n");
        for table in self.seeds.tables.iter().filter(|table| table.report == *id) {
            let held = table.answers.iter().flat_map(|answers| self.render_suite_rows(answers));
            let rows: Vec<Vec<String>> =
                held.chain(table.rows.iter().map(|row| self.render_row(row))).collect();
            let heads = ["row", "theirs", "ours", "record"];
            let grid = render_grid(&heads, &rows, &[false; 4]);
            text += &format!("\n### {id}, {}\n\n{}", table.name, grid.trim_end());
            text.push('\n');
            let is_checked =
                |check: &&ArithmeticCheck| check.report == *id && check.table == table.name;
            text += &render_verdicts(table, self.seeds.checks.iter().filter(is_checked));
        }
        text
    }

    /// Writes the cells of one row: what it is, theirs, ours, and the records that ours is from.
    fn render_row(&self, row: &PublishedRow) -> Vec<String> {
        let (mut ours, mut names) = (Vec::new(), Vec::new());
        for answer in &row.ours {
            match find_answer(answer, self.suites, self.records) {
                RowLookup::NotBuilt => ours.push(format!("*not built*: suite `{}`", answer.suite)),
                RowLookup::NoRecord => {
                    let (suite, bench, arm) = (&answer.suite, &answer.bench, &answer.arm);
                    ours.push(format!("*no record*: `{suite}`, {bench}, {arm}, {}", answer.metric));
                }
                RowLookup::Figure(text, loaded) => {
                    ours.push(text);
                    names.push(format!("`{}`", record_name(loaded)));
                }
            }
        }
        if let Some(wanted) = &row.not_built {
            ours.push(match self.suites.find(wanted) {
                None => format!("*not built*: suite `{wanted}`"),
                Some(_) => format!("suite `{wanted}` has no row for it yet"),
            });
        }
        ours.extend(row.absent.clone());
        ours.extend(row.note.iter().map(|note| format!("({note})")));
        ours.dedup();
        names.dedup();
        dash_if_empty([&row.what, &row.theirs, &ours.join("<br>"), &names.join("<br>")])
    }

    /// Writes the rows that a suite holds next to its own.
    fn render_suite_rows(&self, answers: &SuiteTableReference) -> Vec<Vec<String>> {
        let rows = self.suite_table_rows(answers);
        if rows.is_empty() {
            let missing = format!("*not built*: suite `{}`", answers.suite);
            return vec![dash_if_empty([&answers.title, "–", &missing, ""])];
        }
        rows.iter().map(|row| self.render_row(row)).collect()
    }

    /// Lists the rows that a suite holds already; none where the suite is not there.
    fn suite_table_rows(&self, answers: &SuiteTableReference) -> Vec<PublishedRow> {
        let suite = self.suites.find(&answers.suite);
        let table =
            suite.and_then(|suite| suite.answers.iter().find(|table| table.title == answers.title));
        let rows = table.map(|table| table.rows.as_slice()).unwrap_or_default();
        rows.iter().map(|row| PublishedRow::from_suite(&answers.suite, row)).collect()
    }
}

/// Writes the cells of a row; an empty one is a dash.
fn dash_if_empty(texts: [&str; 4]) -> Vec<String> {
    let cell =
        |text: &str| if text.is_empty() { "–".to_owned() } else { text.replace('|', "\\|") };
    texts.map(cell).into()
}

fn render_introduction(seeds: &PublishedReports, command: &str) -> String {
    let count = |kind: CheckKind| seeds.checks.iter().filter(|check| check.kind == kind).count();
    let (wrong, same) = (count(CheckKind::Contradiction), count(CheckKind::Identity));
    let (fine, few) = (count(CheckKind::TooFine), count(CheckKind::TooFew));
    format!(
        "# The five published reports, table by table\n\n\
         {MADE_BY}{command}`, from records and `bench/seeds.toml`: do not edit it by hand.\n\n\
         The figures of the reports are quoted as printed, only to show which row of ours answers \
         each. They were measured on other machines, with other models and in other years, so no \
         ratio of ours to theirs is given anywhere. Our figures come from the records named at the \
         end. A row whose suite does not exist says *not built*, a row without a record *no \
         record*. Evidence here is simulated: our rows measure work, not the protection of a \
         machine, and none says what a TEE costs.\n\n\
         This command and `cargo test -p confide-bench seeds` repeat each calculation below with \
         numbers that the report itself prints. In {wrong} places the result contradicts the \
         report; in {same}, one figure merely follows from others; {fine} figures have more digits \
         than their inputs support; {few} percentiles have too few samples in the tail.\n"
    )
}

fn render_verdicts<'a>(
    table: &PublishedTable,
    checks: impl Iterator<Item = &'a ArithmeticCheck>,
) -> String {
    let list = |title: &str, points: &[String]| {
        if points.is_empty() {
            return String::new();
        }
        let points: String = points.iter().map(|point| format!("- {point}\n")).collect();
        format!("\n{title}\n\n{points}")
    };
    let sums: Vec<String> = checks.map(describe_check).collect();
    let mut text = list("Calculations with their own numbers:", &sums);
    text += &list("What else is wrong in their table, or missing from it:", &table.wrong);
    text += &list("How ours avoids it:", &table.kept);
    if !table.traps.is_empty() {
        let traps: Vec<String> = table.traps.iter().map(|trap| format!("*{trap}*")).collect();
        text += &format!("\nTried by `confide bench selftest`: {}.\n", traps.join(", "));
    }
    if let Some(hardware) = &table.hardware {
        text += &format!("\nNot measured here: {hardware}.\n");
    }
    text
}

fn describe_check(check: &ArithmeticCheck) -> String {
    let Some((computed, _)) = check.evaluate() else { return check.claim.clone() };
    let unit = match check.unit.as_str() {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let [low, high] = check.printed.range();
    let printed = if low == high {
        quote_number(low)
    } else {
        format!("{} to {}", quote_number(low), quote_number(high))
    };
    let computed = round_like(computed, low);
    let verb = if check.implied { "wanted" } else { "printed" };
    let joint = match check.kind {
        CheckKind::Contradiction => format!("{verb} {printed}{unit}, computed"),
        CheckKind::Identity => format!("{verb} {printed}{unit}, from the other figures"),
        CheckKind::TooFine => format!("{verb} {printed}{unit}, while the digits resolve only"),
        CheckKind::TooFew => format!("wanted {printed} samples beyond it, got"),
    };
    let note = check.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let (claim, compute) = (&check.claim, &check.compute);
    format!("{claim}: {joint} `{compute}` = **{computed}{unit}**{note}")
}

/// Formats the number as it was printed, digit for digit.
fn quote_number(number: f64) -> String {
    let text = number.to_string();
    if number.abs() >= 10_000.0 {
        with_typographic_minus(format_number(number))
    } else {
        with_typographic_minus(text)
    }
}

/// Formats the sum with as many decimals as the printed number, or three digits.
fn round_like(number: f64, printed: f64) -> String {
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, after)| after.len());
    let (short, places) = (format_number(number), decimals(&printed.to_string()));
    with_typographic_minus(if decimals(&short) < places {
        format!("{number:.places$}")
    } else {
        short
    })
}

/// Writes a negative number with the typographical minus sign.
fn with_typographic_minus(text: String) -> String {
    text.replacen('-', "−", 1)
}

/// Lists the records of the document, for its end.
fn render_record_list(records: &[LoadedRecord]) -> String {
    let mut rows: Vec<Vec<String>> = records.iter().map(record_cells).collect();
    if rows.is_empty() {
        rows.push(["none", "–", "–", "–", "–", "–"].map(str::to_owned).into());
    }
    let heads = ["record", "suite", "blocks", "A/A", "machine", "commit"];
    let grid = render_grid(&heads, &rows, &[false; 6]);
    format!("\n## Records\n\n{}\n", grid.trim_end())
}

fn record_cells(loaded: &LoadedRecord) -> Vec<String> {
    let record = &loaded.record;
    let effort = match (record.effort, record.blocks_asked) {
        (_, Some(blocks)) => format!("{blocks} asked for"),
        (Effort::Quick, None) => "quick".to_owned(),
        (Effort::Full, None) => "full".to_owned(),
    };
    let validity = match &record.validity {
        Validity::Valid { judged, failed } => format!("passed, {} of {judged}", judged - failed),
        Validity::Invalid { .. } => "**failed**".to_owned(),
        Validity::NotJudged { .. } => "not judged: indicative".to_owned(),
    };
    let machine = &record.machine;
    let (model, cpus, kernel) =
        (machine.describe_processor(), machine.cpus_online, &machine.kernel);
    let commit: String = record.commit.chars().take(12).collect();
    vec![
        format!("`{}`", record_name(loaded)),
        record.suite.name.clone(),
        effort,
        validity,
        format!("{model}, {cpus} CPUs, Linux {kernel}"),
        format!("`{commit}`"),
    ]
}

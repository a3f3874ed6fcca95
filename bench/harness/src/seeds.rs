//! The document of the five published reports, table by table: what of ours answers each row, what
//! their own numbers say against them, and how ours is kept from it.
//!
//! `bench/seeds.toml` holds what they printed and the names of our rows. Every figure of ours comes
//! from a record; a row without one says so. A ratio of ours and theirs is never made: machine,
//! model and year differ.

mod answers;
mod arithmetic;
mod data;
mod document;
mod suites;

use self::{data::PublishedReports, suites::NamedSuites};
use crate::{error::BenchError, loaded::LoadedRecord};

/// The data file, as it travels inside the binary.
const DATA: &str = include_str!("../../seeds.toml");

/// The document of the published reports.
#[derive(Clone, Debug)]
pub struct PublishedReportsDocument {
    /// Its text, in Markdown.
    pub text: String,
    /// The rows that a record was to answer and none did with exactly the params asked for.
    pub unanswered: Vec<String>,
}

/// Writes the document in Markdown. `command` is what makes it again, for its first lines.
///
/// # Errors
/// When the data file contradicts itself.
pub fn render_published_reports(
    records: &[LoadedRecord],
    command: &str,
) -> Result<PublishedReportsDocument, BenchError> {
    let seeds = PublishedReports::parse(DATA)?;
    let suites = NamedSuites::parse(&seeds);
    let document = document::ReportsDocument { seeds: &seeds, suites: &suites, records };
    Ok(PublishedReportsDocument {
        text: document.render(command),
        unanswered: document.unanswered_rows(),
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::{
        answers::{RowLookup, find_answer, record_name},
        data::CheckKind,
        *,
    };

    fn parse_data() -> PublishedReports {
        PublishedReports::parse(DATA).unwrap()
    }

    #[test]
    fn the_five_reports_disagree_with_their_own_tables_in_at_least_thirty_places() {
        let seeds = parse_data();
        let mut places = 0;
        for check in &seeds.checks {
            let (computed, agrees) = check.evaluate().unwrap();
            let [low, high] = check.printed.range();
            let shown = format!("{}: {} = {computed}", check.claim, check.compute);
            match check.kind {
                CheckKind::Contradiction => assert!(!agrees, "{shown} fits {low} to {high}"),
                CheckKind::Identity => assert!(agrees, "{shown} is not {low} to {high}"),
                CheckKind::TooFew => assert!(computed < low, "{shown} is enough"),
                CheckKind::TooFine => {
                    assert!(computed + check.round >= high.abs(), "{shown} resolves {high}");
                }
            }
            places += usize::from(check.kind == CheckKind::Contradiction);
        }
        assert!(places >= 30, "{places} places");
        let reports: BTreeSet<&str> = seeds.checks.iter().map(|c| c.report.as_str()).collect();
        assert_eq!(reports.len(), 5, "{reports:?}");
    }

    #[test]
    fn every_row_that_is_named_as_ours_is_in_its_suite() {
        let seeds = parse_data();
        let suites = NamedSuites::parse(&seeds);
        for table in &seeds.tables {
            for answer in table.rows.iter().flat_map(|row| &row.ours) {
                let Some(suite) = suites.find(&answer.suite) else {
                    println!("not built yet: suite {}", answer.suite);
                    continue;
                };
                if let Err(message) = answer.check(suite) {
                    panic!("{}, {}, suite {}: {message}", table.report, table.name, answer.suite);
                }
            }
        }
    }

    #[test]
    fn every_trap_that_is_named_is_one_of_the_self_test() {
        let traps = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/selftest/traps.rs");
        let Ok(source) = std::fs::read_to_string(traps) else {
            println!("skipped: no src/selftest/traps.rs");
            return;
        };
        for table in parse_data().tables {
            for trap in &table.traps {
                let quoted = format!("\"{trap}\"");
                assert!(source.contains(&quoted), "{}: no trap {trap}", table.name);
            }
        }
    }

    /// Lists the first line of each table of a published text, as Markdown has it or in columns.
    fn heads(text: &str) -> Vec<String> {
        let bare = |line: &str| line.trim().replace("**", "");
        let lines: Vec<String> = text.lines().map(bare).collect();
        let is_rule = |line: &str| {
            line.starts_with('|') && line.contains("--") && !line.contains(char::is_alphabetic)
        };
        let mut heads = Vec::new();
        for pair in lines.windows(2) {
            if pair[0].starts_with('|') && is_rule(&pair[1]) {
                heads.push(squeeze(&pair[0]));
            }
            if pair[0].starts_with("concurrency  ops") || pair[0].starts_with("mode  ") {
                heads.push(squeeze(&pair[0]));
            }
        }
        heads
    }

    /// Removes the spaces that line columns up.
    fn squeeze(line: &str) -> String {
        let words: Vec<&str> = line.split(['|', ' ', '\t']).filter(|w| !w.is_empty()).collect();
        words.join(" ")
    }

    #[test]
    fn every_table_of_the_reports_is_gone_through() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
        let Ok(files) = std::fs::read_dir(&folder) else {
            println!("skipped: no ../shared/seeds");
            return;
        };
        let seeds = parse_data();
        let mut seen = 0;
        for file in files {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let report = &name[..3];
            let text = std::fs::read_to_string(&path).unwrap();
            let mut wanted = heads(&text);
            for table in seeds.tables.iter().filter(|table| table.report == report) {
                for head in &table.heads {
                    let head = squeeze(&head.replace("**", ""));
                    let at = wanted.iter().position(|known| *known == head);
                    let (name, missing) = (&table.name, "no table begins with");
                    let at = at.unwrap_or_else(|| panic!("{report}, {name}: {missing} {head}"));
                    wanted.remove(at);
                    seen += 1;
                }
            }
            assert!(wanted.is_empty(), "{report}: not gone through: {wanted:#?}");
        }
        assert!(seen > 40, "{seen} tables");
    }

    #[test]
    fn a_row_with_an_interval_answers_before_a_newer_one_without() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
        let records: Vec<LoadedRecord> = ["2026-11-27-gateway", "2026-11-27-gateway-ab"]
            .map(|name| LoadedRecord::read(&folder.join(name).join("record.json.gz")).unwrap())
            .into();
        assert!(records[0].record.started_unix_s < records[1].record.started_unix_s);
        let seeds = parse_data();
        let suites = NamedSuites::parse(&seeds);
        let rows = seeds.tables.iter().flat_map(|table| &table.rows);
        let answer = rows.flat_map(|row| &row.ours).find(|answer| answer.bench == "new").unwrap();
        let RowLookup::Figure(text, loaded) = find_answer(answer, &suites, &records) else {
            panic!("no record holds {}", answer.metric);
        };
        assert_eq!(record_name(loaded), "2026-11-27-gateway", "{text}");
    }

    #[test]
    fn the_document_in_the_repository_is_what_its_records_make() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = root.join("docs/seeds.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let command = document::find_command(&text).expect("the document names its command");
        let records: Vec<LoadedRecord> = command
            .split_whitespace()
            .filter(|word| word.starts_with("bench/records/"))
            .map(|path| LoadedRecord::read(&root.join(path)).unwrap())
            .collect();
        let PublishedReportsDocument { text: made, unanswered } =
            render_published_reports(&records, command).unwrap();
        assert!(unanswered.is_empty(), "{unanswered:#?}");
        if std::env::var_os("CONFIDE_WRITE").is_some() {
            std::fs::write(&page, &made).unwrap();
        }
        let shown = std::fs::read_to_string(&page).unwrap();
        let again = "`CONFIDE_WRITE=1 cargo test -p confide-bench seeds` writes it anew";
        let differs = made.lines().zip(shown.lines()).find(|(made, shown)| made != shown);
        assert!(made == shown, "not what its records make: {again}; the first line: {differs:#?}");
    }
}

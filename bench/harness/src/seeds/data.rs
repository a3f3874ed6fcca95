//! The data of `bench/seeds.toml`: what the reports printed, and which rows of ours answer it.

use serde::Deserialize;

use super::arithmetic;
use crate::{
    error::BenchError,
    published::{QuotedRow, find_bench},
    suite::{Suite, bench::Params},
};

/// The whole file, in which unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedReports {
    #[serde(rename = "report")]
    pub(super) reports: Vec<PublishedReport>,
    #[serde(rename = "table")]
    pub(super) tables: Vec<PublishedTable>,
    #[serde(rename = "check")]
    pub(super) checks: Vec<ArithmeticCheck>,
}

/// `[[report]]`: one of the published reports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedReport {
    pub(super) id: String,
    pub(super) title: String,
    /// The publisher and the date, and what it was measured on.
    pub(super) source: String,
    /// The subjects of the comparison, and what it allows to be said.
    pub(super) compared: String,
}

/// `[[table]]`: one table of a report, or several that are answered alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedTable {
    pub(super) report: String,
    pub(super) name: String,
    /// The first line of each published table that this goes through.
    pub(super) heads: Vec<String>,
    /// Rows that a suite of ours holds already, with ours next to theirs.
    #[serde(default)]
    pub(super) answers: Vec<SuiteTableReference>,
    #[serde(default, rename = "row")]
    pub(super) rows: Vec<PublishedRow>,
    /// The mistakes in theirs that no sum shows.
    #[serde(default)]
    pub(super) wrong: Vec<String>,
    /// The rule or test that keeps ours from it.
    #[serde(default)]
    pub(super) kept: Vec<String>,
    /// The traps of the self-test that try exactly that.
    #[serde(default)]
    pub(super) traps: Vec<String>,
    /// The figures that cannot be measured without their hardware.
    pub(super) hardware: Option<String>,
}

/// An `[[answer]]` table of a suite, by its title.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteTableReference {
    pub(super) suite: String,
    pub(super) title: String,
}

/// `[[table.row]]`: one row of theirs, and what answers it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedRow {
    pub(super) what: String,
    /// Their figure, as printed.
    pub(super) theirs: String,
    #[serde(default)]
    pub(super) ours: Vec<OurRow>,
    /// The reason why there is no row of ours.
    pub(super) absent: Option<String>,
    /// The suite that will answer it.
    pub(super) not_built: Option<String>,
    pub(super) note: Option<String>,
}

/// The row of ours that answers one of theirs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OurRow {
    pub(super) suite: String,
    pub(super) bench: String,
    pub(super) arm: String,
    pub(super) metric: String,
    #[serde(default)]
    pub(super) params: Params,
    /// The reference arm, where it is not the bench's first.
    pub(super) against: Option<String>,
    /// The percentile of all samples that answers instead of the row.
    pub(super) percentile: Option<Percentile>,
}

/// The percentiles that a record may have of pooled samples.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Percentile {
    P50,
    P95,
    P99,
}

/// `[[check]]`: a sum over their own numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArithmeticCheck {
    pub(super) report: String,
    pub(super) table: String,
    /// The printed claim, in words.
    pub(super) claim: String,
    pub(super) printed: PrintedNumber,
    /// True where the number is not printed, but needed for what the report says.
    #[serde(default)]
    pub(super) implied: bool,
    #[serde(default)]
    pub(super) unit: String,
    /// A sum of numbers that are in the same report.
    pub(super) compute: String,
    /// What the rounding of the printed digits leaves open, in the unit.
    #[serde(default)]
    pub(super) round: f64,
    #[serde(default)]
    pub(super) kind: CheckKind,
    /// The consequence for what the report says.
    pub(super) note: Option<String>,
}

/// A printed number, or the two ends of a printed range.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum PrintedNumber {
    Number(f64),
    Ends([f64; 2]),
}

/// The kind of what a check shows of the printed numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckKind {
    /// The printed number is not what the numbers give.
    #[default]
    Contradiction,
    /// Two columns are one, so that nothing was measured twice.
    Identity,
    /// The printed number is finer than the digits that it rests on.
    TooFine,
    /// The printed figure rests on too few samples: `printed` is the least number that would do.
    TooFew,
}

impl PrintedNumber {
    pub(super) fn range(&self) -> [f64; 2] {
        match self {
            Self::Number(number) => [*number; 2],
            Self::Ends(ends) => *ends,
        }
    }
}

impl ArithmeticCheck {
    /// Computes the sum, and whether it fits what is printed; `None` when the text is not a sum.
    pub(super) fn evaluate(&self) -> Option<(f64, bool)> {
        let computed = arithmetic::evaluate(&self.compute)?;
        let [low, high] = self.printed.range();
        Some((computed, computed >= low - self.round && computed <= high + self.round))
    }
}

impl PublishedReports {
    /// Parses and checks the file: every table has a report, every check a table and a sum, every
    /// row one answer.
    pub(super) fn parse(text: &str) -> Result<Self, BenchError> {
        let name = || "bench/seeds.toml".to_owned();
        let seeds: Self = toml::from_str(text).map_err(|error| BenchError::SuiteSyntax {
            name: name(),
            message: error.to_string(),
        })?;
        let wrong = |place: &str, message: String| {
            Err(BenchError::SuiteMeaning { name: name(), place: place.to_owned(), message })
        };
        for table in &seeds.tables {
            if !seeds.reports.iter().any(|report| report.id == table.report) {
                return wrong(&table.name, format!("no report {}", table.report));
            }
            if table.heads.iter().any(String::is_empty) {
                return wrong(&table.name, "a head is empty".into());
            }
            if table.rows.is_empty() && table.answers.is_empty() {
                return wrong(&table.name, "wanted at least one row".into());
            }
            for row in &table.rows {
                let ways = usize::from(!row.ours.is_empty())
                    + usize::from(row.absent.is_some())
                    + usize::from(row.not_built.is_some());
                if ways != 1 {
                    let message =
                        format!("row {}: wanted one of ours, absent, not_built", row.what);
                    return wrong(&table.name, message);
                }
            }
        }
        for check in &seeds.checks {
            let table =
                |table: &&PublishedTable| table.report == check.report && table.name == check.table;
            if !seeds.tables.iter().any(|known| table(&known)) {
                return wrong(&check.claim, format!("no table {}", check.table));
            }
            if check.evaluate().is_none() {
                return wrong(&check.claim, format!("no sum: {}", check.compute));
            }
        }
        Ok(seeds)
    }
}

impl PublishedRow {
    /// Creates a row from one that a suite holds next to its own.
    pub(super) fn from_suite(suite: &str, row: &QuotedRow) -> Self {
        let answers = row.ours.iter().map(|ours| OurRow {
            suite: suite.to_owned(),
            bench: ours.bench.clone(),
            arm: ours.arm.clone(),
            metric: ours.metric.clone(),
            params: ours.params.clone(),
            against: None,
            percentile: None,
        });
        Self {
            what: row.what.clone(),
            theirs: row.theirs.clone(),
            ours: answers.collect(),
            absent: row.absent.clone(),
            not_built: None,
            note: row.note.clone(),
        }
    }
}

impl OurRow {
    /// Checks that the suite has such a row; the error says what is missing.
    pub(super) fn check(&self, suite: &Suite) -> Result<(), String> {
        let bench = find_bench(&suite.benches, &self.bench, &self.arm, &self.params)?;
        if let Some(against) = self.against.as_ref().filter(|arm| !bench.arms.contains(arm)) {
            return Err(format!("bench {} has no arm {against}", self.bench));
        }
        let pinned = |param: &&String| self.params.contains_key(*param);
        if let Some(open) =
            bench.grid.keys().chain(bench.params.keys()).find(|param| !pinned(param))
        {
            return Err(format!("bench {}: its param {open} is not pinned", self.bench));
        }
        if !bench.metrics.iter().any(|metric| metric.name == self.metric) {
            return Err(format!("bench {} has no metric {}", self.bench, self.metric));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        [[report]]
        id = "9"
        title = "T"
        source = "S"
        compared = "C"
        [[table]]
        report = "9"
        name = "one"
        heads = []
        [[table.row]]
        what = "w"
        theirs = "1"
        absent = "no such device"
        [[check]]
        report = "9"
        table = "one"
        claim = "half"
        printed = 50
        compute = "100 / 3"
    "#;

    #[test]
    fn a_small_file_parses_and_its_sum_does_not_fit() {
        let seeds = PublishedReports::parse(SMALL).unwrap();
        assert_eq!(seeds.checks[0].evaluate().map(|(_, agrees)| agrees), Some(false));
    }

    #[test]
    fn a_file_that_means_nothing_is_an_error() {
        for (from, to) in [
            ("report = \"9\"\n        name", "report = \"8\"\n        name"),
            ("absent = \"no such device\"", ""),
            ("absent = \"no such device\"", "absent = \"a\"\n        not_built = \"b\""),
            ("table = \"one\"", "table = \"two\""),
            ("compute = \"100 / 3\"", "compute = \"100 /\""),
        ] {
            let error = PublishedReports::parse(&SMALL.replacen(from, to, 1)).unwrap_err();
            assert!(matches!(error, BenchError::SuiteMeaning { .. }), "{from}: {error}");
        }
        let error = PublishedReports::parse(&SMALL.replacen("title", "colour", 1)).unwrap_err();
        assert!(matches!(error, BenchError::SuiteSyntax { .. }));
    }
}

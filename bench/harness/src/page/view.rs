//! A record as the report shows it, with the words of its suite.

use std::path::PathBuf;

use super::layer::Layer;
use crate::{
    record::Record,
    rows::row::Row,
    samples::{Sample, Slice},
    suite::Suite,
    suites::embedded_suites,
    utc::format_utc,
};

/// A record as the report shows it.
pub(crate) struct RecordView<'a> {
    pub(crate) record: &'a Record,
    pub(crate) samples: &'a [Sample],
    pub(crate) slices: &'a [Slice],
    /// The suite that the record's own text gives; `None` if this version cannot read it any
    /// more.
    pub(crate) suite: Option<Suite>,
    /// The file that was read, for the download.
    pub(crate) path: PathBuf,
}

impl<'a> RecordView<'a> {
    pub(crate) fn new(
        record: &'a Record,
        samples: &'a [Sample],
        slices: &'a [Slice],
        path: PathBuf,
    ) -> Self {
        let suite = record.parse_suite().ok();
        Self { record, samples, slices, suite, path }
    }

    /// Returns the suite whose words the page takes: the record's own, or the embedded one of the
    /// same name where the record is from before suites had words for the page.
    fn suite_with_wording(&self) -> Option<&Suite> {
        let name = &self.record.suite.name;
        let today = || embedded_suites().iter().find(|suite| suite.suite.name == *name);
        self.suite.as_ref().filter(|suite| suite.names_layers()).or_else(today)
    }

    /// Returns the layer of a bench, by its name and its definition.
    pub(crate) fn layer(&self, bench: &str, model: &str) -> Layer {
        Layer::from_bench(self.suite_with_wording(), bench, model)
    }

    /// Returns what the suite calls the row's arm, and the place of these words among the suite's.
    pub(crate) fn find_arm_subject(&self, row: &Row) -> Option<(usize, &str)> {
        let subjects = self.suite_with_wording()?.subjects.iter().enumerate();
        let mut fitting = subjects.filter(|(_, subject)| {
            subject.benches.contains(&row.bench) && subject.arms.contains(&row.arm)
        });
        fitting.next().map(|(place, subject)| (place, subject.words.as_str()))
    }

    /// Returns the place of the row's arm among those of its subject; the last where it has none.
    pub(crate) fn arm_rank(&self, row: &Row) -> usize {
        let subject = self
            .find_arm_subject(row)
            .and_then(|(place, _)| self.suite_with_wording()?.subjects.get(place));
        let place = subject.and_then(|subject| subject.arms.iter().position(|arm| *arm == row.arm));
        place.unwrap_or(usize::MAX)
    }

    /// Returns the names of programs that keep their lower case where a sentence begins.
    pub(crate) fn program_names(&self) -> &[String] {
        self.suite_with_wording().map_or(&[], |suite| &suite.suite.names)
    }

    /// Returns what a reader calls this record: the suite and its minute.
    pub(crate) fn display_name(&self) -> String {
        format!("{}, {}", self.record.suite.name, format_utc(self.record.started_unix_s))
    }

    /// Returns what a reader calls an arm: its label, or its name where the record has no such arm.
    pub(crate) fn arm_label<'n>(&'n self, name: &'n str) -> &'n str {
        let arm = self.record.arms.iter().find(|arm| arm.name == name);
        arm.map_or(name, |arm| arm.label.as_str())
    }
}

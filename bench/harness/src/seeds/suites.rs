//! The suites that the data file of the reports names.

use std::collections::BTreeMap;

use super::data::PublishedReports;
use crate::{suite::Suite, suites::find_suite};

/// The embedded suites that the data file names, as far as they exist.
pub(super) struct NamedSuites(BTreeMap<String, Suite>);

impl NamedSuites {
    /// Parses every suite that a row of the data file names.
    pub(super) fn parse(seeds: &PublishedReports) -> Self {
        let rows = || seeds.tables.iter().flat_map(|table| &table.rows);
        let measured = rows().flat_map(|row| row.ours.iter().map(|answer| &answer.suite));
        let planned = rows().filter_map(|row| row.not_built.as_ref());
        let tables = seeds.tables.iter().flat_map(|table| &table.answers).map(|table| &table.suite);
        let main = "main".to_owned();
        let names = measured.chain(planned).chain(tables).chain([&main]);
        let parse = |name: &String| {
            let known = find_suite(name).ok().filter(|_| !name.ends_with(".toml"))?;
            Some((name.clone(), Suite::parse(name, &known.text).ok()?))
        };
        Self(names.filter_map(parse).collect())
    }

    /// Returns the suite of this name, where it exists.
    pub(super) fn find(&self, name: &str) -> Option<&Suite> {
        self.0.get(name)
    }
}

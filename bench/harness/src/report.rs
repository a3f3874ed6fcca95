//! Reports of one record or of many: a page, Markdown, a table for a terminal.

use std::path::{Path, PathBuf};

use crate::{
    document::text::Terminal,
    error::BenchError,
    loaded::LoadedRecord,
    page::{self, layers::MissingSuite, view::RecordView},
    record::{INDEX_FILE, RECORD_FILE, SAMPLES_FILE},
    run::all::{IndexEntry, RunAllIndex, SuiteState},
};

/// The most records of a report: more than a year of nights is another tool's work.
const RECORDS_MAX: usize = 400;

/// Records with their samples.
#[derive(Debug)]
pub struct Report {
    loaded: Vec<LoadedRecord>,
    absent: Vec<MissingSuite>,
}

impl Report {
    /// Reads each path: a record, its folder, or a folder of such folders (as `run all` leaves it).
    ///
    /// # Errors
    /// When a path holds no record, a record cannot be read, or there are too many.
    pub fn read(paths: &[PathBuf]) -> Result<Self, BenchError> {
        let (mut loaded, mut absent) = (Vec::new(), Vec::new());
        for path in paths {
            absent.extend(read_missing_suites(path));
            for path in find_records(path)? {
                loaded.push(LoadedRecord::read(&path)?);
                if loaded.len() > RECORDS_MAX {
                    let message = format!("wanted at most {RECORDS_MAX} records, got more");
                    return Err(BenchError::Record { path, message });
                }
            }
        }
        loaded.sort_by_key(|one| one.record.started_unix_s);
        Ok(Self { loaded, absent })
    }

    /// Returns the number of records that the report is about.
    pub fn record_count(&self) -> usize {
        self.loaded.len()
    }

    /// Writes one page that works offline, in HTML. `page` is the file that it will be written to: records that
    /// are too large to embed are linked from there.
    pub fn html(&self, page: &Path) -> String {
        page::render_html(&self.views(), &self.absent, page)
    }

    /// Writes the same in Markdown, for a code host, without charts.
    pub fn markdown(&self) -> String {
        page::render_markdown(&self.views(), &self.absent)
    }

    /// Writes the answers and headline rows as text, for a terminal.
    pub fn terminal(&self, terminal: Terminal) -> String {
        page::render_terminal(&self.views(), &self.absent, terminal)
    }

    fn views(&self) -> Vec<RecordView<'_>> {
        self.loaded
            .iter()
            .map(|one| RecordView::new(&one.record, &one.samples, &one.slices, one.path.clone()))
            .collect()
    }
}

/// Lists the suites of a run of many that left no record, by its index. Without an index nothing is
/// known.
fn read_missing_suites(path: &Path) -> Vec<MissingSuite> {
    let Ok(text) = std::fs::read_to_string(path.join(INDEX_FILE)) else { return Vec::new() };
    let Ok(index) = serde_json::from_str::<RunAllIndex>(&text) else { return Vec::new() };
    let is_missing = |entry: &IndexEntry| {
        !matches!(entry.state, SuiteState::Completed | SuiteState::Partial)
            && entry.record_sha256.is_none()
    };
    let missing = |entry: IndexEntry| MissingSuite {
        suite: entry.suite,
        reason: entry.reason.unwrap_or_else(|| "not reached".into()),
    };
    index.suites.into_iter().filter(is_missing).map(missing).collect()
}

/// Returns the path itself where it is a record, else the folders of records right below it.
fn find_records(path: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let is_record = |folder: &Path| {
        let names = [RECORD_FILE, SAMPLES_FILE, &format!("{RECORD_FILE}.gz")];
        names.iter().any(|name| folder.join(name).exists())
    };
    if !path.is_dir() || is_record(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(BenchError::io("read", path))? {
        let below = entry.map_err(BenchError::io("read", path))?.path();
        if below.is_dir() && is_record(&below) {
            found.push(below);
        }
    }
    found.sort();
    if found.is_empty() {
        let message = format!("wanted {RECORD_FILE} in it or in a folder right below it");
        return Err(BenchError::Record { path: path.to_owned(), message });
    }
    Ok(found)
}

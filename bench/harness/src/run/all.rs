//! `run all`: one suite after the other, each with a folder and a record of its own, and an index.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    initial_record,
    options::{FinishedRun, RunOptions},
    refuse_different_plan, resume_suite, run_suite,
};
use crate::{
    error::BenchError,
    loaded::LoadedRecord,
    plan::Effort,
    progress::Progress,
    record::{INDEX_FILE, RECORD_FILE, SAMPLES_FILE, SuiteSelection, sha256_hex},
    suite::Suite,
    suites::{SuiteText, find_suite},
};

const PLAN: &str = include_str!("../../../suites/all.toml");

/// Which suites `run all` runs, and which part of each in a quick run (`bench/suites/all.toml`).
#[derive(Clone, Debug)]
pub struct RunAllPlan {
    /// The suites, in the order in which they run.
    pub entries: Vec<PlannedSuite>,
}

/// One suite of the plan, and how much of it a quick run measures.
#[derive(Clone, Debug)]
pub struct PlannedSuite {
    /// The suite.
    pub suite: SuiteText,
    /// The number of blocks of every bench in a quick run, in place of the suite's.
    pub blocks: Option<u32>,
    /// The part of the suite that a quick run measures.
    pub part: SuiteSelection,
}

/// `run.json`: the outcome of each suite.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunAllIndex {
    /// The layout of this file.
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// The exact command line.
    pub command: Vec<String>,
    /// The effort: quick or full.
    pub effort: Effort,
    /// The wall clock at the start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The duration in seconds, counted from the last start or resumption.
    pub wall_s: f64,
    /// One entry for each suite, in the order of the plan.
    pub suites: Vec<IndexEntry>,
}

/// The entry of one suite in the index.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// Its name, which is also that of its folder.
    pub suite: String,
    /// Its outcome.
    pub state: SuiteState,
    /// The reason, where its plan was not completed.
    pub reason: Option<String>,
    /// The SHA-256 of `record.json`, where there is one.
    pub record_sha256: Option<String>,
}

/// The outcome of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuiteState {
    /// Its plan was completed.
    #[serde(rename = "done")]
    Completed,
    /// It was interrupted; its record is partial.
    Partial,
    /// It could not be run.
    Failed,
    /// It was not reached.
    NotRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    suite: Vec<PlanEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanEntry {
    name: String,
    budget_s: u32,
    blocks: Option<u32>,
    #[serde(default)]
    benches: Vec<String>,
}

impl RunAllPlan {
    /// Reads the plan that travels inside the binary.
    ///
    /// # Errors
    /// When the plan names an unknown suite.
    pub fn read_embedded() -> Result<Self, BenchError> {
        Self::parse(PLAN, find_suite)
    }

    /// Reads a plan; `find` gives the text of a suite by its name.
    ///
    /// # Errors
    /// When the text is not a plan, or `find` fails for a suite.
    pub fn parse(
        text: &str,
        find: impl Fn(&str) -> Result<SuiteText, BenchError>,
    ) -> Result<Self, BenchError> {
        let file: PlanFile = toml::from_str(text).map_err(|error| BenchError::SuiteSyntax {
            name: "all".into(),
            message: error.to_string(),
        })?;
        let entry = |entry: PlanEntry| {
            let part = SuiteSelection { benches: entry.benches, budget_s: Some(entry.budget_s) };
            Ok(PlannedSuite { suite: find(&entry.name)?, blocks: entry.blocks, part })
        };
        let entries = file.suite.into_iter().map(entry).collect::<Result<_, BenchError>>()?;
        Ok(Self { entries })
    }

    /// Returns the texts of all suites, so that a caller can tell which programs they need.
    pub fn suite_texts(&self) -> Vec<SuiteText> {
        self.entries.iter().map(|entry| entry.suite.clone()).collect()
    }

    /// Returns the seconds that the suites of a quick run may take in all, without preparations,
    /// warm-up and the first two blocks of benches that are slower than thought.
    pub fn budget_s(&self) -> u32 {
        self.entries.iter().filter_map(|entry| entry.part.budget_s).sum()
    }
}

/// Runs every suite of the plan, or what is left of it where `go_on` is set. `options` is for all
/// of them: its folder holds theirs, and its suite and part are ignored. A suite that cannot be run
/// does not keep the others from running.
///
/// # Errors
/// When a run that was interrupted had another plan, machine or version, or the index cannot be written.
pub fn run_all(
    plan: &RunAllPlan,
    options: &RunOptions,
    go_on: bool,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
    on_end: &mut dyn FnMut(&IndexEntry, Option<&FinishedRun>),
) -> Result<RunAllIndex, BenchError> {
    let out = &options.out;
    std::fs::create_dir_all(out).map_err(BenchError::io("create", out))?;
    let started = Instant::now();
    let mut index = RunAllIndex {
        schema: 1,
        version: options.version.clone(),
        command: options.command.clone(),
        effort: options.effort,
        started_unix_s: options.started_unix_s,
        wall_s: 0.0,
        suites: plan.entries.iter().map(|entry| unreached_entry(&entry.suite.name)).collect(),
    };
    index.write(out)?;
    // Budgets weigh the suites; a thousandth of one is the unit of progress.
    let mut done = 0;
    for (at, entry) in plan.entries.iter().enumerate() {
        let weight = u64::from(entry.part.budget_s.unwrap_or(1)) * 1000;
        if !cancel.load(Ordering::Relaxed) {
            let options = entry_options(entry, options, started.elapsed().as_secs());
            let place = format!("{}/{} {}", at + 1, plan.entries.len(), entry.suite.name);
            let mut on_suite_progress = |progress: &Progress| {
                let share = weight * progress.done / progress.total.max(1);
                on_progress(&Progress {
                    done: done + share.min(weight),
                    total: u64::from(plan.budget_s()) * 1000,
                    elapsed: started.elapsed(),
                    what: format!("{place}: {}", progress.what),
                });
            };
            let outcome = run_one_suite(&options, go_on, cancel, &mut on_suite_progress)?;
            index.suites[at] = index_entry(&entry.suite.name, &options.out, &outcome);
            on_end(&index.suites[at], outcome.as_ref().ok().and_then(Option::as_ref));
        }
        done += weight;
        index.wall_s = started.elapsed().as_secs_f64();
        index.write(out)?;
    }
    Ok(index)
}

impl RunAllIndex {
    /// Reads the index of a folder that `run all` wrote.
    ///
    /// # Errors
    /// When the index is missing or malformed.
    pub fn read(folder: &Path) -> Result<Self, BenchError> {
        let path = folder.join(INDEX_FILE);
        let text = std::fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
        serde_json::from_str(&text)
            .map_err(|error| BenchError::Record { path, message: error.to_string() })
    }

    /// Lists the folders that hold a record, in the order of the plan.
    pub fn record_folders(&self, folder: &Path) -> Vec<PathBuf> {
        let with_record = self.suites.iter().filter(|entry| entry.record_sha256.is_some());
        with_record.map(|entry| folder.join(&entry.suite)).collect()
    }

    fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let path = folder.join(INDEX_FILE);
        let beside = folder.join("run.json.new");
        let write = || {
            let mut file = File::create(&beside)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            std::fs::rename(&beside, &path)
        };
        write().map_err(BenchError::io("write", &path))
    }
}

fn unreached_entry(suite: &str) -> IndexEntry {
    let reason = Some("not reached".into());
    IndexEntry { suite: suite.to_owned(), state: SuiteState::NotRun, reason, record_sha256: None }
}

/// Derives the options of one suite from those of the whole run.
fn entry_options(entry: &PlannedSuite, all: &RunOptions, elapsed_s: u64) -> RunOptions {
    let quick = all.effort == Effort::Quick;
    RunOptions {
        suite: entry.suite.clone(),
        blocks: all.blocks.or(entry.blocks.filter(|_| quick)),
        part: if quick { entry.part.clone() } else { SuiteSelection::default() },
        out: all.out.join(&entry.suite.name),
        started_unix_s: all.started_unix_s + elapsed_s,
        ..all.clone()
    }
}

/// The result of one suite; the outer error stops all of them: another plan, machine or version.
type SuiteResult = Result<Result<Option<FinishedRun>, BenchError>, BenchError>;

/// Runs one suite; `None` if its whole record is there already.
fn run_one_suite(
    options: &RunOptions,
    go_on: bool,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> SuiteResult {
    if !go_on {
        return Ok(run_suite(options, cancel, on_progress).map(Some));
    }
    if has_complete_record(options)? {
        return Ok(Ok(None));
    }
    match resume_suite(options, cancel, on_progress) {
        Err(error @ BenchError::Resume { .. }) => Err(error),
        other => Ok(other.map(Some)),
    }
}

/// True where there is a whole record of this plan; one of another plan is refused by name.
fn has_complete_record(options: &RunOptions) -> Result<bool, BenchError> {
    let out = &options.out;
    if out.join(SAMPLES_FILE).exists() || !out.join(RECORD_FILE).exists() {
        return Ok(false);
    }
    let had = LoadedRecord::read(out)?.record;
    let suite = Suite::parse(&options.suite.name, &options.suite.text)?;
    refuse_different_plan(&had, &initial_record(options, &suite))?;
    Ok(had.partial.is_none())
}

fn index_entry(
    suite: &str,
    folder: &Path,
    outcome: &Result<Option<FinishedRun>, BenchError>,
) -> IndexEntry {
    let (state, reason) = match outcome {
        Err(error) => (SuiteState::Failed, Some(error.to_string())),
        Ok(outcome) => match outcome.as_ref().and_then(|outcome| outcome.record.partial()) {
            None => (SuiteState::Completed, None),
            Some(reason) => (SuiteState::Partial, Some(reason.to_owned())),
        },
    };
    let text = outcome.is_ok().then(|| std::fs::read_to_string(folder.join(RECORD_FILE)).ok());
    let record_sha256 = text.flatten().map(|text| sha256_hex(&text));
    IndexEntry { suite: suite.to_owned(), state, reason, record_sha256 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_plan_names_suites_and_benches_that_exist_and_ends_in_time() {
        let plan = RunAllPlan::read_embedded().unwrap();
        // 20 minutes, less preparations, warm-up and first blocks that are outside the budgets.
        assert!(plan.budget_s() <= 1000, "{}", plan.budget_s());
        // Each has a folder of its name.
        let names: std::collections::BTreeSet<&str> =
            plan.entries.iter().map(|entry| entry.suite.name.as_str()).collect();
        assert_eq!(names.len(), plan.entries.len());
        for entry in &plan.entries {
            let suite = Suite::parse(&entry.suite.name, &entry.suite.text).unwrap();
            super::super::check_options(&suite, &options(&entry.part)).unwrap();
        }
    }

    fn options(part: &SuiteSelection) -> RunOptions {
        RunOptions {
            suite: SuiteText { name: String::new(), text: String::new() },
            effort: Effort::Quick,
            blocks: None,
            seed: None,
            vars: Vec::new(),
            part: part.clone(),
            out: PathBuf::new(),
            command: Vec::new(),
            version: String::new(),
            started_unix_s: 0,
            programs: crate::programs::ProgramLocator::new(PathBuf::new()),
        }
    }
}

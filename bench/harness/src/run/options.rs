//! What a run is asked to do, and what it leaves behind.

use std::path::PathBuf;

use crate::{
    plan::Effort,
    programs::ProgramLocator,
    record::{Record, SuiteSelection},
    suites::SuiteText,
};

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The suite.
    pub suite: SuiteText,
    /// The effort: quick or full.
    pub effort: Effort,
    /// The number of blocks of every bench, in place of the suite's own.
    pub blocks: Option<u32>,
    /// The seed of the plan, in place of the suite's own.
    pub seed: Option<u64>,
    /// Values for the suite's `[vars]`, in place of its own.
    pub vars: Vec<(String, String)>,
    /// The part of the suite to run; the default is all of it.
    pub part: SuiteSelection,
    /// The output folder; it is created where it is missing.
    pub out: PathBuf,
    /// The exact command line, which goes into the record.
    pub command: Vec<String>,
    /// The program's version.
    pub version: String,
    /// The wall clock at the start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The places where programs are looked for.
    pub programs: ProgramLocator,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The record, as written.
    pub record: Record,
    /// The path of `record.json`.
    pub record_path: PathBuf,
    /// The path of `report.html`.
    pub page_path: PathBuf,
}

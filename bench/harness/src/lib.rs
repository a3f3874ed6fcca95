//! The instrument: suites as data, arms as processes, blocks interleaved from a seed.
//!
//! ```text
//! suite (TOML) -> plan -> blocks of interleaved arms -> samples (JSON lines) -> rows -> report
//! ```
//!
//! The harness knows no product crate. What it measures are processes that speak the lines of
//! `bench/PROTOCOL.md`; what it writes is a folder with `record.json` and
//! `report.html` (docs/records.md). METHODOLOGY.md says how the rows are made, MODELS.md what each number means.

mod arm;
mod blocks;
mod check;
mod compare;
mod disturbed;
mod document;
mod empty_arm;
mod error;
mod fit;
mod format;
mod host;
mod loaded;
mod needs;
mod own_arm;
mod page;
mod plan;
mod process;
mod programs;
mod progress;
mod protocol;
mod published;
mod record;
mod report;
mod rows;
mod run;
mod run_lock;
mod samples;
mod seeds;
mod selftest;
mod services;
mod suite;
mod suites;
mod utc;
mod validity;

pub use check::{
    CheckOptions, CheckOutcome, CheckReport, baseline::check_against_baselines, check_record,
};
pub use compare::refusal::{Refusal, RefusalReason};
pub use compare::scope::CompareOptions;
pub use compare::{Comparison, compare};
pub use document::text::Terminal;
pub use empty_arm::run_empty_arm;
pub use error::BenchError;
pub use host::facts::{Fact, FactGroup};
#[doc(hidden)]
pub use host::fuzz_host_parsers;
pub use host::machine::Machine;
pub use loaded::facts::{IntervalEstimate, MetricValue, RowFacts, RunFacts};
pub use loaded::{LoadedRecord, list_record_folders};
pub use needs::MissingProgram;
pub use page::render_record_text;
pub use plan::Effort;
pub use programs::ProgramLocator;
pub use progress::Progress;
pub use record::schema::record_schema;
pub use record::{Record, SuiteSelection};
pub use report::Report;
pub use run::all::{IndexEntry, PlannedSuite, RunAllIndex, RunAllPlan, SuiteState, run_all};
pub use run::options::{FinishedRun, RunOptions};
pub use run::{rebuild_report, resume_suite, run_suite, stop_on_interrupt};
pub use run_lock::MachineLock;
pub use seeds::{PublishedReportsDocument, render_published_reports};
pub use selftest::coverage::simulate_coverage;
pub use selftest::finding::Finding;
pub use selftest::traps::try_traps;
pub use selftest::{judge_selftest, run_spin_arm, selftest_suite};
pub use suite::Suite;
pub use suites::{SuiteText, find_suite, suite_names};
pub use validity::Validity;

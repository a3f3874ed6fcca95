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

pub use check::{CheckOptions, CheckOutcome, CheckReport, baseline::check_against, check_record};
pub use compare::refusal::{Reason, Refusal};
pub use compare::scope::CompareOptions;
pub use compare::{Comparison, compare};
pub use document::text::Terminal;
pub use empty_arm::empty_arm;
pub use error::BenchError;
pub use host::facts::{Fact, FactGroup};
pub use host::machine::Machine;
#[doc(hidden)]
pub use host::read_host_texts;
pub use loaded::facts::{Estimated, Facts, Number, RowFacts};
pub use loaded::{LoadedRecord, record_folders};
pub use needs::MissingProgram;
pub use page::table;
pub use plan::Effort;
pub use programs::Programs;
pub use progress::Progress;
pub use record::schema::record_schema;
pub use record::{Record, SuiteSelection};
pub use report::Report;
pub use run::all::{AllEntry, AllPlan, Index, IndexEntry, SuiteState, run_all};
pub use run::options::{FinishedRun, Options};
pub use run::{report, resume, run, stop_on_interrupt};
pub use run_lock::MachineLock;
pub use seeds::{SeedsDocument, seeds};
pub use selftest::coverage::simulate;
pub use selftest::finding::Finding;
pub use selftest::traps::try_traps;
pub use selftest::{judge_selftest, selftest_suite, spin_arm};
pub use suite::Suite;
pub use suites::{SuiteText, suite_named, suite_names};
pub use validity::Validity;

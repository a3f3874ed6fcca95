//! `confide bench`: run suites, rebuild reports, test the instrument.

mod check;
mod compare;
mod export;
mod failure;
mod index;
mod install;
mod load;
mod machine;
mod progress;
mod read;
mod report;
mod run;
mod seeds;
mod selftest;
mod status;

use std::{
    io::{stdin, stdout},
    process::ExitCode,
};

use crate::{error::CliError, process};

/// Arguments of `confide bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a suite, print its table, and write record.json and report.html.
    ///
    /// Exit status: 0 everything ran and the A/A rows passed; 1 something could not be run; 3 the A/A
    /// rows found a difference between identical arms; 130 interrupted, continue with --resume.
    Run(run::Args),
    /// Put load on any OpenAI-compatible endpoint: open loop, with latency from the scheduled instant
    Load(Box<load::Args>),
    /// Rebuild the table and the page from records and their samples
    Report(report::Args),
    /// Show this machine as a record describes it
    Machine(machine::Args),
    /// Compare other tools' result files with confide's event logs, each figure by its tool's definition
    Read(read::Args),
    /// Write docs/seeds.md: the tables of the five published reports next to rows measured by confide
    Seeds(seeds::Args),
    /// Compare two machines' measurements, from their records alone
    Compare(compare::Args),
    /// Compare a record with its margins; the exit status is the verdict, for CI
    Check(check::Args),
    /// Test the instrument: coverage over simulated runs, known delays, and known traps
    Selftest(selftest::Args),
    /// Add records to an index; a record that it has already is skipped
    Index(index::IndexArgs),
    /// List the records of an index, the newest first
    List(index::ListArgs),
    /// List rows over the records of an index: the history of a figure
    Query(index::QueryArgs),
    /// Write one record in another format: JSON, CSV, Parquet, Bencher
    Export(export::Args),
    /// Print the JSON Schema of record.json (draft 2020-12)
    Schema,
    /// An arm that does nothing, to measure the cost of the line protocol
    #[command(hide = true)]
    EmptyArm {
        #[arg(long, default_value_t = 0)]
        samples: u32,
    },
    /// An arm that spins, for the self-test's known delays
    #[command(hide = true)]
    SpinArm {
        #[arg(long, default_value_t = 0.0)]
        delay: f64,
    },
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Index(args) => index::run_index(&args),
        Command::List(args) => index::run_list(&args),
        Command::Query(args) => index::run_query(&args),
        Command::Export(args) => export::run(&args),
        Command::Schema => print_schema(),
        Command::Machine(args) => machine::run(&args),
        Command::Read(args) => read::run(&args),
        Command::Seeds(args) => seeds::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Selftest(args) => selftest::run(args),
        Command::EmptyArm { samples } => {
            confide_bench::run_empty_arm(samples, stdin().lock(), stdout().lock())
                .map(|()| ExitCode::SUCCESS)
                .map_err(CliError::new)
        }
        Command::SpinArm { delay } => {
            confide_bench::run_spin_arm(delay, stdin().lock(), stdout().lock())
                .map(|()| ExitCode::SUCCESS)
                .map_err(CliError::new)
        }
    }
}

/// Prints the JSON Schema of `record.json`.
fn print_schema() -> Result<ExitCode, CliError> {
    let text = serde_json::to_string_pretty(&confide_bench::record_schema());
    process::print_text(&(text.map_err(CliError::new)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

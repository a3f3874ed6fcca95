//! `confide bench run`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Duration,
};

use confide_bench::{
    Effort, FinishedRun, IndexEntry, MachineLock, ProgramLocator, RunAllIndex, RunAllPlan,
    RunOptions, Suite, SuiteSelection, SuiteState, SuiteText, Validity,
};

use super::{
    failure::explain_error,
    progress::ProgressBar,
    status::{FAILED, INTERRUPTED, UNRELIABLE},
};
use crate::{error::CliError, process};

/// How often the line of progress changes at a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// How often progress is printed where there is no terminal.
const PRINT_EVERY: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(help = list_suites())]
    suite: String,
    /// Fewer blocks and a smaller grid (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Enough blocks for a 2 % verdict, over the whole grid
    #[arg(long)]
    full: bool,
    /// The number of blocks of every bench, instead of the suite's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    blocks: Option<u32>,
    /// A value for one of the suite's variables, such as scratch=/mnt/disk
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    vars: Vec<(String, String)>,
    /// Install the Debian packages that the suite's arms need, then run. This needs root; without it, the
    /// command to run as root is printed
    #[arg(long)]
    install: bool,
    /// The seed of the plan, instead of the suite's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The folder for the record and the page; an earlier record in it is kept
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Measure even while another run measures on this machine: the two disturb each other
    #[arg(long)]
    dangerous_beside_another: bool,
    /// Continue the interrupted or killed run in the --out folder: the same plan on the same machine
    #[arg(long)]
    resume: bool,
}

fn list_suites() -> String {
    let known = confide_bench::suite_names().collect::<Vec<_>>().join(", ");
    format!(
        "{known}, the path of a TOML file, or `all`: every suite that fits into twenty minutes, \
         each in a folder of its own"
    )
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let _lock = (!args.dangerous_beside_another).then(lock_machine).transpose()?;
    if args.suite == "all" {
        return run_all_suites(args);
    }
    let suite = confide_bench::find_suite(&args.suite).map_err(explain_error)?;
    if args.install {
        super::install::install(std::slice::from_ref(&suite))?;
    }
    for remark in
        Suite::parse(&suite.name, &suite.text).map_err(explain_error)?.describe_memory_needs()
    {
        eprintln!("note: {remark}");
    }
    let outcome = run_suite(&suite_options(args, suite)?, args.resume)?;
    print_outcome(&outcome)?;
    if outcome.record.partial().is_some() {
        eprintln!("hint: run the same command with --resume to continue");
    }
    Ok(exit_status(&outcome))
}

/// Keeps other runs of this machine away while the returned value lives.
pub(super) fn lock_machine() -> Result<MachineLock, CliError> {
    MachineLock::acquire().map_err(explain_error)
}

/// Runs every suite and prints an overview of them.
fn run_all_suites(args: &Args) -> Result<ExitCode, CliError> {
    let plan = RunAllPlan::read_embedded().map_err(explain_error)?;
    if args.install {
        super::install::install(&plan.suite_texts())?;
    }
    let options = suite_options(args, SuiteText { name: "all".into(), text: String::new() })?;
    let stop = confide_bench::stop_on_interrupt().map_err(CliError::new)?;
    let mut bar = ProgressBar::new(SHOW_EVERY, Some(PRINT_EVERY));
    let mut worst = WorstOutcome::default();
    let bar = std::cell::RefCell::new(&mut bar);
    let index = confide_bench::run_all(
        &plan,
        &options,
        args.resume,
        &stop,
        &mut |progress| bar.borrow_mut().show(|| progress.line(79)),
        &mut |entry, outcome| {
            bar.borrow_mut().clear();
            worst.add_outcome(entry, outcome);
            // A closed standard output does not end hours of measuring.
            let _ = print_suite_outcome(entry, outcome);
        },
    );
    let index = index.map_err(explain_error)?;
    print_overview(&index, &args.out)?;
    super::report::write_folder_report(&args.out)?;
    Ok(worst.exit_status(&index))
}

fn suite_options(args: &Args, suite: SuiteText) -> Result<RunOptions, CliError> {
    let this = std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot find this program's own path: {error}")))?;
    Ok(RunOptions {
        suite,
        effort: if args.full { Effort::Full } else { Effort::Quick },
        blocks: args.blocks,
        seed: args.seed,
        vars: args.vars.clone(),
        part: SuiteSelection::default(),
        out: args.out.clone(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: process::unix_now(),
        programs: ProgramLocator::new(this),
    })
}

/// Runs a suite with these options, to its end or to Ctrl-C.
pub(super) fn run_suite(options: &RunOptions, resume: bool) -> Result<FinishedRun, CliError> {
    let stop = confide_bench::stop_on_interrupt().map_err(CliError::new)?;
    let stop: &AtomicBool = &stop;
    let mut bar = ProgressBar::new(SHOW_EVERY, Some(PRINT_EVERY));
    let measure = if resume { confide_bench::resume_suite } else { confide_bench::run_suite };
    let outcome = measure(options, stop, &mut |progress| bar.show(|| progress.line(79)));
    bar.clear();
    outcome.map_err(explain_error)
}

/// Runs a suite that is built into this program.
pub(super) fn run_built_in_suite(
    suite: SuiteText,
    effort: Effort,
    blocks: Option<u32>,
    seed: Option<u64>,
    vars: Vec<(String, String)>,
    out: PathBuf,
) -> Result<FinishedRun, CliError> {
    let args = Args {
        suite: suite.name.clone(),
        quick: effort == Effort::Quick,
        full: effort == Effort::Full,
        blocks,
        vars,
        install: false,
        seed,
        out,
        dangerous_beside_another: false,
        resume: false,
    };
    run_suite(&suite_options(&args, suite)?, false)
}

fn print_suite_outcome(entry: &IndexEntry, outcome: Option<&FinishedRun>) -> Result<(), CliError> {
    let reason = entry.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    println!("\n== {}{reason}", entry.suite);
    match outcome {
        Some(outcome) => print_outcome(outcome),
        None if entry.state == SuiteState::Completed => {
            println!("already complete, and kept");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Prints one line for each suite, and the folder of the records.
fn print_overview(index: &RunAllIndex, out: &Path) -> Result<(), CliError> {
    let mut text = String::from("\n");
    for entry in &index.suites {
        let state = match entry.state {
            SuiteState::Completed => "done",
            SuiteState::Partial => "partial",
            SuiteState::Failed => "failed",
            SuiteState::NotRun => "not run",
        };
        let reason = entry.reason.as_ref().map_or_else(String::new, |reason| format!(", {reason}"));
        text.push_str(&format!("{:<12} {state}{reason}\n", entry.suite));
    }
    text.push_str(&format!("{:.0} s; records in {}\n", index.wall_s, out.display()));
    process::print_text(&text)
}

/// The worst outcome among the suites, which decides the exit status.
#[derive(Default)]
struct WorstOutcome {
    failed: bool,
    invalid: bool,
}

impl WorstOutcome {
    fn add_outcome(&mut self, entry: &IndexEntry, outcome: Option<&FinishedRun>) {
        self.failed |= entry.state == SuiteState::Failed;
        if let Some(outcome) = outcome {
            self.failed |= has_failed_benches(outcome);
            self.invalid |= matches!(outcome.record.validity(), Validity::Invalid { .. });
        }
    }

    fn exit_status(&self, index: &RunAllIndex) -> ExitCode {
        let cut =
            |entry: &IndexEntry| matches!(entry.state, SuiteState::Partial | SuiteState::NotRun);
        match self {
            _ if index.suites.iter().any(cut) => ExitCode::from(INTERRUPTED),
            Self { failed: true, .. } => ExitCode::from(FAILED),
            Self { invalid: true, .. } => ExitCode::from(UNRELIABLE),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Prints the table, then the paths of page and record.
pub(super) fn print_outcome(outcome: &FinishedRun) -> Result<(), CliError> {
    let (page, record) = (outcome.page_path.display(), outcome.record_path.display());
    let table = confide_bench::render_record_text(&outcome.record);
    let chain = outcome.record.chain_end().unwrap_or_default();
    process::print_text(&format!("{table}page    {page}\nrecord  {record}\nchain   {chain}\n"))
}

/// Reads `NAME=VALUE`.
fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("wanted NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Whether a bench failed, or no arm of it could be run.
fn has_failed_benches(outcome: &FinishedRun) -> bool {
    !outcome.record.not_run().is_empty() || !outcome.record.benches_without_arms().is_empty()
}

fn exit_status(outcome: &FinishedRun) -> ExitCode {
    if outcome.record.partial().is_some() {
        return ExitCode::from(INTERRUPTED);
    }
    if has_failed_benches(outcome) {
        return ExitCode::from(FAILED);
    }
    match outcome.record.validity() {
        Validity::Invalid { .. } => ExitCode::from(UNRELIABLE),
        _ => ExitCode::SUCCESS,
    }
}

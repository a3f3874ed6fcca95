//! `confide bench`: run suites, rebuild reports, test the instrument.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use confide_bench::{
    BenchError, Effort, Options, Outcome, Programs, Progress, SelfTest, SuiteText, Validity,
};

use crate::{error::CliError, process};

/// Exit status of a run in which a bench could not be run, and of a failed self-test.
const FAILED: u8 = 1;
/// Exit status of a run whose A/A rows found a difference where there is none: everything ran, and
/// the machine was too unsteady for the figures to be believed.
const INVALID: u8 = 3;
/// Exit status of an interrupted run, as shells have it.
const INTERRUPTED: u8 = 130;
/// A line without a terminal at most this often.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a suite: prints its table, writes record.json, samples.jsonl and report.html
    Run(RunArgs),
    /// Rebuild the table and the page from records and their samples
    Report {
        /// Folders that `bench run` wrote
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
    },
    /// Inject a known delay and see that it is found, and that none is found where there is none
    Selftest(SelftestArgs),
    /// An arm that spins, for the self-test
    #[command(hide = true)]
    SpinArm {
        #[arg(long, default_value_t = 0.0)]
        delay: f64,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// adapters, batch, chat, collateral, generate, main, nested, verify, or the path of a TOML file
    suite: String,
    /// Fewer blocks and a smaller grid (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Enough blocks for a 2 % verdict, over the whole grid
    #[arg(long)]
    full: bool,
    /// This many blocks of every bench, instead of the suite's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    blocks: Option<u32>,
    /// Seed of the plan, instead of the suite's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where record, samples and page are written; an earlier record there is kept
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct SelftestArgs {
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(12..=10_000))]
    blocks: u32,
    /// Keep record, samples and page here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Run(args) => run_suite(&args),
        Command::Report { folders } => report(&folders),
        Command::Selftest(args) => selftest(args),
        Command::SpinArm { delay } => {
            confide_bench::spin_arm(delay, std::io::stdin().lock(), std::io::stdout().lock())
                .map_err(CliError::new)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_suite(args: &RunArgs) -> Result<ExitCode, CliError> {
    let suite = confide_bench::suite_named(&args.suite).map_err(explained)?;
    let effort = if args.full { Effort::Full } else { Effort::Quick };
    let outcome = measure(suite, effort, args.blocks, args.seed, args.out.clone())?;
    show(&outcome)?;
    Ok(status(&outcome))
}

fn report(folders: &[PathBuf]) -> Result<ExitCode, CliError> {
    for folder in folders {
        show(&confide_bench::report(folder).map_err(explained)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn selftest(args: SelftestArgs) -> Result<ExitCode, CliError> {
    let folder = args.out.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("confide-selftest-{}", std::process::id()))
    });
    let suite = confide_bench::selftest_suite();
    let outcome = measure(suite, Effort::Quick, Some(args.blocks), None, folder.clone())?;
    if args.out.is_some() {
        show(&outcome)?;
    } else {
        print!("{}", confide_bench::table(&outcome.record));
        // Nothing was asked to be kept.
        let _ = std::fs::remove_dir_all(&folder);
    }
    if outcome.record.partial().is_some() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match confide_bench::selftest_verdict(&outcome.record) {
        SelfTest::Passed => {
            println!("selftest: passed, a delay of 5 % was found and one of 0 % was not");
            Ok(ExitCode::SUCCESS)
        }
        SelfTest::Failed(reasons) => {
            Err(CliError::new(format!("selftest failed: {}", reasons.join("; ")))
                .hint("a machine that is busy with other work can fail it; try --blocks 60")
                .status(FAILED))
        }
    }
}

fn measure(
    suite: SuiteText,
    effort: Effort,
    blocks: Option<u32>,
    seed: Option<u64>,
    out: PathBuf,
) -> Result<Outcome, CliError> {
    let this = std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot tell where this program is: {error}")))?;
    let options = Options {
        suite,
        effort,
        blocks,
        seed,
        out,
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: process::unix_now(),
        programs: Programs::beside(this),
    };
    let stop = confide_bench::stop_on_interrupt().map_err(CliError::new)?;
    let stop: &AtomicBool = &stop;
    let mut bar = Bar::new();
    let outcome = confide_bench::run(&options, stop, &mut |progress| bar.show(progress));
    bar.end();
    outcome.map_err(explained)
}

/// The table, then where page and record are.
fn show(outcome: &Outcome) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let (page, record) = (outcome.page_path.display(), outcome.record_path.display());
    let table = confide_bench::table(&outcome.record);
    write!(out, "{table}page    {page}\nrecord  {record}\n")
        .map_err(|error| CliError::new(format!("cannot write to standard output: {error}")))
}

fn status(outcome: &Outcome) -> ExitCode {
    if outcome.record.partial().is_some() {
        return ExitCode::from(INTERRUPTED);
    }
    if !outcome.record.not_run().is_empty() {
        return ExitCode::from(FAILED);
    }
    match outcome.record.validity() {
        Validity::Invalid { .. } => ExitCode::from(INVALID),
        _ => ExitCode::SUCCESS,
    }
}

fn explained(error: BenchError) -> CliError {
    let hint = match &error {
        BenchError::NoSuchProgram { .. } => {
            Some("`make build` puts the arms beside this program, where they are looked for first")
        }
        BenchError::SuiteSyntax { .. } | BenchError::SuiteMeaning { .. } => {
            Some("bench/suites holds suites that parse; unknown keys are errors")
        }
        BenchError::Service { .. } | BenchError::Prepare { .. } => {
            Some("its standard error is in the folder `log` of the output")
        }
        _ => None,
    };
    let shown = CliError::new(error);
    match hint {
        Some(hint) => shown.hint(hint),
        None => shown,
    }
}

/// Progress on standard error: one line that changes at a terminal, else a line now and then.
struct Bar {
    terminal: bool,
    last: Option<Instant>,
}

impl Bar {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: None }
    }

    fn show(&mut self, progress: &Progress) {
        let every = if self.terminal { Duration::from_millis(100) } else { PLAIN_EVERY };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        let line = progress.line(79);
        if self.terminal {
            eprint!("\r{line:<79}");
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if self.terminal && self.last.is_some() {
            eprint!("\r{:<79}\r", "");
        }
    }
}

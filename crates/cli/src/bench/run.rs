//! `confide bench run`.

use std::{io::Write, path::PathBuf, process::ExitCode, sync::atomic::AtomicBool};

use confide_bench::{Effort, Options, Outcome, Part, Programs, SuiteText, Validity};

use super::{explained, progress::Bar};
use crate::{error::CliError, process};

/// Exit status of a run in which a bench could not be run, and of a failed self-test.
pub(super) const FAILED: u8 = 1;
/// Exit status of a run whose A/A rows found a difference where there is none: everything ran, and
/// the machine was too unsteady for the figures to be believed.
const INVALID: u8 = 3;
/// Exit status of an interrupted run, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// adapters, batch, chat, collateral, cpu, generate, jitter, main, memory, nested, network,
    /// storage, verify, or the path of a TOML file
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
    /// A value for one of the suite's variables, such as scratch=/mnt/disk
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = var)]
    vars: Vec<(String, String)>,
    /// Install the Debian packages that the suite's arms need, then run (as root; else says what to
    /// ask for)
    #[arg(long)]
    install: bool,
    /// Seed of the plan, instead of the suite's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where record, samples and page are written; an earlier record there is kept
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let suite = confide_bench::suite_named(&args.suite).map_err(explained)?;
    if args.install {
        super::install::install(std::slice::from_ref(&suite))?;
    }
    let effort = if args.full { Effort::Full } else { Effort::Quick };
    let vars = args.vars.clone();
    let outcome = measure(suite, effort, args.blocks, args.seed, vars, args.out.clone())?;
    show(&outcome)?;
    Ok(status(&outcome))
}

pub(super) fn measure(
    suite: SuiteText,
    effort: Effort,
    blocks: Option<u32>,
    seed: Option<u64>,
    vars: Vec<(String, String)>,
    out: PathBuf,
) -> Result<Outcome, CliError> {
    let this = std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot tell where this program is: {error}")))?;
    let options = Options {
        suite,
        effort,
        blocks,
        seed,
        vars,
        part: Part::default(),
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
pub(super) fn show(outcome: &Outcome) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let (page, record) = (outcome.page_path.display(), outcome.record_path.display());
    let table = confide_bench::table(&outcome.record);
    write!(out, "{table}page    {page}\nrecord  {record}\n")
        .map_err(|error| CliError::new(format!("cannot write to standard output: {error}")))
}

/// `NAME=VALUE`.
fn var(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("wanted NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
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

//! `confide bench selftest`.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use confide_bench::{
    Effort, Finding, judge_selftest, selftest_suite, simulate_coverage, try_traps,
};

use super::{
    failure::explain_error,
    run::{lock_machine, print_outcome, run_built_in_suite},
    status::{FAILED, INTERRUPTED, UNDECIDED},
};
use crate::error::CliError;

/// Passes thousands of simulated runs through the code that makes rows, to see how often an interval
/// covers the truth and whether known delays are found. Then tries traps that published benchmarks
/// fell into, and measures spinning processes on this machine with known delays of 0, 2 and 5 %.
/// Prints each check with its figures.
///
/// Exit status: 0 everything passed; 1 the instrument failed; 4 nothing failed, but this machine was
/// too noisy to tell a known delay from none: give more --blocks.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The number of blocks for the spinning processes
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(12..=10_000))]
    blocks: u32,
    /// The number of simulated runs for each number of blocks and each delay
    #[arg(long, value_name = "N", default_value_t = 2_000,
          value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    runs: u32,
    /// The seed of the simulated runs: the same seed gives the same figures on every machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only simulated runs and traps; measure nothing
    #[arg(long)]
    simulated_only: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Keep record, samples and page in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "simulated_only")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let started = Instant::now();
    let mut findings = try_traps().map_err(explain_error)?;
    findings.extend(simulate_coverage(args.runs, args.seed).map_err(explain_error)?);
    if !args.simulated_only {
        let _lock = lock_machine()?;
        match measure_spinning_processes(&args)? {
            Some(found) => findings.extend(found),
            None => return Ok(ExitCode::from(INTERRUPTED)),
        }
    }
    let failed: Vec<&Finding> = findings.iter().filter(|finding| finding.has_failed()).collect();
    let undecided = findings.iter().filter(|finding| !finding.decided).count();
    if args.json {
        let text = serde_json::to_string_pretty(&findings).map_err(CliError::new)?;
        println!("{text}");
    } else {
        for finding in &findings {
            println!("{}", finding.line());
        }
        let passed = findings.iter().filter(|finding| finding.passed).count();
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "selftest: {passed} of {} passed, {undecided} undecided in {seconds:.0} s",
            findings.len()
        );
    }
    if failed.is_empty() {
        return Ok(match undecided {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(UNDECIDED),
        });
    }
    let names: Vec<&str> = failed.iter().map(|finding| finding.name.as_str()).collect();
    Err(CliError::new(format!("selftest failed: {}", names.join("; ")))
        .with_hint("the checks of real processes can fail on a busy machine: try --blocks 60")
        .with_status(FAILED))
}

/// Measures the processes that spin and judges the record; `None` if the run was interrupted.
fn measure_spinning_processes(args: &Args) -> Result<Option<Vec<Finding>>, CliError> {
    let folder = args.out.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("confide-selftest-{}", std::process::id()))
    });
    let blocks = Some(args.blocks);
    let outcome = run_built_in_suite(
        selftest_suite(),
        Effort::Quick,
        blocks,
        None,
        Vec::new(),
        folder.clone(),
    )?;
    if args.out.is_some() && !args.json {
        print_outcome(&outcome)?;
    } else if args.out.is_none() {
        if !args.json {
            print!("{}", confide_bench::render_record_text(&outcome.record));
        }
        // Without --out nothing is kept.
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(outcome.record.partial().is_none().then(|| judge_selftest(&outcome.record)))
}

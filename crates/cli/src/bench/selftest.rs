//! `confide bench selftest`.

use std::{path::PathBuf, process::ExitCode};

use confide_bench::{Effort, SelfTest};

use super::run::{FAILED, INTERRUPTED, measure, show};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(12..=10_000))]
    blocks: u32,
    /// Keep record, samples and page here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let folder = args.out.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("confide-selftest-{}", std::process::id()))
    });
    let suite = confide_bench::selftest_suite();
    let outcome =
        measure(suite, Effort::Quick, Some(args.blocks), None, Vec::new(), folder.clone())?;
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

//! `confide bench machine`.

use std::{path::PathBuf, process::ExitCode};

use confide_bench::Machine;

use crate::{error::CliError, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the record's JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The folder whose file system is described; in a run, that is the output folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let machine = Machine::read(&args.out);
    let text = if args.json { machine.json().map_err(CliError::new)? } else { machine.text() };
    process::print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

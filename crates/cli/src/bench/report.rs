//! `confide bench report`.

use std::{path::PathBuf, process::ExitCode};

use super::{explained, run::show};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folders that `bench run` wrote
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    for folder in &args.folders {
        show(&confide_bench::report(folder).map_err(explained)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `confide adapter prepare`.

use std::process::ExitCode;

use crate::error::CliError;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err(CliError::new("`confide adapter prepare` is not built yet"))
}

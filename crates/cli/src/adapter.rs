//! `confide adapter`: private adapters are inspected, hosted and prepared for.

pub(crate) mod clients;
pub(crate) mod dial;
mod host;
mod inspect;
pub(crate) mod parameters;
mod prepare;
#[cfg(feature = "native")]
mod train;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;
#[cfg(not(feature = "native"))]
use crate::features::train;

/// The subcommands of `confide adapter`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve key holders; the adapters never leave this process.
    Host(host::Args),
    /// Show what an adapter contains, and what its protection costs.
    Inspect(inspect::Args),
    /// Prepare masks with an adapter host, and show what they cost.
    Prepare(prepare::Args),
    /// Train a small adapter for a small model, in seconds.
    #[command(hide = cfg!(not(feature = "native")))]
    Train(train::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Host(args) => host::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Train(args) => train::run(args),
    }
}

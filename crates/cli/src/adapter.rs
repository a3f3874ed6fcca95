//! `confide adapter`: private adapters, looked at, hosted and prepared for.

pub(crate) mod dial;
mod host;
pub(crate) mod inspect;
mod prepare;
#[cfg(feature = "native")]
mod train;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;
#[cfg(not(feature = "native"))]
use crate::features::train;
pub(crate) use host::clients as read_clients;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer key holders about adapters that never leave this process.
    Host(host::Args),
    /// Say what an adapter holds, and what protecting it takes.
    Inspect(inspect::Args),
    /// Make masks with an adapter host, and say what they cost.
    Prepare(prepare::Args),
    /// Train a small adapter for a small model, in seconds.
    #[command(hide = cfg!(not(feature = "native")))]
    Train(train::Args),
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Host(args) => host::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Train(args) => train::run(args),
    }
}

//! `confide collateral`: endorsements, fetched, kept and served.

mod export;
mod fetch;
pub(crate) mod fetching;
mod platform;
mod serve;
pub(crate) mod service;
mod show;
#[cfg(feature = "simulate")]
mod simulated;
#[cfg(feature = "simulate")]
mod simulation;

use std::process::ExitCode;

use crate::error::CliError;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Fetch the endorsements of a platform into a store.
    Fetch(fetch::Args),
    /// Print what a store holds, and for how long.
    Show(show::Args),
    /// Write the endorsements of a platform from a store to a file for `confide verify`.
    Export(export::Args),
    /// Serve endorsements to a fleet over the vendors' routes (a PCCS).
    Serve(serve::Args),
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Fetch(args) => fetch::run(args),
        Command::Show(args) => show::run(args),
        Command::Export(args) => export::run(args),
        Command::Serve(args) => serve::run(args),
    }
}

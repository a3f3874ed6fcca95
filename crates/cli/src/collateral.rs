//! `confide collateral`: endorsements are fetched, stored, exported and served.

mod export;
mod fetch;
mod platform;
#[cfg(feature = "services")]
mod serve;
pub(crate) mod service;
mod show;
#[cfg(feature = "simulate")]
mod simulated_documents;
#[cfg(feature = "simulate")]
mod simulation;

use std::process::ExitCode;

use crate::error::CliError;
#[cfg(not(feature = "services"))]
use crate::features::collateral_service as serve;

/// The subcommands of `confide collateral`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Fetch the endorsements of a platform into a store.
    Fetch(fetch::Args),
    /// Print what a store holds, and how long it is valid.
    Show(show::Args),
    /// Write the endorsements of a platform from a store to a file for `confide verify`.
    Export(export::Args),
    /// Serve endorsements to a fleet over the vendors' routes (a PCCS).
    #[command(hide = cfg!(not(feature = "services")))]
    Serve(serve::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Fetch(args) => fetch::run(args),
        Command::Show(args) => show::run(args),
        Command::Export(args) => export::run(args),
        Command::Serve(args) => serve::run(args),
    }
}

//! `confide notary`: fetch through a program in a TEE that signs the session.

mod fetch;
#[cfg(feature = "services")]
mod serve;
mod verified;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;
#[cfg(not(feature = "services"))]
use crate::features::notary_service as serve;

/// The subcommands of `confide notary`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Verify a notary, fetch through it, and save what it signed.
    Fetch(Box<fetch::Args>),
    /// Fetch from listed hosts for clients, and sign the TLS sessions.
    #[command(hide = cfg!(not(feature = "services")))]
    Serve(Box<serve::Args>),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Fetch(args) => fetch::run(*args),
        Command::Serve(args) => serve::run(*args),
    }
}

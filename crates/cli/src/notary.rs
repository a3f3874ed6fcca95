//! `confide notary`: fetch through a program in a TEE that signs what it saw.

mod fetch;
mod serve;
mod verified;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Verify a notary, fetch through it, keep what it signed.
    Fetch(Box<fetch::Args>),
    /// Open TLS to named hosts and sign what was seen, for any client unless --clients says which.
    Serve(Box<serve::Args>),
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Fetch(args) => fetch::run(*args),
        What::Serve(args) => serve::run(*args),
    }
}

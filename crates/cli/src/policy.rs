//! `confide policy`: a policy to start with, pinned, and in words.

mod explain;
pub(crate) mod file;
mod init;
mod pin;

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
    /// Say in words what a policy checks and what it leaves unchecked.
    Explain(explain::Args),
    /// Write a strict policy from evidence of a machine that is as it should be.
    Init(init::Args),
    /// Pin the configuration of the attested end, without which clients refuse.
    Pin(pin::Args),
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Explain(args) => explain::run(&args),
        What::Init(args) => init::run(&args),
        What::Pin(args) => pin::run(&args),
    }
}

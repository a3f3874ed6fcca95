//! `confide policy`: write a policy to start with, pin it, and describe it in words.

mod explain;
pub(crate) mod file;
mod init;
mod pin;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;

/// The subcommands of `confide policy`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Describe in words what a policy checks and what it does not.
    Explain(explain::Args),
    /// Write a strict policy from the evidence of a machine in its proper state.
    Init(init::Args),
    /// Pin a server's configuration in a policy; without a pin, clients refuse the server.
    Pin(pin::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Explain(args) => explain::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Pin(args) => pin::run(&args),
    }
}

//! `confide prove`: the four stages of a guest, and a file that holds the proof.

mod dcap;
pub(crate) mod facts;
pub(crate) mod input;
mod options;
pub(crate) mod prover;
mod rsa2048;
pub(crate) mod signature;
pub(crate) mod size;
mod stages;

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;

use crate::error::CliError;
use options::ProveOptions;

/// The arguments of `confide prove`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What to prove: the run of a guest (a program of the zkVM), or a signature. Inputs: docs/prove.md.
#[derive(Subcommand)]
enum Command {
    /// A Fibonacci number.
    Fibonacci(GuestArgs),
    /// A sorted list, with its numbers hidden behind their SHA-256.
    Sort(GuestArgs),
    /// An RSA-2048 signature of a message, both hidden.
    Rsa2048(rsa2048::Args),
    /// A preimage of SHA-256.
    Sha256(GuestArgs),
    /// A part of a committed transcript.
    Transcript(GuestArgs),
    /// The appraisal of a hidden quote.
    Dcap(dcap::Args),
    /// A hidden signature without the zkVM: RSA or ECDSA, in a millisecond.
    Signature(signature::Args),
}

#[derive(clap::Args)]
struct GuestArgs {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    options: ProveOptions,
}

/// Executes `confide-prover` if this process was started for that, as [`prover`] does; gives the
/// exit status of a failure. This is not an option for users: nothing else is read or printed.
pub(crate) fn exec_prover_if_launched() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != confide_prover::LAUNCH_WORD {
        return None;
    }
    let error = confide_prover::exec_launched_program(arguments);
    eprintln!("{error}");
    Some(confide_prover::LAUNCH_FAILED.into())
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let (guest, input, options) = match args.command {
        Command::Fibonacci(args) => read_guest_input("fibonacci", args)?,
        Command::Sort(args) => read_guest_input("sort", args)?,
        Command::Sha256(args) => read_guest_input("sha256", args)?,
        Command::Transcript(args) => read_guest_input("transcript", args)?,
        Command::Rsa2048(args) => ("rsa2048", args.read_guest_input()?, args.options),
        Command::Dcap(args) => ("dcap", args.read_guest_input()?, args.options),
        Command::Signature(args) => return signature::run(&args),
    };
    stages::run(guest, &input, &options)
}

fn read_guest_input(
    guest: &'static str,
    args: GuestArgs,
) -> Result<(&'static str, Vec<u8>, ProveOptions), CliError> {
    Ok((guest, input::read_input(guest, &args.input)?, args.options))
}

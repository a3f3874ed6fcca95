//! `confide prove`: the four stages of a guest, and a file that holds the proof.

mod dcap;
pub(crate) mod input;
pub(crate) mod prover;
mod rsa2048;
pub(crate) mod shown;
pub(crate) mod signature;
pub(crate) mod size;
mod stages;

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use confide_prover::line::Mode;

use crate::error::CliError;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// A guest, a program whose run is proved by the zkVM, or a signature. Inputs: docs/prove.md.
#[derive(Subcommand)]
enum What {
    /// A Fibonacci number.
    Fibonacci(Guest),
    /// A list in order, its numbers hidden behind their SHA-256.
    Sort(Guest),
    /// An RSA-2048 signature of a message, neither of them shown.
    Rsa2048(rsa2048::Args),
    /// A preimage of SHA-256.
    Sha256(Guest),
    /// A part of a committed transcript.
    Transcript(Guest),
    /// The appraisal of a quote that is not shown.
    Dcap(dcap::Args),
    /// A signature that is not shown, without the zkVM: RSA or ECDSA, in a millisecond.
    Signature(signature::Args),
}

#[derive(clap::Args)]
struct Guest {
    /// The guest's input, JSON.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    order: Order,
}

/// What every guest is proved with.
#[derive(clap::Args)]
struct Order {
    /// Where to write the proof.
    #[arg(long, value_name = "PROOF")]
    out: PathBuf,
    /// `app`: one proof a segment, quick. `aggregated`: one of constant size, slower.
    #[arg(long, default_value = "app")]
    mode: Mode,
    /// Most memory that proving may take: 6GiB, 512MiB, or bytes.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// The back end; without it, the confide-prover beside this program.
    #[arg(long, value_name = "PATH")]
    prover: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Becomes `confide-prover` where this process was started for that, as [`prover`] does; what
/// it gives is the exit status of a failure. No option of anybody's: nothing else is read or said.
pub(crate) fn launch_stage() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != confide_prover::LAUNCH_WORD {
        return None;
    }
    let error = confide_prover::launch(arguments);
    eprintln!("{error}");
    Some(confide_prover::LAUNCH_FAILED.into())
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let (guest, input, order) = match args.what {
        What::Fibonacci(args) => plain("fibonacci", args)?,
        What::Sort(args) => plain("sort", args)?,
        What::Sha256(args) => plain("sha256", args)?,
        What::Transcript(args) => plain("transcript", args)?,
        What::Rsa2048(args) => ("rsa2048", args.input()?, args.order),
        What::Dcap(args) => ("dcap", args.input()?, args.order),
        What::Signature(args) => return signature::run(&args),
    };
    stages::run(guest, &input, &order)
}

fn plain(guest: &'static str, args: Guest) -> Result<(&'static str, Vec<u8>, Order), CliError> {
    Ok((guest, input::read(guest, &args.input)?, args.order))
}

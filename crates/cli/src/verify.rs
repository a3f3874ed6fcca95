//! `confide verify`: evidence, proofs, disclosures and receipts are judged, check by check.

pub(crate) mod disclosure;
mod evidence;
mod gpu;
mod inputs;
#[cfg(feature = "prove")]
mod proof;
mod quote;
pub(crate) mod receipt;
#[cfg(feature = "services")]
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CliError;
#[cfg(not(feature = "services"))]
use crate::features::attestation_service as serve;
#[cfg(not(feature = "prove"))]
use crate::features::proof;

/// The subcommands of `confide verify`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check evidence against endorsements and a policy; its kind is found from its bytes.
    #[command(visible_alias = "quote")]
    Evidence(Box<evidence::EvidenceArgs>),
    /// Check a proof that `confide prove` wrote.
    #[command(hide = cfg!(not(feature = "prove")))]
    Proof(proof::Args),
    /// Check a disclosure: the parts that it shows of a notarised session, and its proofs.
    Disclosure(disclosure::DisclosureArgs),
    /// Check the signed receipt of an answer, and the gateway that signed it.
    Receipt(Box<receipt::ReceiptArgs>),
    /// Appraise evidence over HTTP, and sign the results.
    #[command(hide = cfg!(not(feature = "services")))]
    Serve(serve::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Disclosure(args) => disclosure::run(args),
        Command::Evidence(args) => evidence::run(&args),
        Command::Proof(args) => proof::run(args),
        Command::Receipt(args) => receipt::run(&args),
        Command::Serve(args) => serve::run(args),
    }
}

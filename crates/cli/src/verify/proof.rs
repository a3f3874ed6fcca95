//! `confide verify proof`: a proof is judged, check by check.

mod arguments;
mod checks;
mod dcap;
mod expected;
mod sigma;
mod unjudged;
mod zkvm;

use std::process::ExitCode;

use confide_prover::{FILE_BYTES_MAX, MAGIC};
use confide_sigma::SIGNATURE_PROOF_MAGIC;

use crate::{answer::CommandReport, error::CliError, files::read_file};
pub(crate) use arguments::Args;
use unjudged::UnjudgedProof;

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    match judge_proof_file(&args) {
        Ok(answer) => answer.print(args.json),
        Err(unjudged) if args.json => unjudged.to_report().print(true),
        Err(unjudged) => Err(unjudged.error),
    }
}

/// Judges a proof of any kind; its first bytes tell which it is.
fn judge_proof_file(args: &Args) -> Result<CommandReport, UnjudgedProof> {
    let bytes = read_file(&args.file, FILE_BYTES_MAX as u64).map_err(UnjudgedProof::unreadable)?;
    if bytes.starts_with(MAGIC) {
        return zkvm::judge_proof(&bytes, args);
    }
    if bytes.starts_with(SIGNATURE_PROOF_MAGIC) {
        return sigma::judge_proof(&bytes, args);
    }
    let got = if bytes.is_empty() { "an empty file" } else { "something else" };
    let detail = format!("{}: wanted a proof, got {got}", args.file.display());
    Err(UnjudgedProof::new("malformed_file", detail)
        .with_hint("`confide prove` writes proofs; the first line of a proof names its kind"))
}

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

use crate::{answer::Answer, error::CliError, files::read_file};
pub(crate) use arguments::Args;
use unjudged::Unjudged;

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    match judge(&args) {
        Ok(answer) => answer.print(args.json),
        Err(unjudged) if args.json => unjudged.answer().print(true),
        Err(unjudged) => Err(unjudged.error),
    }
}

/// Judges a proof of any kind; its first bytes tell which it is.
fn judge(args: &Args) -> Result<Answer, Unjudged> {
    let bytes = read_file(&args.file, FILE_BYTES_MAX as u64).map_err(Unjudged::unreadable)?;
    if bytes.starts_with(MAGIC) {
        return zkvm::judge_proof(&bytes, args);
    }
    if bytes.starts_with(SIGNATURE_PROOF_MAGIC) {
        return sigma::judge_proof(&bytes, args);
    }
    let got = if bytes.is_empty() { "an empty file" } else { "something else" };
    let detail = format!("{}: wanted a proof, got {got}", args.file.display());
    Err(Unjudged::new("malformed_file", detail)
        .hint("`confide prove` writes proofs; the first line of a proof names its kind"))
}

//! `confide verify proof`: whether a proof is believed, check by check.

mod dcap;
mod expected;
mod sigma;
mod zkvm;

use std::{path::PathBuf, process::ExitCode};

use confide_evidence::ReportData;
use confide_prover::{FILE_BYTES_MAX, MAGIC, line::Digest};
use confide_sigma::SIGNATURE_PROOF_MAGIC;

use super::{Unreadable, print, read, report_data};
use crate::{error::CliError, prove::signature::Claimed, time::time};

/// Arguments.
///
/// Exit status: 0 accepted, 1 rejected, 2 not judged (unreadable, malformed, nothing expected of it,
/// or no confide-prover).
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The proof, as `confide prove` wrote it.
    file: PathBuf,
    /// The statement that has to be proved, JSON.
    #[arg(long, value_name = "FILE")]
    statement: Option<PathBuf>,
    /// The input that the prover was given, JSON: what its program says of it has to be proved.
    #[arg(long, value_name = "FILE", conflicts_with = "statement")]
    input: Option<PathBuf>,
    /// Take whatever statement is proved where nothing else says what it has to be: read it.
    #[arg(long, conflicts_with_all = ["statement", "input"])]
    dangerous_any_statement: bool,
    /// What the proof has to be, TOML (docs/prove.md, "The policy").
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The program that has to have run, by the back end's commitment, in hexadecimal.
    #[arg(long, value_name = "DIGEST")]
    program: Option<Digest>,
    /// dcap: the time to judge at: `now`, an RFC 3339 date or Unix seconds; without it, now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// dcap: a root certificate to trust instead of the evidence policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// dcap: the 64 bytes that the quote must hold, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// dcap: what the evidence has to be, TOML (docs/policy.md).
    #[arg(long, value_name = "FILE")]
    evidence_policy: Option<PathBuf>,
    /// The back end; without it, the confide-prover beside this program.
    #[arg(long, value_name = "PATH")]
    prover: Option<PathBuf>,
    /// Of a signature, rsa2048 and sha256: key, message and context, which the verifier brings.
    #[command(flatten)]
    claimed: Claimed,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The answer, as text or JSON, with the exit status that belongs to it.
type Answered = (String, ExitCode);

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    match answer(&args) {
        Ok((text, status)) => print(&text).map(|()| status),
        Err(unjudged) if args.json => {
            print(&format!("{}\n", unjudged.to_json())).map(|()| super::NOT_JUDGED.into())
        }
        Err(unjudged) => Err(unjudged.error()),
    }
}

/// Proofs of every kind come here; the first bytes tell which it is.
fn answer(args: &Args) -> Result<Answered, Unjudged> {
    let bytes = read(&args.file, FILE_BYTES_MAX as u64)?;
    if bytes.starts_with(MAGIC) {
        return zkvm::answer(&bytes, args);
    }
    if bytes.starts_with(SIGNATURE_PROOF_MAGIC) {
        return sigma::answer(&bytes, args);
    }
    let got = if bytes.is_empty() { "an empty file" } else { "something else" };
    let shown = args.file.display();
    Err(Unjudged::new("malformed_file", format!("{shown}: wanted a proof, got {got}"))
        .hint("`confide prove` writes them: the first line tells which kind it is"))
}

/// An option that would be ignored is one that somebody relies on.
fn other_kind(option: &str, kind: &str) -> Unjudged {
    let detail = format!("{option} says nothing about a proof of {kind}");
    Unjudged::new("option_of_another_kind", detail)
}

/// Why a proof was not judged: nothing is known of it, which is no yes.
#[derive(Debug)]
struct Unjudged {
    name: &'static str,
    error: CliError,
}

impl Unjudged {
    fn new(name: &'static str, detail: String) -> Self {
        Self { name, error: CliError::new(detail).status(super::NOT_JUDGED) }
    }

    fn hint(self, hint: &str) -> Self {
        Self { error: self.error.hint(hint), ..self }
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "outcome": "error",
            "reason": self.name,
            "detail": self.error.message(),
            "checks": [],
        })
    }

    fn error(self) -> CliError {
        self.error
    }
}

impl From<Unreadable> for Unjudged {
    fn from(unreadable: Unreadable) -> Self {
        Self { name: "unreadable", error: unreadable.error() }
    }
}

impl From<CliError> for Unjudged {
    fn from(error: CliError) -> Self {
        Self { name: "not_judged", error }
    }
}

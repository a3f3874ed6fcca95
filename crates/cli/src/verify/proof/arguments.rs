//! The arguments of `confide verify proof`.

use std::path::PathBuf;

use confide_evidence::ReportData;
use confide_prover::line::Digest;

use crate::{
    prove::signature::SignatureClaim, time::parse_time, verify::inputs::parse_report_data,
};

/// The arguments of `confide verify proof`.
///
/// Exit status: 0 accepted, 1 rejected, 2 not judged (unreadable, malformed, nothing expected of it,
/// or no confide-prover).
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The proof, as `confide prove` wrote it.
    pub(super) file: PathBuf,
    /// The statement that must be proved, JSON.
    #[arg(long, value_name = "FILE")]
    pub(super) statement: Option<PathBuf>,
    /// The prover's input, JSON: the proof must be of the program's statement about this input.
    #[arg(long, value_name = "FILE", conflicts_with = "statement")]
    pub(super) input: Option<PathBuf>,
    /// Accept any proved statement if no other option says what it must be: read it yourself.
    #[arg(long, conflicts_with_all = ["statement", "input"])]
    pub(super) dangerous_any_statement: bool,
    /// The policy for the proof, TOML (docs/prove.md, "The policy").
    #[arg(long, value_name = "FILE")]
    pub(super) policy: Option<PathBuf>,
    /// The program that must have run: the back end's commitment to it, in hexadecimal.
    #[arg(long, value_name = "DIGEST")]
    pub(super) program: Option<Digest>,
    /// dcap: the time to judge at: `now` (the default), an RFC 3339 date or Unix seconds.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(super) at: Option<u64>,
    /// dcap: a root certificate to trust instead of the evidence policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    pub(super) root: Option<PathBuf>,
    /// dcap: the 64 bytes that the quote must contain, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = parse_report_data)]
    pub(super) report_data: Option<ReportData>,
    /// dcap: the policy for the evidence, TOML (docs/policy.md).
    #[arg(long, value_name = "FILE")]
    pub(super) evidence_policy: Option<PathBuf>,
    /// The back end; by default the confide-prover next to this program.
    #[arg(long, value_name = "PATH")]
    pub(super) prover: Option<PathBuf>,
    /// For a signature, rsa2048 and sha256: the verifier's own key, message and context.
    #[command(flatten)]
    pub(super) claimed: SignatureClaim,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

//! `confide verify evidence`: what a file holds is found out from its bytes.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use confide_evidence::{
    gpu::{DeviceCertificate, GPU_EVIDENCE_BYTES_MAX, GpuEvidence, is_report},
    quote::QUOTE_LENGTH_MAX,
};
use confide_verifier::{Policy, Roots, UnixTime};

use super::{
    ROOT_LENGTH_MAX, Unreadable,
    gpu::{self, GpuArgs},
    line, no, print, read, read_policy, refusal, table,
};
use crate::error::CliError;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct EvidenceArgs {
    /// The evidence: a GPU's report, raw or hexadecimal, or a container of it.
    file: PathBuf,
    /// The certificates that vouch for it, PEM.
    #[arg(long, value_name = "PEM-FILE")]
    chain: Option<PathBuf>,
    #[command(flatten)]
    gpu: GpuArgs,
    /// The time to judge at, in Unix seconds.
    #[arg(long, value_name = "UNIX")]
    at: u64,
    /// What the evidence has to be, TOML.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER.
    #[arg(long, value_name = "DER-FILE")]
    root: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: EvidenceArgs) -> Result<ExitCode, CliError> {
    let judged = judge(&args);
    let (text, status) = match judged {
        Ok(Ok(appraised)) if args.json => (line(&appraised.to_json()), ExitCode::SUCCESS),
        Ok(Ok(appraised)) => {
            let why = "a genuine GPU signed this nonce; where it is was not checked";
            (table(appraised.checks(), "yes", why), ExitCode::SUCCESS)
        }
        Ok(Err(rejection)) if args.json => (line(&rejection.to_json()), refusal(&rejection)),
        Ok(Err(rejection)) => (no(&rejection), refusal(&rejection)),
        Err(unreadable) if args.json => (line(&unreadable.to_json()), super::NOT_JUDGED.into()),
        Err(unreadable) => return Err(unreadable.error()),
    };
    print(&text).map(|()| status)
}

fn judge(
    args: &EvidenceArgs,
) -> Result<Result<confide_verifier::GpuAppraised, confide_verifier::Rejection>, Unreadable> {
    let mut policy = match &args.policy {
        None => Policy::default(),
        Some(path) => read_policy(path)?,
    };
    let longest = GPU_EVIDENCE_BYTES_MAX.max(QUOTE_LENGTH_MAX);
    let file = read(&args.file, longest as u64)?;
    if !GpuEvidence::is_container(&file) && !is_report(&file) {
        return Err(Unreadable {
            reason: format!("{}: no kind of evidence that is known here", args.file.display()),
            hint: Some("quotes are for `confide verify quote`"),
        });
    }
    if let Some(path) = &args.root {
        let der = read(path, ROOT_LENGTH_MAX)?;
        let read = DeviceCertificate::parse("root certificate", &der);
        read.map_err(|error| Unreadable {
            reason: format!("{}: {error}", path.display()),
            hint: Some("--root takes DER; `openssl x509 -outform der` makes it from PEM"),
        })?;
        policy.roots = Roots::custom(&der);
    }
    let now = UnixTime::since_unix_epoch(Duration::from_secs(args.at));
    gpu::judge(&file, args.chain.as_ref(), &args.gpu, &policy, now)
}

//! `confide verify evidence`, also called `verify quote`: the bytes of the file tell the kind of the evidence.

use std::{path::PathBuf, process::ExitCode};

use confide_evidence::{
    ReportData,
    claims::CLAIMS_BYTES_MAX,
    collateral::COLLATERAL_LENGTH_MAX,
    gpu::CHAIN_BYTES_MAX,
    pem::CHAIN_LENGTH_MAX,
    snp_endorsements::{ENDORSEMENT_KEY_LENGTH_MAX, SNP_CRL_LENGTH_MAX},
};
use confide_verification::{
    AcceptedEvidence, CertificateFacts, EVIDENCE_BYTES_MAX, EvidenceError, EvidenceInput,
    EvidenceRules, EvidenceVerdict, OptionStyle,
};
use confide_verifier::{Appraised, AwsLc, Check, GpuAppraised, Rejection, Scope};
use serde_json::json;

use super::{
    gpu::GpuArgs,
    inputs::{NOT_JUDGED, REJECTED, parse_report_data, read_policy},
    quote::{PLATFORM_ONLY, describe_root, describe_scope, format_checks},
};
use crate::{
    answer::CommandReport,
    error::CliError,
    files::{read_file, read_optional_file},
    process::unix_now,
    time::parse_time,
    verdict_lines::{fact_line, verdict_line},
};

/// The arguments of `confide verify evidence`.
#[derive(clap::Args)]
pub(crate) struct EvidenceArgs {
    /// The evidence: a quote (SGX version 3, TDX version 4 or 5), an SEV-SNP report, a GPU's report
    /// (binary or hexadecimal) or container, or a certificate that carries a quote (DER or PEM; of this
    /// project, dstack, Gramine): its quote has to be about the certificate's key. Claims of this
    /// project are judged too; any other certificate is accepted for its platform alone.
    file: PathBuf,
    /// Endorsements, JSON. Quotes: QuoteCollateralV3. SEV-SNP: one object with all of them.
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// SEV-SNP: the certificate of the chip key (VCEK or VLEK), DER.
    #[arg(long, value_name = "DER-FILE", conflicts_with = "collateral")]
    endorsement_key: Option<PathBuf>,
    /// The certificate chain, PEM. SEV-SNP: ASK or ASVK, then ARK; GPUs: attestation key first.
    #[arg(long, value_name = "PEM-FILE", conflicts_with = "collateral")]
    chain: Option<PathBuf>,
    /// SEV-SNP: the root's revocation list, DER.
    #[arg(long, value_name = "DER-FILE", conflicts_with = "collateral")]
    crl: Option<PathBuf>,
    #[command(flatten)]
    gpu: GpuArgs,
    /// The time to judge at: `now` (the default), an RFC 3339 date or Unix seconds.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<u64>,
    /// The policy for the evidence, TOML; by default, any program on an up-to-date platform.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The 64 bytes of report data that a quote or SEV-SNP report must contain, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = parse_report_data)]
    report_data: Option<ReportData>,
    /// CBOR claims: the report data must be their SHA-256 and 32 zero bytes (key binding).
    #[arg(long, value_name = "FILE", conflicts_with = "report_data")]
    claims: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Accept any TCB status except `Revoked`, any advisories and any security versions.
    #[arg(long)]
    dangerous_accept_any_tcb_status: bool,
    /// Accept a quote or SEV-SNP report of a machine whose memory the host can read.
    #[arg(long)]
    dangerous_accept_debug: bool,
    /// SEV-SNP: skip revocation if no revocation list is given.
    #[arg(long)]
    dangerous_skip_revocation: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EvidenceArgs) -> Result<ExitCode, CliError> {
    let answer = match judge_evidence(args) {
        Ok(verdict) => describe_verdict(&verdict),
        Err(error) if args.json => explain_unreadable(&error),
        Err(error) => return Err(error),
    };
    answer.print(args.json)
}

/// The verdict in words and as JSON.
fn describe_verdict(verdict: &EvidenceVerdict) -> CommandReport {
    let (text, status) = match &verdict.result {
        Ok(AcceptedEvidence::Cpu(appraised)) => (describe_acceptance(verdict, appraised), 0),
        Ok(AcceptedEvidence::Gpu(appraised)) => (describe_gpu_acceptance(appraised), 0),
        Err(rejection) => describe_rejection(rejection),
    };
    let text = verdict.certificate.as_ref().map(describe_certificate).unwrap_or_default() + &text;
    CommandReport { text, json: verdict.to_json(), status }
}

/// The lines about the certificate in which the evidence came.
fn describe_certificate(CertificateFacts { form, spki_hash }: &CertificateFacts) -> String {
    let hash = hex::encode(spki_hash);
    fact_line("certificate form", form)
        + &fact_line("certificate key", format_args!("SHA-256 {hash}"))
}

fn describe_rejection(rejection: &Rejection) -> (String, u8) {
    let (verdict, status) = if rejection.reason().is_unreadable() {
        ("not judged", NOT_JUDGED)
    } else {
        ("no", REJECTED)
    };
    (format_verdict(rejection.checks(), verdict, &rejection.reason().to_string()), status)
}

/// The answer for programs where an input could not be read; people get the error itself.
fn explain_unreadable(error: &CliError) -> CommandReport {
    let json = json!({
        "outcome": "error",
        "scope": "platform",
        "root": null,
        "tcb_status": null,
        "advisories": [],
        "claims": {},
        "checks": [],
        "reason": error.message(),
    });
    CommandReport { text: String::new(), json, status: NOT_JUDGED }
}

/// The reason why the acceptance of another program's certificate covers the platform alone.
const FOREIGN_CERTIFICATE: &str =
    "the program's configuration was not checked: the certificate has no claims of this project";

/// The checks, and what the acceptance covers.
fn describe_acceptance(verdict: &EvidenceVerdict, appraised: &Appraised) -> String {
    let (word, covered) = match appraised.scope() {
        Scope::Workload if verdict.is_foreign() => (PLATFORM_ONLY, FOREIGN_CERTIFICATE),
        Scope::Workload => ("yes", describe_scope(appraised)),
        Scope::Platform => (PLATFORM_ONLY, describe_scope(appraised)),
    };
    let reason = format!("{covered}{}", describe_root(appraised));
    format_verdict(appraised.checks(), word, &reason)
}

fn describe_gpu_acceptance(appraised: &GpuAppraised) -> String {
    let reason = "a genuine GPU signed this nonce; its location was not checked";
    format_verdict(appraised.checks(), "yes", reason)
}

fn format_verdict(checks: &[Check], verdict: &str, reason: &str) -> String {
    format_checks(checks) + &verdict_line(verdict, reason)
}

fn judge_evidence(args: &EvidenceArgs) -> Result<EvidenceVerdict, CliError> {
    let policy = read_policy(args.policy.as_deref(), args.root.as_deref())?;
    let rules = EvidenceRules {
        policy,
        at: args.at.unwrap_or_else(unix_now),
        dangerous_accept_any_tcb_status: args.dangerous_accept_any_tcb_status,
        dangerous_accept_debug: args.dangerous_accept_debug,
        dangerous_skip_revocation: args.dangerous_skip_revocation,
    };
    let judged = confide_verification::judge_evidence(args.read_input()?, &rules, &AwsLc);
    judged.map_err(|error| args.explain_error(&error))
}

impl EvidenceArgs {
    /// Reads the evidence and what was given to judge it with.
    fn read_input(&self) -> Result<EvidenceInput, CliError> {
        let chain_bytes_max = CHAIN_BYTES_MAX.max(CHAIN_LENGTH_MAX);
        let read = |path: &Option<PathBuf>, limit: usize| {
            read_optional_file(path.as_deref(), limit as u64)
        };
        let mut input = EvidenceInput {
            evidence: read_file(&self.file, EVIDENCE_BYTES_MAX as u64)?,
            collateral: read(&self.collateral, COLLATERAL_LENGTH_MAX)?,
            endorsement_key: read(&self.endorsement_key, ENDORSEMENT_KEY_LENGTH_MAX)?,
            chain: read(&self.chain, chain_bytes_max)?,
            crl: read(&self.crl, SNP_CRL_LENGTH_MAX)?,
            claims: read(&self.claims, CLAIMS_BYTES_MAX)?,
            report_data: self.report_data,
            ..EvidenceInput::default()
        };
        self.gpu.read_into(&mut input)?;
        Ok(input)
    }

    fn explain_error(&self, error: &EvidenceError) -> CliError {
        let style = OptionStyle::Flag;
        CliError::in_file(&self.file)(error.describe(style))
            .with_optional_hint(error.hint(style).as_deref())
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;

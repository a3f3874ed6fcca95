//! `confide verify evidence`, also called `verify quote`: the bytes of the file tell the kind of the evidence.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use confide_evidence::{
    EvidenceKind, ReportData,
    attested_certificate::{ATTESTED_CERTIFICATE_BYTES_MAX, AttestedCertificate, CertificateForm},
    claims::CLAIMS_BYTES_MAX,
    collateral::COLLATERAL_LENGTH_MAX,
    detect_kind,
    gpu::GPU_EVIDENCE_BYTES_MAX,
    pem::{CHAIN_LENGTH_MAX, decode_long_chain},
    quote::QUOTE_LENGTH_MAX,
    snp_endorsements::{ENDORSEMENT_KEY_LENGTH_MAX, SNP_CRL_LENGTH_MAX, SnpEndorsements},
};
use confide_verifier::{
    Appraised, Check, Evidence, Expect, GpuAppraised, Policy, Rejection, Scope, TcbMinimum,
    UnixTime, snp,
};
use serde_json::json;

use super::{
    gpu::{self, GpuArgs},
    inputs::{NOT_JUDGED, REJECTED, parse_report_data, read_policy},
    quote::{CpuEndorsements, PLATFORM_ONLY, describe_root, describe_scope, format_checks},
};
use crate::{
    answer::CommandReport,
    error::CliError,
    files::{read_file, read_optional_file, read_text},
    process::{merge_objects, unix_now},
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
        Ok(judged) => judged.to_report(),
        Err(error) if args.json => explain_unreadable(&error),
        Err(error) => return Err(error),
    };
    answer.print(args.json)
}

/// The verdict on a file, and the certificate in which its evidence came.
#[derive(Debug)]
struct EvidenceVerdict {
    certificate: Option<CertificateFacts>,
    result: Result<AcceptedEvidence, Rejection>,
}

impl EvidenceVerdict {
    fn to_report(&self) -> CommandReport {
        let report = match &self.result {
            Ok(AcceptedEvidence::Cpu(appraised)) => {
                describe_acceptance(appraised, self.certificate.as_ref())
            }
            Ok(AcceptedEvidence::Gpu(appraised)) => describe_gpu_acceptance(appraised),
            Err(rejection) => describe_rejection(rejection),
        };
        match &self.certificate {
            Some(certificate) => certificate.add_to(report),
            None => report,
        }
    }
}

/// What the verdict says of a certificate that carries evidence.
#[derive(Clone, Copy, Debug)]
struct CertificateFacts {
    form: CertificateForm,
    spki_hash: [u8; 32],
}

impl CertificateFacts {
    /// Whether the certificate is of another program, which makes no claims about its configuration:
    /// its acceptance covers the platform alone.
    fn is_foreign(&self) -> bool {
        self.form != CertificateForm::Confide
    }

    fn add_to(&self, report: CommandReport) -> CommandReport {
        let hash = hex::encode(self.spki_hash);
        let facts = json!({ "certificate": {
            "form": self.form.to_string(),
            "spki_sha256": hash,
        }});
        let text = fact_line("certificate form", self.form)
            + &fact_line("certificate key", format_args!("SHA-256 {hash}"))
            + &report.text;
        CommandReport { text, json: merge_objects(report.json, facts), status: report.status }
    }
}

fn describe_rejection(rejection: &Rejection) -> CommandReport {
    let (verdict, status) = if rejection.reason().is_unreadable() {
        ("not judged", NOT_JUDGED)
    } else {
        ("no", REJECTED)
    };
    let text = format_verdict(rejection.checks(), verdict, &rejection.reason().to_string());
    CommandReport { text, json: rejection.to_json(), status }
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

/// Evidence that was accepted: of a CPU, or of a GPU alone.
#[derive(Debug)]
enum AcceptedEvidence {
    Cpu(Appraised),
    Gpu(GpuAppraised),
}

/// The reason why the acceptance of another program's certificate covers the platform alone.
const FOREIGN_CERTIFICATE: &str =
    "the program's configuration was not checked: the certificate has no claims of this project";

/// The checks, and what the acceptance covers.
fn describe_acceptance(
    appraised: &Appraised,
    certificate: Option<&CertificateFacts>,
) -> CommandReport {
    let is_foreign = certificate.is_some_and(CertificateFacts::is_foreign);
    let (verdict, covered, scope) = match appraised.scope() {
        Scope::Workload if is_foreign => (PLATFORM_ONLY, FOREIGN_CERTIFICATE, Scope::Platform),
        Scope::Workload => ("yes", describe_scope(appraised), Scope::Workload),
        Scope::Platform => (PLATFORM_ONLY, describe_scope(appraised), Scope::Platform),
    };
    let reason = format!("{covered}{}", describe_root(appraised));
    let json = merge_objects(appraised.to_json(), json!({ "scope": scope.as_str() }));
    CommandReport::new(format_verdict(appraised.checks(), verdict, &reason), json)
}

fn describe_gpu_acceptance(appraised: &GpuAppraised) -> CommandReport {
    let reason = "a genuine GPU signed this nonce; its location was not checked";
    CommandReport::new(format_verdict(appraised.checks(), "yes", reason), appraised.to_json())
}

fn format_verdict(checks: &[Check], verdict: &str, reason: &str) -> String {
    format_checks(checks) + &verdict_line(verdict, reason)
}

fn judge_evidence(args: &EvidenceArgs) -> Result<EvidenceVerdict, CliError> {
    let policy = args.read_policy()?;
    let longest = GPU_EVIDENCE_BYTES_MAX.max(QUOTE_LENGTH_MAX).max(CERTIFICATE_TEXT_MAX);
    let mut file = read_file(&args.file, longest as u64)?;
    let mut report_data = args.report_data;
    let (mut certificate, mut claims) = (None, None);
    if let Some(read) = args.read_certificate(&file)? {
        certificate = Some(CertificateFacts { form: read.form, spki_hash: read.spki_hash() });
        // Claims of this project have to be covered by the report data, as those of a file.
        report_data = read.claims.is_none().then_some(read.report_data);
        claims = read.claims;
        file = read.quote;
    }
    let Some(kind) = detect_kind(&file) else {
        return Err(CliError::in_file(&args.file)("not a known kind of evidence")
            .with_hint("give a quote of version 3 to 5, an SEV-SNP report or GPU evidence"));
    };
    if kind == EvidenceKind::GpuEvidence && certificate.is_some() {
        // A GPU signs a nonce, which ties nothing to the certificate's key.
        let text = format!("the certificate holds {kind}, wanted a quote or an SEV-SNP report");
        return Err(CliError::in_file(&args.file)(text));
    }
    args.check_options(kind)?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(args.at.unwrap_or_else(unix_now)));
    if kind == EvidenceKind::GpuEvidence {
        let judged =
            gpu::judge_gpu_evidence(&file, args.chain.as_deref(), &args.gpu, &policy, now)?;
        return Ok(EvidenceVerdict { certificate, result: judged.map(AcceptedEvidence::Gpu) });
    }
    if certificate.is_none() {
        claims = read_optional_file(args.claims.as_deref(), CLAIMS_BYTES_MAX as u64)?;
    }
    let claims = claims.as_deref();
    let evidence = Evidence { quote: &file, claims, report_data, ..Evidence::default() };
    let judged = match args.read_endorsements(kind)? {
        Ok(endorsements) => endorsements.appraise(&evidence, &policy, now),
        Err(rejection) => Err(rejection),
    };
    Ok(EvidenceVerdict { certificate, result: judged.map(AcceptedEvidence::Cpu) })
}

/// The longest text of a certificate that carries evidence, with its chain.
const CERTIFICATE_TEXT_MAX: usize = 2 * ATTESTED_CERTIFICATE_BYTES_MAX;

impl EvidenceArgs {
    /// Reads the evidence of a certificate; `None` if the file is not one.
    fn read_certificate(&self, file: &[u8]) -> Result<Option<AttestedCertificate>, CliError> {
        let unreadable = |error: String| CliError::in_file(&self.file)(error);
        let chain = match file {
            [0x30, 0x81..=0x83, ..] => vec![file.to_vec()],
            _ if file.starts_with(b"-----BEGIN CERTIFICATE-----") => {
                decode_long_chain("certificate", file, CERTIFICATE_TEXT_MAX)
                    .map_err(|error| unreadable(error.to_string()))?
            }
            _ => return Ok(None),
        };
        if self.report_data.is_some() || self.claims.is_some() {
            let text = "a certificate itself says which report data its quote must hold";
            return Err(CliError::new(text).with_hint("leave out --report-data and --claims"));
        }
        let Some(first) = chain.first() else { return Ok(None) };
        let read = AttestedCertificate::parse(first);
        read.map(Some).map_err(|error| unreadable(error.to_string()))
    }

    fn read_policy(&self) -> Result<Policy, CliError> {
        let mut policy = read_policy(self.policy.as_deref(), self.root.as_deref())?;
        if self.dangerous_accept_any_tcb_status {
            policy.tcb_status = Expect::DangerousAny;
            policy.advisories = Expect::DangerousAny;
            policy.snp.tcb_min = Some(TcbMinimum::DangerousAny);
        }
        policy.dangerous_accept_debug |= self.dangerous_accept_debug;
        policy.dangerous_skip_revocation |= self.dangerous_skip_revocation;
        Ok(policy)
    }

    /// Refuses an option of another kind of evidence: it would be ignored, while the caller relies on it.
    fn check_options(&self, kind: EvidenceKind) -> Result<(), CliError> {
        let (snp, gpu) = (kind == EvidenceKind::SnpReport, kind == EvidenceKind::GpuEvidence);
        let options = [
            ("--collateral", self.collateral.is_some(), !gpu),
            ("--endorsement-key", self.endorsement_key.is_some(), snp),
            ("--chain", self.chain.is_some(), snp || gpu),
            ("--crl", self.crl.is_some(), snp),
            ("--dangerous-skip-revocation", self.dangerous_skip_revocation, snp),
            ("--dangerous-accept-debug", self.dangerous_accept_debug, !gpu),
            ("--dangerous-accept-any-tcb-status", self.dangerous_accept_any_tcb_status, !gpu),
            ("--report-data", self.report_data.is_some(), !gpu),
            ("--claims", self.claims.is_some(), !gpu),
            ("--nonce, --rim and --ocsp", self.gpu.is_given(), gpu),
        ];
        let Some((option, ..)) = options.into_iter().find(|(_, given, known)| *given && !*known)
        else {
            return Ok(());
        };
        let text =
            format!("{option} does not apply to {}, which holds {kind}", self.file.display());
        Err(CliError::new(text).with_hint(match kind {
            EvidenceKind::GpuEvidence => "GPU evidence is judged with --nonce HEX and --chain PEM",
            EvidenceKind::SnpReport => {
                "an SEV-SNP report is judged with --endorsement-key DER, --chain PEM and --crl DER"
            }
            EvidenceKind::SgxQuote | EvidenceKind::TdxQuote => {
                "a quote is judged with --collateral JSON"
            }
        }))
    }

    fn read_endorsements(
        &self,
        kind: EvidenceKind,
    ) -> Result<Result<CpuEndorsements, Rejection>, CliError> {
        if let Some(path) = &self.collateral {
            let document = read_file(path, COLLATERAL_LENGTH_MAX as u64)?;
            return Ok(CpuEndorsements::parse(kind, &document));
        }
        if kind != EvidenceKind::SnpReport {
            return Err(CliError::new("a quote needs collateral, and none was given")
                .with_hint("give --collateral FILE, a QuoteCollateralV3 in JSON"));
        }
        let (Some(key), Some(chain)) = (&self.endorsement_key, &self.chain) else {
            let text = "an SEV-SNP report needs certificates, and not all were given";
            return Err(CliError::new(text).with_hint(
                "give the VCEK or VLEK with --endorsement-key DER, and the ASK or ASVK and the ARK \
                 with --chain PEM",
            ));
        };
        let key = read_file(key, ENDORSEMENT_KEY_LENGTH_MAX as u64)?;
        let chain = read_text(chain, CHAIN_LENGTH_MAX as u64, "PEM certificates")?;
        let crl = read_optional_file(self.crl.as_deref(), SNP_CRL_LENGTH_MAX as u64)?;
        let parts = SnpEndorsements::new(key, chain, crl);
        let endorsements = parts.and_then(snp::Endorsements::from_parts);
        Ok(endorsements.map(CpuEndorsements::from).map_err(snp::reject_unreadable))
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;

//! `confide verify evidence`: what a file holds is found out from its bytes.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use confide_evidence::{
    Kind, ReportData,
    claims::CLAIMS_BYTES_MAX,
    collateral::COLLATERAL_LENGTH_MAX,
    detect,
    gpu::GPU_EVIDENCE_BYTES_MAX,
    pem::CHAIN_LENGTH_MAX,
    quote::QUOTE_LENGTH_MAX,
    snp_endorsements::{ENDORSEMENT_KEY_LENGTH_MAX, SNP_CRL_LENGTH_MAX, SnpEndorsements},
};
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Expect, GpuAppraised, Policy, Reason, Rejection,
    Roots, TcbMinimum, UnixTime, appraise, snp,
};

use super::{
    NOT_JUDGED, Unreadable,
    gpu::{self, GpuArgs},
    line, no, print, read, read_policy, read_root, refusal, report_data, table, yes,
};
use crate::{error::CliError, process::unix_now, time::time};

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct EvidenceArgs {
    /// The evidence: a quote, an SEV-SNP report, a GPU's report (binary or hexadecimal) or container.
    file: PathBuf,
    /// Quotes: QuoteCollateralV3. SEV-SNP: endorsements in one object. JSON.
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// SEV-SNP: the certificate of the chip key (VCEK or VLEK), DER.
    #[arg(long, value_name = "DER-FILE", conflicts_with = "collateral")]
    endorsement_key: Option<PathBuf>,
    /// The certificates above, PEM. SEV-SNP: ASK or ASVK, then ARK; GPUs: attestation key first.
    #[arg(long, value_name = "PEM-FILE", conflicts_with = "collateral")]
    chain: Option<PathBuf>,
    /// SEV-SNP: the root's revocation list, DER.
    #[arg(long, value_name = "DER-FILE", conflicts_with = "collateral")]
    crl: Option<PathBuf>,
    #[command(flatten)]
    gpu: GpuArgs,
    /// The time to judge at: `now`, an RFC 3339 date or Unix seconds; without it, now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// What the evidence has to be, TOML.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The 64 bytes that a quote or SEV-SNP report must hold, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// CBOR claims: the report data has to be their SHA-256 and 32 zero bytes (key binding).
    #[arg(long, value_name = "FILE", conflicts_with = "report_data")]
    claims: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Accept whatever TCB status, advisories (`Revoked` excepted) and security versions.
    #[arg(long)]
    dangerous_accept_any_tcb_status: bool,
    /// Accept a quote or SEV-SNP report of a machine whose memory the host can read.
    #[arg(long)]
    dangerous_accept_debug: bool,
    /// SEV-SNP: leave revocation unevaluated where no revocation list is given.
    #[arg(long)]
    dangerous_skip_revocation: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: EvidenceArgs) -> Result<ExitCode, CliError> {
    let (text, status) = match judge(&args) {
        Ok(Ok(yes)) => (yes.shown(args.json), ExitCode::SUCCESS),
        Ok(Err(rejection)) if args.json => (line(&rejection.to_json()), refusal(&rejection)),
        Ok(Err(rejection)) => (no(&rejection), refusal(&rejection)),
        Err(unreadable) if args.json => (line(&unreadable.to_json()), NOT_JUDGED.into()),
        Err(unreadable) => return Err(unreadable.error()),
    };
    print(&text).map(|()| status)
}

/// A yes to evidence of a CPU, or of a GPU alone.
#[derive(Debug)]
enum Yes {
    Cpu(Appraised),
    Gpu(GpuAppraised),
}

impl Yes {
    fn shown(&self, json: bool) -> String {
        match self {
            Yes::Cpu(appraised) if json => line(&appraised.to_json()),
            Yes::Cpu(appraised) => yes(appraised),
            Yes::Gpu(appraised) if json => line(&appraised.to_json()),
            Yes::Gpu(appraised) => {
                let why = "a genuine GPU signed this nonce; where it is was not checked";
                table(appraised.checks(), "yes", why)
            }
        }
    }
}

fn judge(args: &EvidenceArgs) -> Result<Result<Yes, Rejection>, Unreadable> {
    let policy = args.policy()?;
    let longest = GPU_EVIDENCE_BYTES_MAX.max(QUOTE_LENGTH_MAX);
    let file = read(&args.file, longest as u64)?;
    let Some(kind) = detect(&file) else {
        return Err(Unreadable {
            reason: format!("{}: no kind of evidence that is known here", args.file.display()),
            hint: Some("wanted a quote of version 3 to 5, an SEV-SNP report or GPU evidence"),
        });
    };
    args.fits(kind)?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(args.at.unwrap_or_else(unix_now)));
    if kind == Kind::GpuEvidence {
        let judged = gpu::judge(&file, args.chain.as_ref(), &args.gpu, &policy, now)?;
        return Ok(judged.map(Yes::Gpu));
    }
    let claims =
        args.claims.as_ref().map(|path| read(path, CLAIMS_BYTES_MAX as u64)).transpose()?;
    let (claims, report_data) = (claims.as_deref(), args.report_data);
    let evidence = Evidence { quote: &file, claims, report_data, ..Evidence::default() };
    let judged = match kind {
        Kind::SnpReport => match args.snp_endorsements()? {
            Ok(endorsements) => snp::appraise(&evidence, &endorsements, &policy, now, &AwsLc),
            Err(rejection) => Err(rejection),
        },
        _ => match args.collateral()? {
            Ok(endorsements) => appraise(&evidence, &endorsements, &policy, now, &AwsLc),
            Err(rejection) => Err(rejection),
        },
    };
    Ok(judged.map(Yes::Cpu))
}

impl EvidenceArgs {
    fn policy(&self) -> Result<Policy, Unreadable> {
        let mut policy = match &self.policy {
            None => Policy::default(),
            Some(path) => read_policy(path)?,
        };
        if let Some(path) = &self.root {
            policy.roots = Roots::from_der(&read_root(path)?);
        }
        if self.dangerous_accept_any_tcb_status {
            policy.tcb_status = Expect::DangerousAny;
            policy.advisories = Expect::DangerousAny;
            policy.snp.tcb_min = Some(TcbMinimum::DangerousAny);
        }
        policy.dangerous_accept_debug |= self.dangerous_accept_debug;
        policy.dangerous_skip_revocation |= self.dangerous_skip_revocation;
        Ok(policy)
    }

    /// An option that another kind of evidence has would be ignored: whoever gives it expects
    /// something else to be judged.
    fn fits(&self, kind: Kind) -> Result<(), Unreadable> {
        let (snp, gpu) = (kind == Kind::SnpReport, kind == Kind::GpuEvidence);
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
        match options.into_iter().find(|(_, given, known)| *given && !*known) {
            None => Ok(()),
            Some((option, ..)) => Err(Unreadable {
                reason: format!("{} holds {kind}, which has no {option}", self.file.display()),
                hint: Some(match kind {
                    Kind::GpuEvidence => "GPU evidence is judged with --nonce HEX and --chain PEM",
                    Kind::SnpReport => {
                        "an SEV-SNP report is judged with --endorsement-key DER, --chain PEM and \
                         --crl DER"
                    }
                    Kind::SgxQuote | Kind::TdxQuote => "a quote is judged with --collateral JSON",
                }),
            }),
        }
    }

    fn collateral(&self) -> Result<Result<Endorsements, Rejection>, Unreadable> {
        let Some(path) = &self.collateral else {
            return Err(Unreadable {
                reason: "a quote comes with collateral, and none was given".into(),
                hint: Some("--collateral FILE is a QuoteCollateralV3, JSON"),
            });
        };
        let collateral = read(path, COLLATERAL_LENGTH_MAX as u64)?;
        Ok(Endorsements::parse(&collateral)
            .map_err(|error| Rejection::before_checks(Reason::Malformed(error))))
    }

    fn snp_endorsements(&self) -> Result<Result<snp::Endorsements, Rejection>, Unreadable> {
        let read_parts = match (&self.collateral, &self.endorsement_key, &self.chain) {
            (Some(path), ..) => {
                let document = read(path, COLLATERAL_LENGTH_MAX as u64)?;
                snp::Endorsements::parse(&document)
            }
            (None, Some(key), Some(chain)) => {
                let key = read(key, ENDORSEMENT_KEY_LENGTH_MAX as u64)?;
                let chain = read(chain, CHAIN_LENGTH_MAX as u64)?;
                let Ok(chain) = String::from_utf8(chain) else {
                    return Err(Unreadable::new("--chain: wanted PEM certificates".into()));
                };
                let crl = self.crl.as_ref().map(|path| read(path, SNP_CRL_LENGTH_MAX as u64));
                SnpEndorsements::new(key, chain, crl.transpose()?)
                    .and_then(snp::Endorsements::from_parts)
            }
            _ => {
                return Err(Unreadable {
                    reason: "an SEV-SNP report comes with certificates, and not all were given"
                        .into(),
                    hint: Some(
                        "--endorsement-key DER is the VCEK or VLEK, --chain PEM the ASK or ASVK \
                         and the ARK",
                    ),
                });
            }
        };
        Ok(read_parts.map_err(snp::unreadable))
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;

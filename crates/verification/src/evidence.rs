//! Evidence of any kind: the bytes tell the kind, which tells what has to come with it.

use std::time::Duration;

use confide_evidence::{
    EvidenceKind, ReportData,
    attested_certificate::{ATTESTED_CERTIFICATE_BYTES_MAX, AttestedCertificate, CertificateForm},
    claims::CLAIMS_BYTES_MAX,
    collateral::COLLATERAL_LENGTH_MAX,
    detect_kind,
    gpu::{CHAIN_BYTES_MAX, GPU_EVIDENCE_BYTES_MAX, GpuEvidence, OCSP_BYTES_MAX, OCSP_MAX},
    gpu::{RIM_BYTES_MAX, RIMS_MAX},
    pem::{CHAIN_LENGTH_MAX, decode_long_chain},
    quote::QUOTE_LENGTH_MAX,
    snp_endorsements::{ENDORSEMENT_KEY_LENGTH_MAX, SNP_CRL_LENGTH_MAX, SnpEndorsements},
};
use confide_verifier::{
    Appraised, Crypto, Evidence, Expect, GpuAppraisal, GpuAppraised, Policy, Rejection, RootKind,
    Scope, TcbMinimum, UnixTime, snp,
};
use serde_json::{Value, json};

use crate::{
    endorsements::{CpuEndorsements, is_chain_labelled_simulated, is_labelled_simulated},
    option_style::OptionStyle,
};

/// The longest text of a certificate that carries evidence, with its chain.
pub const CERTIFICATE_TEXT_MAX: usize = 2 * ATTESTED_CERTIFICATE_BYTES_MAX;

/// The largest number of bytes of evidence of any kind.
pub const EVIDENCE_BYTES_MAX: usize =
    max(GPU_EVIDENCE_BYTES_MAX, max(QUOTE_LENGTH_MAX, CERTIFICATE_TEXT_MAX));

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Evidence, and what was given to judge it with. What does not apply to its kind is refused.
#[derive(Clone, Debug, Default)]
pub struct EvidenceInput {
    /// A quote (SGX version 3, TDX version 4 or 5), an SEV-SNP report, a GPU's report or container,
    /// or a certificate that carries a quote (DER or PEM).
    pub evidence: Vec<u8>,
    /// Endorsements, JSON: a QuoteCollateralV3, or all endorsements of an SEV-SNP report.
    pub collateral: Option<Vec<u8>>,
    /// SEV-SNP: the certificate of the chip key (VCEK or VLEK), DER.
    pub endorsement_key: Option<Vec<u8>>,
    /// The certificate chain, PEM. SEV-SNP: ASK or ASVK, then ARK; GPUs: attestation key first.
    pub chain: Option<Vec<u8>>,
    /// SEV-SNP: the root's revocation list, DER.
    pub crl: Option<Vec<u8>>,
    /// CBOR claims, whose SHA-256 the report data has to hold.
    pub claims: Option<Vec<u8>>,
    /// The report data that a quote or SEV-SNP report must contain.
    pub report_data: Option<ReportData>,
    /// GPU: the nonce that the report must contain.
    pub nonce: Option<[u8; 32]>,
    /// GPU: reference manifests of the driver and the VBIOS.
    pub rims: Vec<Vec<u8>>,
    /// GPU: revocation answers (OCSP, DER).
    pub ocsp: Vec<Vec<u8>>,
}

/// The rules by which evidence is judged.
#[derive(Clone, Debug)]
pub struct EvidenceRules {
    /// The policy for the evidence.
    pub policy: Policy,
    /// Unix seconds at which all has to be valid.
    pub at: u64,
    /// Whether any TCB status except `Revoked`, any advisories and any security versions are accepted.
    pub dangerous_accept_any_tcb_status: bool,
    /// Whether a machine is accepted whose memory the host can read.
    pub dangerous_accept_debug: bool,
    /// SEV-SNP: whether revocation is skipped if there is no revocation list.
    pub dangerous_skip_revocation: bool,
}

impl EvidenceRules {
    /// The rules of a policy alone.
    pub fn new(policy: Policy, at: u64) -> Self {
        Self {
            policy,
            at,
            dangerous_accept_any_tcb_status: false,
            dangerous_accept_debug: false,
            dangerous_skip_revocation: false,
        }
    }

    /// The policy, weakened as the rules say.
    fn effective_policy(&self) -> Policy {
        let mut policy = self.policy.clone();
        if self.dangerous_accept_any_tcb_status {
            policy.tcb_status = Expect::DangerousAny;
            policy.advisories = Expect::DangerousAny;
            policy.snp.tcb_min = Some(TcbMinimum::DangerousAny);
        }
        policy.dangerous_accept_debug |= self.dangerous_accept_debug;
        policy.dangerous_skip_revocation |= self.dangerous_skip_revocation;
        policy
    }
}

/// The reason why evidence could not be judged: what was given does not suffice, or does not fit.
#[derive(Debug)]
pub enum EvidenceError {
    /// The bytes are evidence of no kind.
    UnknownKind,
    /// A certificate that carries evidence cannot be read.
    Certificate(String),
    /// A certificate carries evidence that ties nothing to its key.
    CertificateKind(EvidenceKind),
    /// Report data or claims were given for a certificate, which itself says what its quote must hold.
    CertificateOptions,
    /// An option does not apply to evidence of this kind.
    OtherKind {
        /// The option.
        option: &'static str,
        /// The kind of the evidence.
        kind: EvidenceKind,
    },
    /// A quote came without collateral.
    NoCollateral,
    /// An SEV-SNP report came without its certificates.
    NoEndorsementKey,
    /// Evidence of a GPU came without the nonce.
    NoNonce,
    /// A GPU's report came without its certificates.
    NoGpuChain,
    /// A GPU's container came with a chain, and holds its own.
    TwoChains,
    /// The chain is not PEM.
    ChainNotText,
    /// An input has too many bytes.
    TooLong {
        /// The option.
        option: &'static str,
        /// The largest number of bytes.
        limit: usize,
    },
    /// An option was given too often.
    TooMany {
        /// The option.
        option: &'static str,
        /// The largest number.
        limit: usize,
        /// The number that was given.
        got: usize,
    },
}

impl EvidenceError {
    /// What is wrong, with options written in this style.
    pub fn describe(&self, style: OptionStyle) -> String {
        let name = |option| style.format(option);
        match self {
            Self::UnknownKind => "not a known kind of evidence".into(),
            Self::Certificate(error) => error.clone(),
            Self::CertificateKind(kind) => {
                format!("the certificate holds {kind}, wanted a quote or an SEV-SNP report")
            }
            Self::CertificateOptions => {
                "a certificate itself says which report data its quote must hold".into()
            }
            Self::OtherKind { option, kind } => {
                format!("{} does not apply to {kind}", name(option))
            }
            Self::NoCollateral => "a quote needs collateral, and none was given".into(),
            Self::NoEndorsementKey => {
                "an SEV-SNP report needs certificates, and not all were given".into()
            }
            Self::NoNonce => "evidence of a GPU needs a nonce, and none was given".into(),
            Self::NoGpuChain => "a GPU's report needs its certificates, and none were given".into(),
            Self::TwoChains => {
                format!("the container holds its own chain; {} is for a report", name("chain"))
            }
            Self::ChainNotText => {
                format!("{} is not text: wanted PEM certificates in UTF-8", name("chain"))
            }
            Self::TooLong { option, limit } => {
                format!("{} is too long: wanted at most {limit} bytes", name(option))
            }
            Self::TooMany { option, limit, got } => {
                format!("{}: wanted at most {limit}, got {got}", name(option))
            }
        }
    }

    /// What to do about it, with options written in this style.
    pub fn hint(&self, style: OptionStyle) -> Option<String> {
        let option = |name, value| style.format_with_value(name, value);
        Some(match self {
            Self::UnknownKind => {
                "give a quote of version 3 to 5, an SEV-SNP report or GPU evidence".into()
            }
            Self::CertificateOptions => {
                format!("leave out {} and {}", style.format("report_data"), style.format("claims"))
            }
            Self::NoCollateral => {
                format!("give {}, a QuoteCollateralV3 in JSON", option("collateral", "FILE"))
            }
            Self::NoEndorsementKey => format!(
                "give the VCEK or VLEK with {}, and the ASK or ASVK and the ARK with {}",
                option("endorsement_key", "DER"),
                option("chain", "PEM")
            ),
            Self::NoNonce => {
                format!("give {}, the nonce that the GPU was asked to sign", option("nonce", "HEX"))
            }
            Self::NoGpuChain => format!(
                "give {} with the certificates, attestation key first",
                option("chain", "PEM")
            ),
            Self::OtherKind { kind: EvidenceKind::GpuEvidence, .. } => format!(
                "GPU evidence is judged with {} and {}",
                option("nonce", "HEX"),
                option("chain", "PEM")
            ),
            Self::OtherKind { kind: EvidenceKind::SnpReport, .. } => format!(
                "an SEV-SNP report is judged with {}, {} and {}",
                option("endorsement_key", "DER"),
                option("chain", "PEM"),
                option("crl", "DER")
            ),
            Self::OtherKind { .. } => {
                format!("a quote is judged with {}", option("collateral", "JSON"))
            }
            _ => return None,
        })
    }
}

/// What the verdict says of a certificate that carries evidence.
#[derive(Clone, Copy, Debug)]
pub struct CertificateFacts {
    /// The program whose form the certificate has.
    pub form: CertificateForm,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_hash: [u8; 32],
}

impl CertificateFacts {
    /// Whether the certificate is of another program, which makes no claims about its configuration:
    /// its acceptance covers the platform alone.
    pub fn is_foreign(&self) -> bool {
        self.form != CertificateForm::Confide
    }
}

/// Evidence that was accepted: of a CPU, or of a GPU alone.
#[derive(Debug)]
pub enum AcceptedEvidence {
    /// The appraisal of a CPU's evidence.
    Cpu(Box<Appraised>),
    /// The appraisal of a GPU's evidence.
    Gpu(GpuAppraised),
}

/// The verdict on evidence, and the certificate in which it came.
#[derive(Debug)]
pub struct EvidenceVerdict {
    /// The certificate that carried the evidence.
    pub certificate: Option<CertificateFacts>,
    /// The appraisal, or the rejection.
    pub result: Result<AcceptedEvidence, Rejection>,
    /// Whether a certificate among the endorsements is labelled as simulated.
    has_simulated_label: bool,
}

impl EvidenceVerdict {
    /// What an acceptance covers: that of another program's certificate, the platform alone.
    pub fn scope(&self) -> Scope {
        match &self.result {
            Ok(AcceptedEvidence::Cpu(appraised)) if !self.is_foreign() => appraised.scope(),
            _ => Scope::Platform,
        }
    }

    /// Whether the evidence came in a certificate of another program.
    pub fn is_foreign(&self) -> bool {
        self.certificate.as_ref().is_some_and(CertificateFacts::is_foreign)
    }

    /// Whether the accepted evidence of a CPU is simulated, by a label of its endorsements, which says nothing
    /// under a vendor's root; `None` for other evidence.
    pub fn is_simulated(&self) -> Option<bool> {
        match &self.result {
            Ok(AcceptedEvidence::Cpu(appraised)) => {
                Some(appraised.root().kind == RootKind::Custom && self.has_simulated_label)
            }
            _ => None,
        }
    }

    /// The verdict as one object.
    pub fn to_json(&self) -> Value {
        let mut document = match &self.result {
            Ok(AcceptedEvidence::Cpu(appraised)) => {
                let mut document = appraised.to_json();
                document["scope"] = self.scope().as_str().into();
                document
            }
            Ok(AcceptedEvidence::Gpu(appraised)) => appraised.to_json(),
            Err(rejection) => rejection.to_json(),
        };
        if let Some(CertificateFacts { form, spki_hash }) = &self.certificate {
            document["certificate"] =
                json!({ "form": form.to_string(), "spki_sha256": hex::encode(spki_hash) });
        }
        document
    }
}

/// Judges evidence of any kind.
///
/// # Errors
/// [`EvidenceError`] where it could not be judged; a rejection is a verdict.
pub fn judge_evidence(
    input: EvidenceInput,
    rules: &EvidenceRules,
    crypto: &dyn Crypto,
) -> Result<EvidenceVerdict, EvidenceError> {
    check_length("evidence", Some(&input.evidence), EVIDENCE_BYTES_MAX)?;
    check_length("claims", input.claims.as_ref(), CLAIMS_BYTES_MAX)?;
    let (input, certificate) = unwrap_certificate(input)?;
    let kind = detect_kind(&input.evidence).ok_or(EvidenceError::UnknownKind)?;
    if kind == EvidenceKind::GpuEvidence && certificate.is_some() {
        // A GPU signs a nonce, which ties nothing to the certificate's key.
        return Err(EvidenceError::CertificateKind(kind));
    }
    check_options(&input, rules, kind, certificate.is_some())?;
    let policy = rules.effective_policy();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(rules.at));
    if kind == EvidenceKind::GpuEvidence {
        let result = judge_gpu(&input, &policy, now, crypto)?.map(AcceptedEvidence::Gpu);
        return Ok(EvidenceVerdict { certificate, result, has_simulated_label: false });
    }
    let evidence = Evidence {
        quote: &input.evidence,
        claims: input.claims.as_deref(),
        report_data: input.report_data,
        ..Evidence::default()
    };
    let endorsements = read_endorsements(&input, kind)?;
    let judged = endorsements.and_then(|it| it.appraise(&evidence, &policy, now, crypto));
    let result = judged.map(Box::new).map(AcceptedEvidence::Cpu);
    let has_simulated_label = match (&input.collateral, &input.chain) {
        (Some(collateral), _) => is_labelled_simulated(collateral),
        (None, Some(chain)) => is_chain_labelled_simulated(chain),
        (None, None) => false,
    };
    Ok(EvidenceVerdict { certificate, result, has_simulated_label })
}

/// Puts the evidence of a certificate in the certificate's place.
fn unwrap_certificate(
    mut input: EvidenceInput,
) -> Result<(EvidenceInput, Option<CertificateFacts>), EvidenceError> {
    let chain = match &input.evidence[..] {
        [0x30, 0x81..=0x83, ..] => vec![input.evidence.clone()],
        text if text.starts_with(b"-----BEGIN CERTIFICATE-----") => {
            decode_long_chain("certificate", text, CERTIFICATE_TEXT_MAX)
                .map_err(|error| EvidenceError::Certificate(error.to_string()))?
        }
        _ => return Ok((input, None)),
    };
    if input.report_data.is_some() || input.claims.is_some() {
        return Err(EvidenceError::CertificateOptions);
    }
    let Some(first) = chain.first() else { return Ok((input, None)) };
    let read = AttestedCertificate::parse(first)
        .map_err(|error| EvidenceError::Certificate(error.to_string()))?;
    let facts = CertificateFacts { form: read.form, spki_hash: read.spki_hash() };
    // Claims of this project have to be covered by the report data, as those of a file.
    input.report_data = read.claims.is_none().then_some(read.report_data);
    input.claims = read.claims;
    input.evidence = read.quote;
    Ok((input, Some(facts)))
}

/// Refuses an option of another kind of evidence: it would be ignored, while the caller relies on it.
fn check_options(
    input: &EvidenceInput,
    rules: &EvidenceRules,
    kind: EvidenceKind,
    in_certificate: bool,
) -> Result<(), EvidenceError> {
    let (snp, gpu) = (kind == EvidenceKind::SnpReport, kind == EvidenceKind::GpuEvidence);
    let options = [
        ("collateral", input.collateral.is_some(), !gpu),
        ("endorsement_key", input.endorsement_key.is_some(), snp),
        ("chain", input.chain.is_some(), snp || gpu),
        ("crl", input.crl.is_some(), snp),
        ("dangerous_skip_revocation", rules.dangerous_skip_revocation, snp),
        ("dangerous_accept_debug", rules.dangerous_accept_debug, !gpu),
        ("dangerous_accept_any_tcb_status", rules.dangerous_accept_any_tcb_status, !gpu),
        ("report_data", input.report_data.is_some(), !gpu || in_certificate),
        ("claims", input.claims.is_some(), !gpu || in_certificate),
        ("nonce", input.nonce.is_some(), gpu),
        ("rim", !input.rims.is_empty(), gpu),
        ("ocsp", !input.ocsp.is_empty(), gpu),
    ];
    match options.into_iter().find(|(_, given, known)| *given && !*known) {
        Some((option, ..)) => Err(EvidenceError::OtherKind { option, kind }),
        None => Ok(()),
    }
}

/// The endorsements of a CPU's evidence; those that cannot be read are a rejection.
fn read_endorsements(
    input: &EvidenceInput,
    kind: EvidenceKind,
) -> Result<Result<CpuEndorsements, Rejection>, EvidenceError> {
    check_length("collateral", input.collateral.as_ref(), COLLATERAL_LENGTH_MAX)?;
    if let Some(document) = &input.collateral {
        return Ok(CpuEndorsements::parse(kind, document));
    }
    if kind != EvidenceKind::SnpReport {
        return Err(EvidenceError::NoCollateral);
    }
    let (Some(key), Some(chain)) = (&input.endorsement_key, &input.chain) else {
        return Err(EvidenceError::NoEndorsementKey);
    };
    check_length("endorsement_key", Some(key), ENDORSEMENT_KEY_LENGTH_MAX)?;
    check_length("chain", Some(chain), CHAIN_LENGTH_MAX)?;
    check_length("crl", input.crl.as_ref(), SNP_CRL_LENGTH_MAX)?;
    let chain = String::from_utf8(chain.clone()).map_err(|_| EvidenceError::ChainNotText)?;
    let parts = SnpEndorsements::new(key.clone(), chain, input.crl.clone());
    let endorsements = parts.and_then(snp::Endorsements::from_parts);
    Ok(endorsements.map(CpuEndorsements::from).map_err(snp::reject_unreadable))
}

/// Judges a GPU's report with its chain, or a container.
fn judge_gpu(
    input: &EvidenceInput,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Result<GpuAppraised, Rejection>, EvidenceError> {
    let nonce = input.nonce.ok_or(EvidenceError::NoNonce)?;
    check_length("chain", input.chain.as_ref(), CHAIN_BYTES_MAX)?;
    check_documents("rim", &input.rims, RIMS_MAX, RIM_BYTES_MAX)?;
    check_documents("ocsp", &input.ocsp, OCSP_MAX, OCSP_BYTES_MAX)?;
    let file = &input.evidence;
    let case = match (GpuEvidence::is_container(file), &input.chain) {
        (true, None) => GpuAppraisal::from_container(file, nonce),
        (true, Some(_)) => return Err(EvidenceError::TwoChains),
        (false, Some(chain)) => GpuAppraisal::from_report(file, chain, nonce),
        (false, None) => return Err(EvidenceError::NoGpuChain),
    };
    let mut case = match case {
        Ok(case) => case,
        Err(reason) => return Ok(Err(GpuAppraisal::reject_unreadable(reason))),
    };
    case.rims.extend(input.rims.iter().map(Vec::as_slice));
    case.ocsp.extend(input.ocsp.iter().map(Vec::as_slice));
    Ok(case.appraise(policy, now, crypto))
}

fn check_length(
    option: &'static str,
    bytes: Option<&Vec<u8>>,
    limit: usize,
) -> Result<(), EvidenceError> {
    match bytes {
        Some(bytes) if bytes.len() > limit => Err(EvidenceError::TooLong { option, limit }),
        _ => Ok(()),
    }
}

fn check_documents(
    option: &'static str,
    documents: &[Vec<u8>],
    limit: usize,
    bytes_max: usize,
) -> Result<(), EvidenceError> {
    let got = documents.len();
    if got > limit {
        return Err(EvidenceError::TooMany { option, limit, got });
    }
    documents.iter().try_for_each(|document| check_length(option, Some(document), bytes_max))
}

//! Why evidence was refused.

use alloc::string::{String, ToString};

use confide_evidence::{
    ParseError, UnixSeconds, claims::ClaimsError, gpu::GpuEvidenceError, quote::Tee,
    tcb_info::TcbStatus,
};

/// The first check that failed: subject, wanted, got.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The quote or an endorsement could not be read.
    #[error(transparent)]
    Malformed(#[from] ParseError),
    /// The chain ends in a root that the policy does not list.
    #[error("root is not trusted: wanted {wanted}, got sha256:{got}")]
    UntrustedRoot {
        /// The policy's roots.
        wanted: String,
        /// SHA-256 of the root that came, hexadecimal.
        got: String,
    },
    /// A chain has too many or too few certificates, or they are not where they belong.
    #[error("{chain} has a wrong shape: wanted {wanted}, got {got}")]
    ChainShape {
        /// The chain.
        chain: &'static str,
        /// The certificates that it must have, leaf first.
        wanted: &'static str,
        /// The certificates that it has.
        got: String,
    },
    /// Two copies of a certificate or chain differ.
    #[error("{subject} differs from {other}")]
    Differs {
        /// The copy that was compared.
        subject: &'static str,
        /// The copy that it must equal.
        other: &'static str,
    },
    /// A certificate carries another common name than its role has.
    #[error("{subject} has a wrong name: wanted `{wanted}`, got `{got}`")]
    CertificateName {
        /// The certificate.
        subject: &'static str,
        /// The common name of that role.
        wanted: &'static str,
        /// The common name that it has.
        got: String,
    },
    /// A certificate may not be used for the purpose that it serves here.
    #[error("{subject} may not be used for this purpose: wanted {wanted}")]
    CertificateUse {
        /// The certificate.
        subject: &'static str,
        /// The property that is missing.
        wanted: &'static str,
    },
    /// The time is outside the life of a certificate, revocation list or document.
    #[error(
        "{subject} is valid from {} to {}, now is {}",
        UnixSeconds(*from), UnixSeconds(*until), UnixSeconds(*now)
    )]
    OutsideWindow {
        /// The certificate, list or document.
        subject: &'static str,
        /// Unix seconds.
        from: u64,
        /// Unix seconds.
        until: u64,
        /// Unix seconds.
        now: u64,
    },
    /// The chain verifier refused a chain or revocation list.
    #[error("{chain} does not verify: {reason}")]
    Chain {
        /// The chain.
        chain: &'static str,
        /// The chain verifier's error.
        reason: String,
    },
    /// A certificate is on the revocation list of its issuer.
    #[error("{subject} is revoked")]
    CertificateRevoked {
        /// The certificate.
        subject: &'static str,
    },
    /// A revocation list is older than the policy's minimum.
    #[error(
        "{subject} is rolled back: wanted {field} at least {}, got {}",
        describe_crl_value(field, *wanted), describe_crl_value(field, *got)
    )]
    RolledBack {
        /// The list.
        subject: &'static str,
        /// `number` or `issue date`.
        field: &'static str,
        /// The policy's minimum.
        wanted: u64,
        /// The value in the list.
        got: u64,
    },
    /// A signature does not verify.
    #[error("signature of {subject} does not verify")]
    Signature {
        /// The document or report that was signed.
        subject: &'static str,
    },
    /// An endorsement speaks of the other TEE.
    #[error("{subject} is for another TEE: wanted {wanted}, got {got}")]
    WrongTee {
        /// The endorsement.
        subject: &'static str,
        /// The quote's TEE.
        wanted: Tee,
        /// The endorsement's TEE.
        got: Tee,
    },
    /// A field differs from its reference value.
    #[error("{field} does not match: wanted {wanted}, got {got}")]
    Value {
        /// The field.
        field: &'static str,
        /// The reference value or values.
        wanted: String,
        /// The value found.
        got: String,
    },
    /// The quoting enclave did not bind the attestation key.
    #[error("attestation key is not the one that the quoting enclave reports")]
    AttestationKey,
    /// The security versions are below every level that Intel lists.
    #[error("no TCB level matches the security versions of {subject}")]
    NoTcbLevel {
        /// Platform, TDX module or quoting enclave.
        subject: &'static str,
    },
    /// The policy does not accept this TCB status.
    #[error("TCB status is not accepted: wanted {wanted}, got {got}")]
    TcbStatus {
        /// The policy's statuses.
        wanted: String,
        /// Platform, module and quoting enclave together.
        got: TcbStatus,
    },
    /// The policy does not accept an advisory that applies.
    #[error("advisory is not accepted: wanted {wanted}, got {got}")]
    Advisory {
        /// The policy's advisories.
        wanted: String,
        /// The first that is not among them.
        got: String,
    },
    /// The host can read the memory of the TEE.
    #[error("debug: the host can read the memory of this {0} program")]
    Debug(Tee),
    /// TD attributes that no production trust domain has.
    #[error("TD attributes are not accepted: wanted {wanted}, got {got:#018x}")]
    TdAttributes {
        /// The rule that is broken.
        wanted: &'static str,
        /// The attributes.
        got: u64,
    },
    /// A guest policy that is not accepted (SEV-SNP).
    #[error("guest policy is not accepted: wanted {wanted}, got {got:#x}")]
    GuestPolicy {
        /// The rule that is broken.
        wanted: &'static str,
        /// The guest policy.
        got: u64,
    },
    /// No revocation list came, and the policy does not skip revocation.
    #[error("revocation list is missing: wanted one, or a policy that skips revocation")]
    NoRevocationList,
    /// The policy does not say which security versions are new enough (SEV-SNP).
    #[error("policy has no snp.tcb_min: wanted the minimum security versions to accept")]
    NoTcbMinimum,
    /// The policy has a workload but no reference values for this TEE.
    #[error("policy has no reference values for {0}")]
    NoReferenceValues(Tee),
    /// The claims could not be read.
    #[error("claims: {0}")]
    Claims(ClaimsError),
    /// The policy speaks of a claim, and no claims came.
    #[error("{field} is demanded by the policy, and the evidence has no claims")]
    NoClaims {
        /// The field of the policy.
        field: &'static str,
    },
    /// The container of a GPU's evidence could not be read.
    #[error(transparent)]
    GpuEvidence(GpuEvidenceError),
    /// A GPU is required by the policy or named by the claims, and no evidence of one came.
    #[error("evidence of a GPU is missing: the policy requires it or the claims name it")]
    GpuMissing,
    /// What a policy demands of a GPU was not evaluated.
    #[error("{what} was not evaluated, and the policy demands it")]
    GpuNotEvaluated {
        /// The check that was not evaluated.
        what: &'static str,
    },
    /// A GPU measures otherwise than its reference manifest says.
    #[error("GPU measurement {index} ({component} RIM) does not match: wanted {wanted}, got {got}")]
    GpuMeasurement {
        /// The component whose manifest it is.
        component: &'static str,
        /// The index in the report, from 1.
        index: u8,
        /// The reference values, hexadecimal.
        wanted: String,
        /// The value found, hexadecimal.
        got: String,
    },
    /// Claims hold for longer than the policy allows, or were made too long ago.
    #[error("{field} is too long: wanted at most {wanted} s, got {got} s")]
    TooOld {
        /// The field of the policy.
        field: &'static str,
        /// The policy's maximum in seconds.
        wanted: u64,
        /// The value in the claims, in seconds.
        got: u64,
    },
}

impl Reason {
    /// Whether the evidence could not be judged at all, rather than judged and refused.
    pub fn is_unreadable(&self) -> bool {
        match self {
            Reason::Malformed(ParseError::TrailingBytes { .. }) => false,
            Reason::Malformed(_) | Reason::GpuEvidence(_) => true,
            _ => false,
        }
    }
}

/// The field of a revocation list that says when it was issued.
pub(crate) const ISSUE_DATE: &str = "issue date";

/// Writes a value of a revocation list: its issue date as a time, its number as it is.
fn describe_crl_value(field: &str, value: u64) -> String {
    match field {
        ISSUE_DATE => UnixSeconds(value).to_string(),
        _ => value.to_string(),
    }
}

//! Decides on a server's evidence by a policy, with no memory: every signature is verified each time.

use std::time::Duration;

use confide_channel::Binding;
use confide_evidence::{Appraise, EvidenceKind, ParseError, PresentedEvidence, detect_kind};
use confide_verification::describe_appraisal;
use confide_verifier::{
    Appraised, BindingLevel, DangerousScope, Endorsements, Evidence, Outcome, Policy, PolicyError,
    Reason, Rejection, RootKind, Scope, UnixTime, appraise, is_simulated_certificate, snp,
};
use serde_json::Value;

use crate::crypto::RustCrypto;

/// A policy, endorsements of the caller's own if any, and a clock.
pub struct PolicyAppraiser {
    policy: Policy,
    collateral: Option<Vec<u8>>,
    clock: fn() -> u64,
}

/// The accepted evidence of a connection.
#[derive(Clone, Debug)]
pub struct PeerAppraisal {
    verdict: Appraised,
    simulated: bool,
}

/// The reason why evidence was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppraisalError {
    /// No collateral came with the evidence, and the caller gave none.
    #[error(
        "collateral is missing: wanted the peer's stapled collateral or the caller's own, got neither"
    )]
    NoCollateral,
    /// The collateral cannot be read.
    #[error("collateral is not readable: {0}")]
    Collateral(#[from] ParseError),
    /// The evidence is of a kind that is not appraised here.
    #[error("evidence is not supported: wanted a DCAP quote or an SNP report, got {0}")]
    Unsupported(EvidenceKind),
    /// The evidence holds, but says nothing of the program that answered, and the policy does not
    /// accept that.
    #[error(
        "only the platform was checked: wanted a policy that names program and configuration, got \
         one without {}",
        missing.join(" and ")
    )]
    Scope {
        /// The keys that the policy lacks.
        missing: Vec<&'static str>,
    },
    /// A check failed.
    #[error("{}", .rejection.reason())]
    Rejected {
        /// The verifier's rejection.
        rejection: Rejection,
        /// Whether the endorsements were the caller's own, and not those that the peer stapled.
        has_own_endorsements: bool,
    },
}

impl PolicyAppraiser {
    /// An appraiser for the policy in `policy_toml`. `collateral` is used instead of what servers
    /// staple; `clock` returns Unix seconds.
    ///
    /// # Errors
    /// [`PolicyError`] if the policy cannot be read.
    pub fn new(
        policy_toml: &str,
        collateral: Option<Vec<u8>>,
        clock: fn() -> u64,
    ) -> Result<Self, PolicyError> {
        Ok(Self { policy: Policy::from_toml(policy_toml)?, collateral, clock })
    }

    /// The binding to connect with if the caller names none: what the policy demands, else key binding.
    pub fn default_binding(&self) -> Binding {
        match self.policy.binding {
            Some(BindingLevel::Session) => Binding::Session,
            _ => Binding::Key,
        }
    }

    /// Judges a quote or an SEV-SNP report that came by any way, with endorsements of its own if the appraiser has
    /// none.
    ///
    /// # Errors
    /// [`AppraisalError`] if the evidence is not accepted. Evidence of a platform alone is, as by `confide verify`.
    pub fn judge(
        &self,
        evidence: &Evidence<'_>,
        collateral: Option<&[u8]>,
    ) -> Result<PeerAppraisal, AppraisalError> {
        let has_own_endorsements = self.collateral.is_some();
        let reject = |rejection| AppraisalError::Rejected { rejection, has_own_endorsements };
        let collateral = self.collateral.as_deref().or(collateral);
        let collateral = collateral.ok_or(AppraisalError::NoCollateral)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs((self.clock)()));
        let policy = &self.policy;
        match detect_kind(evidence.quote) {
            Some(kind @ EvidenceKind::GpuEvidence) => Err(AppraisalError::Unsupported(kind)),
            Some(EvidenceKind::SnpReport) => {
                let endorsements = snp::Endorsements::parse(collateral)?;
                let verdict = snp::appraise(evidence, &endorsements, policy, now, &RustCrypto);
                let verdict = verdict.map_err(reject)?;
                Ok(PeerAppraisal::new(verdict, endorsements.root_der().unwrap_or_default()))
            }
            // Bytes of an unknown kind are treated as a quote, whose parser says what is wrong.
            None | Some(EvidenceKind::SgxQuote | EvidenceKind::TdxQuote) => {
                let endorsements = Endorsements::parse(collateral)?;
                let verdict = appraise(evidence, &endorsements, policy, now, &RustCrypto);
                let verdict = verdict.map_err(reject)?;
                let root = endorsements.root_der().unwrap_or_default();
                Ok(PeerAppraisal::new(verdict, root))
            }
        }
    }
}

impl Appraise for PolicyAppraiser {
    type Appraised = PeerAppraisal;
    type Rejection = AppraisalError;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<PeerAppraisal, AppraisalError> {
        let accepted = self.judge(&Evidence::from(presented), presented.collateral)?;
        match (accepted.verdict.scope(), self.policy.dangerous_scope) {
            (Scope::Workload, _) | (Scope::Platform, Some(DangerousScope::Platform)) => {
                Ok(accepted)
            }
            (Scope::Platform, None) => {
                Err(AppraisalError::Scope { missing: accepted.verdict.missing_keys() })
            }
        }
    }
}

impl PeerAppraisal {
    /// `root` holds the root's certificate. Whether it names itself as simulated is a label, and never
    /// affects acceptance.
    fn new(verdict: Appraised, root: &[u8]) -> Self {
        let simulated = is_simulated_certificate(root) && verdict.root().kind == RootKind::Custom;
        Self { verdict, simulated }
    }

    /// The guarantee of this connection, computed from what was checked: who is protected from whom.
    pub fn guarantee(&self) -> &'static str {
        self.verdict.guarantee(self.simulated)
    }

    /// The Unix second after which the claims, or the endorsements that they rest on, have expired.
    pub fn not_after(&self) -> u64 {
        self.verdict.not_after()
    }

    /// SHA-256 of the key that the claims name; `None` without claims.
    pub fn pubkey_hash(&self) -> Option<[u8; 32]> {
        self.verdict.claims().map(|claims| claims.pubkey_hash)
    }

    /// The verdict with the names that `confide connect` prints.
    pub fn to_json(&self) -> Value {
        let mut document = describe_appraisal(&self.verdict, self.simulated);
        document["guarantee"] = self.guarantee().into();
        document
    }
}

impl AppraisalError {
    /// The name of the check that failed, as policies name it.
    pub fn failed_check(&self) -> &str {
        match self {
            Self::NoCollateral | Self::Collateral(_) => "collateral",
            Self::Unsupported(_) => "evidence",
            Self::Scope { .. } => "scope",
            Self::Rejected { rejection, .. } => rejection
                .checks()
                .iter()
                .find(|check| check.outcome == Outcome::Failed)
                .map_or("evidence", |check| check.name),
        }
    }

    /// The verifier's reason, if a check of it failed.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Rejected { rejection, .. } => Some(rejection.reason()),
            _ => None,
        }
    }

    /// Whether a check failed with endorsements of the caller's own.
    pub fn has_own_endorsements(&self) -> bool {
        matches!(self, Self::Rejected { has_own_endorsements: true, .. })
    }

    /// Every check with its outcome, if checks ran.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Rejected { rejection, .. } => rejection.to_json(),
            _ => Value::Null,
        }
    }
}

//! Why evidence was not accepted.

use confide_collateral::CollateralError;
use confide_evidence::{EvidenceKind, ParseError};
use confide_verifier::{Outcome, Rejection};

/// Why evidence was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppraisalError {
    /// No collateral came with the evidence or is configured.
    #[error(
        "collateral is missing: wanted the peer's stapled collateral or the caller's own, got neither"
    )]
    NoCollateral,
    /// The collateral cannot be read.
    #[error("collateral is not readable: {0}")]
    Collateral(#[from] ParseError),
    /// The collateral could not be had from the service.
    #[error("collateral could not be fetched: {0}")]
    Fetch(#[from] CollateralError),
    /// The evidence is of a kind that is not appraised here.
    #[error("evidence is not supported: wanted a DCAP quote or an SNP report, got {0}")]
    Unsupported(EvidenceKind),
    /// The evidence holds, and says nothing of the program that answered: the policy does not
    /// demand it.
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

impl From<Rejection> for AppraisalError {
    /// A rejection with endorsements that the peer stapled.
    fn from(rejection: Rejection) -> Self {
        Self::Rejected { rejection, has_own_endorsements: false }
    }
}

impl AppraisalError {
    /// The name of the check that failed.
    pub fn failed_check(&self) -> &str {
        match self {
            Self::NoCollateral | Self::Collateral(_) | Self::Fetch(_) => "collateral",
            Self::Unsupported(_) => "evidence",
            Self::Scope { .. } => "scope",
            Self::Rejected { rejection, .. } => rejection
                .checks()
                .iter()
                .find(|check| check.outcome == Outcome::Failed)
                .map_or("evidence", |check| check.name),
        }
    }

    /// The verifier's rejection, if a check of it failed.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            Self::Rejected { rejection, .. } => Some(rejection),
            _ => None,
        }
    }

    /// Whether a check failed with endorsements of the caller's own.
    pub fn has_own_endorsements(&self) -> bool {
        matches!(self, Self::Rejected { has_own_endorsements: true, .. })
    }
}

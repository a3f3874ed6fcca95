//! What an accepted attestation is worth.

use std::{sync::Arc, time::Duration};

/// An accepted attestation, cheap to clone.
pub type SharedAppraisal = Arc<PeerAppraisal>;

/// The verdict on one connection's evidence, and what it is worth.
///
/// Only [`crate::PolicyAppraiser`] makes one.
#[derive(Debug)]
pub struct PeerAppraisal {
    pub(crate) verdict: confide_verifier::Appraised,
    pub(crate) simulated: bool,
    pub(crate) operator_root: bool,
    pub(crate) collateral: Duration,
}

impl PeerAppraisal {
    /// Time spent on getting the endorsements: preparing stapled ones, or recognising them.
    /// It is part of the time of the appraisal.
    pub fn collateral_duration(&self) -> Duration {
        self.collateral
    }

    /// The verifier's answer, all of it read from signed bytes.
    pub fn verdict(&self) -> &confide_verifier::Appraised {
        &self.verdict
    }

    /// Whether the root under which this was accepted says of itself that it is simulated.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Whether the policy lists the root as the operator's own (`operator_roots`). A simulated root
    /// never counts as one.
    pub fn is_operator_root(&self) -> bool {
        self.operator_root && !self.simulated
    }

    /// The guarantee of this connection, computed from what was checked: who is protected from whom.
    pub fn guarantee(&self) -> &'static str {
        self.verdict.guarantee(self.simulated)
    }

    /// The guarantee that the attested end claims for itself, whatever that is worth.
    pub fn claimed_guarantee(&self) -> Option<&str> {
        self.verdict.claims().map(|claims| claims.guarantee.as_str())
    }

    /// Unix seconds after which the claims, or the endorsements that they rest on, have run out.
    pub fn not_after(&self) -> u64 {
        self.verdict.not_after()
    }
}

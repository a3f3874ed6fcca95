//! What an accepted attestation is worth.

use std::{sync::Arc, time::Duration};

use confide_verifier::{RootKind, Scope};

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
    ///
    /// The attested end's own word counts only where the root is production, the memory closed to
    /// the host, and program and configuration those that the policy names.
    pub fn guarantee(&self) -> &'static str {
        match self.verdict.root().kind {
            _ if self.simulated => "none (simulated)",
            RootKind::Custom => "none (custom root)",
            _ if self.verdict.is_debug() => "none (debug: the host reads the memory)",
            _ if self.verdict.scope() == Scope::Platform => "none (platform only)",
            _ => recognised_claim(self.claimed_guarantee()),
        }
    }

    /// The guarantee that the attested end claims for itself, whatever that is worth.
    pub fn claimed_guarantee(&self) -> Option<&str> {
        self.verdict.claims().map(|claims| claims.guarantee.as_str())
    }

    /// Unix seconds after which the claims, or the endorsements that they rest on, have run out.
    pub fn not_after(&self) -> u64 {
        let endorsed = self.verdict.platform().valid_until;
        self.verdict.claims().map_or(endorsed, |claims| claims.not_after.min(endorsed))
    }
}

/// The claims that have a meaning here: an attested end does not word its own guarantee.
const CLAIMS_KNOWN: [&str; 3] = [
    "operator is outside the TEE",
    "gateway only",
    // The claim of a notary, which opens TLS connections to other hosts for its clients.
    "the notary sees the plaintext, its operator does not",
];

fn recognised_claim(claim: Option<&str>) -> &'static str {
    let Some(claim) = claim else { return "none (no claims)" };
    CLAIMS_KNOWN.into_iter().find(|known| *known == claim).unwrap_or("none (unknown claim)")
}

#[cfg(test)]
mod tests {
    use super::recognised_claim;

    #[test]
    fn an_attested_end_does_not_word_its_own_guarantee() {
        assert_eq!(recognised_claim(Some("gateway only")), "gateway only");
        assert_eq!(
            recognised_claim(Some("operator is outside the TEE")),
            "operator is outside the TEE"
        );
        for other in ["none", "", "perfect secrecy", "operator is outside the TEE!"] {
            assert_eq!(recognised_claim(Some(other)), "none (unknown claim)", "{other}");
        }
        assert_eq!(recognised_claim(None), "none (no claims)");
    }
}

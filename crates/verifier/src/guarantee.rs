//! What accepted evidence is worth, in words, and how long.

use crate::{result::Appraised, roots::RootKind, scope::Scope};

/// The claims that have a meaning here: an attested end does not word its own guarantee.
const CLAIMS_KNOWN: [&str; 3] = [
    "operator is outside the TEE",
    "gateway only",
    // The claim of a notary, which opens TLS connections to other hosts for its clients.
    "the notary sees the plaintext, its operator does not",
];

impl Appraised {
    /// The guarantee that follows from what was checked: who is protected from whom. `is_simulated` is
    /// what the root says of itself ([`is_simulated_certificate`]).
    ///
    /// The attested end's own word counts only where the root is production, the memory closed to
    /// the host, and program and configuration those that the policy names.
    pub fn guarantee(&self, is_simulated: bool) -> &'static str {
        match self.root().kind {
            _ if is_simulated => "none (simulated)",
            RootKind::Custom => "none (custom root)",
            _ if self.is_debug() => "none (debug: the host reads the memory)",
            _ if self.scope() == Scope::Platform => "none (platform only)",
            _ => recognised_claim(self.claims().map(|claims| claims.guarantee.as_str())),
        }
    }

    /// Unix seconds after which the claims, or the endorsements that they rest on, have run out.
    pub fn not_after(&self) -> u64 {
        let endorsed = self.platform().valid_until;
        self.claims().map_or(endorsed, |claims| claims.not_after.min(endorsed))
    }
}

/// Whether a certificate (DER) contains `SIMULATED`. This sets a label, says nothing under a vendor's
/// root, and never affects acceptance.
pub fn is_simulated_certificate(certificate: &[u8]) -> bool {
    const LABEL: &[u8] = b"SIMULATED";
    certificate.windows(LABEL.len()).any(|part| part == LABEL)
}

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

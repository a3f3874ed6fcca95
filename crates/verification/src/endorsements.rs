//! The endorsements of one CPU vendor, and evidence judged with them.

use confide_evidence::{EvidenceKind, pem};
use confide_verifier::{
    Appraised, Crypto, Endorsements, Evidence, Policy, Reason, Rejection, UnixTime, appraise, snp,
};

/// The endorsements of one vendor.
pub enum CpuEndorsements {
    /// Those of an SGX or TDX quote.
    Intel(Box<Endorsements>),
    /// Those of an SEV-SNP report.
    Amd(Box<snp::Endorsements>),
}

impl CpuEndorsements {
    /// Reads one document with all endorsements for evidence of this kind.
    ///
    /// # Errors
    /// A rejection whose reason is that the document cannot be read.
    pub fn parse(kind: EvidenceKind, document: &[u8]) -> Result<Self, Rejection> {
        match kind {
            EvidenceKind::SnpReport => {
                let endorsements = snp::Endorsements::parse(document);
                endorsements.map(Self::from).map_err(snp::reject_unreadable)
            }
            _ => Endorsements::parse(document)
                .map(|endorsements| Self::Intel(Box::new(endorsements)))
                .map_err(|error| Rejection::before_checks(Reason::Malformed(error))),
        }
    }

    /// Judges evidence of the kind that the endorsements are for.
    ///
    /// # Errors
    /// The rejection, with the checks that led to it.
    pub fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<Appraised, Rejection> {
        match self {
            Self::Intel(endorsements) => appraise(evidence, endorsements, policy, now, crypto),
            Self::Amd(endorsements) => snp::appraise(evidence, endorsements, policy, now, crypto),
        }
    }
}

impl From<snp::Endorsements> for CpuEndorsements {
    fn from(endorsements: snp::Endorsements) -> Self {
        Self::Amd(Box::new(endorsements))
    }
}

/// Whether a certificate among the endorsements is labelled as simulated. The label says nothing
/// under a vendor's root.
pub fn is_labelled_simulated(endorsements: &[u8]) -> bool {
    let Ok(serde_json::Value::Object(parts)) = serde_json::from_slice(endorsements) else {
        return false;
    };
    let mut chains = parts.values().filter_map(serde_json::Value::as_str);
    chains.any(|text| is_chain_labelled_simulated(text.as_bytes()))
}

/// Whether a certificate of a chain (PEM) is labelled as simulated.
pub(crate) fn is_chain_labelled_simulated(chain: &[u8]) -> bool {
    let certificates = pem::decode_chain("chain", chain).unwrap_or_default();
    certificates.iter().any(|der| confide_verifier::is_simulated_certificate(der))
}

//! Evidence of a CPU judged with its endorsements, and the lines that describe the verdict.

use confide_evidence::{EvidenceKind, pem};
use confide_verifier::{
    Appraised, AwsLc, Check, Endorsements, Evidence, Outcome, Policy, Reason, Rejection, RootKind,
    Scope, UnixTime, appraise, snp,
};

use crate::verdict_lines::check_line;

/// The verdict where nothing is known of the program.
pub(super) const PLATFORM_ONLY: &str = "platform only";

/// The endorsements of one vendor.
pub(super) enum CpuEndorsements {
    /// Those of an SGX or TDX quote.
    Intel(Box<Endorsements>),
    /// Those of an SEV-SNP report.
    Amd(Box<snp::Endorsements>),
}

impl CpuEndorsements {
    /// Reads one document with all endorsements for evidence of this kind.
    pub(super) fn parse(kind: EvidenceKind, document: &[u8]) -> Result<Self, Rejection> {
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
    pub(super) fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<Appraised, Rejection> {
        match self {
            Self::Intel(endorsements) => appraise(evidence, endorsements, policy, now, &AwsLc),
            Self::Amd(endorsements) => snp::appraise(evidence, endorsements, policy, now, &AwsLc),
        }
    }
}

impl From<snp::Endorsements> for CpuEndorsements {
    fn from(endorsements: snp::Endorsements) -> Self {
        Self::Amd(Box::new(endorsements))
    }
}

/// Describes what the acceptance of evidence covers, or why it does not cover the program.
pub(super) fn describe_scope(appraised: &Appraised) -> &'static str {
    let is_passed = |name| {
        let mut checks = appraised.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    let (has_measurements, has_report_data) = (is_passed("measurements"), is_passed("report_data"));
    match appraised.scope() {
        Scope::Workload => "platform and program",
        _ if appraised.is_debug() => "the host can change the program at will",
        _ if !has_measurements => "which program runs there was not checked",
        _ if !has_report_data => "whether that program made this evidence for you was not checked",
        _ => "program and configuration were not checked completely",
    }
}

/// Describes a root that is not a vendor's; the text is empty for a vendor's.
pub(super) fn describe_root(appraised: &Appraised) -> &'static str {
    match appraised.root().kind {
        RootKind::Production => "",
        RootKind::Custom => "; the root is not a vendor's",
    }
}

/// Writes one line for each check.
pub(super) fn format_checks(checks: &[Check]) -> String {
    let line = |Check { name, outcome, detail }: &Check| check_line(name, outcome.as_str(), detail);
    checks.iter().map(line).collect()
}

/// Whether a certificate among the endorsements is labelled as simulated. The label says nothing
/// under a vendor's root.
pub(super) fn is_labelled_simulated(endorsements: &[u8]) -> bool {
    const SIMULATED: &[u8] = b"SIMULATED";
    let Ok(serde_json::Value::Object(parts)) = serde_json::from_slice(endorsements) else {
        return false;
    };
    let chains = parts.values().filter_map(serde_json::Value::as_str);
    let chains = chains.filter_map(|text| pem::decode_chain("chain", text.as_bytes()).ok());
    chains.flatten().any(|der| der.windows(SIMULATED.len()).any(|part| part == SIMULATED))
}

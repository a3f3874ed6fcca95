//! Decides on evidence by a policy, and remembers what only time can show.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use confide_evidence::{
    Appraise, ParseError, Presented, collateral::Collateral, crl::CrlDates, pem::decode_chain,
};
use confide_verifier::{
    CrlMinimum, Crypto, Endorsements, Evidence, Outcome, Policy, Rejection, RootKind, Scope,
    UnixTime, appraise,
};
use confide_verifier_aws_lc::AwsLc;

/// An accepted attestation, cheap to clone.
pub type Appraised = Arc<Accepted>;

/// What the appraisal of one connection's evidence said, and what it is worth.
///
/// Only [`PolicyAppraiser`] makes one.
#[derive(Debug)]
pub struct Accepted {
    verdict: confide_verifier::Appraised,
    simulated: bool,
    collateral: Duration,
}

impl Accepted {
    /// What it took to have the endorsements at hand: reading stapled ones, or recognising them as
    /// the last. It is part of the time of the appraisal.
    pub fn collateral_time(&self) -> Duration {
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

    /// Who is protected from whom on this connection: computed from what was checked.
    ///
    /// The attested end's own word counts only where the root is production, the memory closed to
    /// the host, and program and configuration those that the policy names.
    pub fn guarantee(&self) -> &'static str {
        match self.verdict.root().kind {
            _ if self.simulated => "none (simulated)",
            RootKind::Custom => "none (custom root)",
            _ if self.verdict.is_debug() => "none (debug: the host reads the memory)",
            _ if self.verdict.scope() == Scope::Platform => "none (platform only)",
            _ => believed(self.claimed_guarantee()),
        }
    }

    /// What the attested end says of itself, whatever that is worth.
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
const CLAIMS_KNOWN: [&str; 2] = ["operator is outside the TEE", "gateway only"];

fn believed(claim: Option<&str>) -> &'static str {
    let Some(claim) = claim else { return "none (no claims)" };
    CLAIMS_KNOWN.into_iter().find(|known| *known == claim).unwrap_or("none (unknown claim)")
}

/// Why evidence was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AppraisalError {
    /// There is nothing to appraise the quote with.
    #[error("collateral is missing: wanted it from a file or stapled by the peer, got neither")]
    NoCollateral,
    /// The collateral cannot be read.
    #[error("collateral is not readable: {0}")]
    Collateral(#[from] ParseError),
    /// A check failed.
    #[error("{}", .0.reason())]
    Rejected(#[from] Rejection),
}

impl AppraisalError {
    /// The name of the check that failed.
    pub fn failed_check(&self) -> &str {
        match self {
            Self::NoCollateral | Self::Collateral(_) => "collateral",
            Self::Rejected(rejection) => rejection
                .checks()
                .iter()
                .find(|check| check.outcome == Outcome::Failed)
                .map_or("evidence", |check| check.name),
        }
    }
}

/// Appraises evidence by one policy.
///
/// It holds the newest revocation list that it has accepted of each issuer, and refuses an older
/// one for as long as it lives.
pub struct PolicyAppraiser {
    policy: Policy,
    own: Option<Arc<Prepared>>,
    clock: fn() -> u64,
    /// The collateral that a peer stapled last: it is the same on its every connection.
    stapled: Mutex<Option<Arc<Prepared>>>,
    /// By issuer name.
    newest: Mutex<BTreeMap<Vec<u8>, CrlMinimum>>,
}

impl PolicyAppraiser {
    /// `collateral` is used instead of what peers staple; `clock` gives Unix seconds.
    pub fn new(
        policy: Policy,
        collateral: Option<&[u8]>,
        clock: fn() -> u64,
    ) -> Result<Self, AppraisalError> {
        Ok(Self {
            policy,
            own: collateral.map(Prepared::read).transpose()?.map(Arc::new),
            clock,
            stapled: Mutex::new(None),
            newest: Mutex::new(BTreeMap::new()),
        })
    }

    fn prepared(&self, stapled: Option<&[u8]>) -> Result<Arc<Prepared>, AppraisalError> {
        if let Some(own) = &self.own {
            return Ok(own.clone());
        }
        let bytes = stapled.ok_or(AppraisalError::NoCollateral)?;
        let mut last = self.stapled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = last.as_ref().filter(|prepared| prepared.bytes == bytes) {
            return Ok(prepared.clone());
        }
        let prepared = Arc::new(Prepared::read(bytes)?);
        *last = Some(prepared.clone());
        Ok(prepared)
    }

    /// The policy, with the minima raised to what was seen.
    fn policy_now(&self, prepared: &Prepared) -> Policy {
        let mut policy = self.policy.clone();
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        for (minimum, list) in
            [(&mut policy.root_crl, &prepared.root_crl), (&mut policy.pck_crl, &prepared.pck_crl)]
        {
            if let Some(seen) = newest.get(&list.issuer) {
                *minimum = later(*minimum, *seen);
            }
        }
        policy
    }

    fn remember(&self, prepared: &Prepared) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        for list in [&prepared.root_crl, &prepared.pck_crl] {
            let seen = newest.entry(list.issuer.clone()).or_default();
            *seen = later(*seen, list.is);
        }
    }
}

impl Appraise for PolicyAppraiser {
    type Appraised = Appraised;
    type Rejection = AppraisalError;

    fn appraise(&self, presented: &Presented<'_>) -> Result<Appraised, AppraisalError> {
        let started = Instant::now();
        let prepared = self.prepared(presented.collateral)?;
        let collateral = started.elapsed();
        let evidence = Evidence {
            quote: presented.quote,
            claims: Some(presented.claims),
            report_data: Some(presented.expected_report_data),
            gpu: presented.gpu,
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs((self.clock)()));
        let policy = self.policy_now(&prepared);
        let verdict = appraise(&evidence, &prepared.endorsements, &policy, now, &AwsLc)?;
        self.remember(&prepared);
        let root = verdict.root();
        let simulated =
            root.kind == RootKind::Custom && prepared.simulated_root == Some(root.sha256);
        Ok(Arc::new(Accepted { verdict, simulated, collateral }))
    }
}

fn later(one: CrlMinimum, other: CrlMinimum) -> CrlMinimum {
    CrlMinimum {
        number_min: one.number_min.max(other.number_min),
        issued_min: one.issued_min.max(other.issued_min),
    }
}

/// Collateral, read once.
struct Prepared {
    bytes: Vec<u8>,
    endorsements: Endorsements,
    root_crl: List,
    pck_crl: List,
    /// SHA-256 of the root in the TCB signer's chain, where it says that it is simulated.
    simulated_root: Option<[u8; 32]>,
}

struct List {
    issuer: Vec<u8>,
    is: CrlMinimum,
}

/// What a simulated root has in its subject. It decides on a label only, never on a yes.
const SIMULATED: &[u8] = b"SIMULATED";

impl Prepared {
    fn read(bytes: &[u8]) -> Result<Self, AppraisalError> {
        let endorsements = Endorsements::parse(bytes)?;
        let collateral = Collateral::parse(bytes)?;
        let chain =
            decode_chain("tcb_info_issuer_chain", collateral.tcb_info_issuer_chain.as_bytes())?;
        let simulated_root = chain
            .last()
            .filter(|root| root.windows(SIMULATED.len()).any(|part| part == SIMULATED))
            .map(|root| AwsLc.sha256(&[root]));
        Ok(Self {
            bytes: bytes.to_vec(),
            endorsements,
            root_crl: List::read("root_ca_crl", &collateral.root_ca_crl)?,
            pck_crl: List::read("pck_crl", &collateral.pck_crl)?,
            simulated_root,
        })
    }
}

impl List {
    fn read(subject: &'static str, der: &[u8]) -> Result<Self, ParseError> {
        let CrlDates { issuer, this_update, number, .. } = CrlDates::parse(subject, der)?;
        let is = CrlMinimum { number_min: number, issued_min: this_update };
        Ok(Self { issuer: issuer.to_vec(), is })
    }
}

#[cfg(test)]
mod tests {
    use super::believed;

    #[test]
    fn an_attested_end_does_not_word_its_own_guarantee() {
        assert_eq!(believed(Some("gateway only")), "gateway only");
        assert_eq!(believed(Some("operator is outside the TEE")), "operator is outside the TEE");
        for other in ["none", "", "perfect secrecy", "operator is outside the TEE!"] {
            assert_eq!(believed(Some(other)), "none (unknown claim)", "{other}");
        }
        assert_eq!(believed(None), "none (no claims)");
    }
}

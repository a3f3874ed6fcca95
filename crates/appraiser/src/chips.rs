//! AMD's chip keys: each verified down from its root once, bounded, learnt from accepted evidence
//! only.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use confide_verifier::{
    AwsLc, CrlMinimum, Evidence, Policy, RootKind, UnixTime, is_simulated_certificate,
    snp::{self, Endorsements},
};

use crate::{
    error::AppraisalError,
    limits::{CHIP_ENDORSEMENTS_LENGTH_MAX, CHIPS_MAX},
    newest::stricter_minimum,
};

/// The memory of chip keys, and of the newest revocation list of each root.
#[derive(Default)]
pub(crate) struct VerifiedChips {
    /// The chip keys by the endorsements' bytes, which are compared as a whole.
    held: RwLock<HashMap<Arc<[u8]>, Arc<VerifiedChip>>>,
    /// The newest revocation list accepted of each root, by the root's SHA-256.
    newest: Mutex<BTreeMap<[u8; 32], CrlMinimum>>,
}

struct VerifiedChip {
    prepared: snp::PreparedEndorsements,
    is_simulated: bool,
    /// Unix seconds at which the key was verified.
    learnt_at: u64,
}

impl VerifiedChips {
    /// One P-384 verification where the chip key is known; four signatures where it is not.
    pub(crate) fn appraise(
        &self,
        evidence: &Evidence<'_>,
        endorsements: &[u8],
        policy: &Policy,
        now: UnixTime,
    ) -> Result<(confide_verifier::Appraised, bool), AppraisalError> {
        let known = self.find(endorsements, policy, now);
        let chip = match &known {
            Some(chip) => chip.clone(),
            None => Arc::new(VerifiedChip::verify(endorsements, policy, now)?),
        };
        let root = chip.prepared.root().sha256;
        let raised = self.raise_crl_minimum(policy, &root);
        let verdict = chip.prepared.appraise(evidence, &raised, now, &AwsLc)?;
        self.remember_crl(&verdict, &root);
        if known.is_none() && endorsements.len() <= CHIP_ENDORSEMENTS_LENGTH_MAX {
            self.insert(endorsements, chip.clone());
        }
        let is_simulated = chip.is_simulated && verdict.root().kind == RootKind::Custom;
        Ok((verdict, is_simulated))
    }

    /// The number of chip keys that are held.
    pub(crate) fn count(&self) -> usize {
        self.held.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn find(
        &self,
        endorsements: &[u8],
        policy: &Policy,
        now: UnixTime,
    ) -> Option<Arc<VerifiedChip>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let chip = held.get(endorsements)?;
        // A clock that went back learns again.
        let age = now.as_secs().checked_sub(chip.learnt_at)?;
        (age <= policy.cache_lifetime_s).then(|| chip.clone())
    }

    fn insert(&self, endorsements: &[u8], chip: Arc<VerifiedChip>) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= CHIPS_MAX && !held.contains_key(endorsements) {
            let oldest = held.iter().min_by_key(|(_, chip)| chip.learnt_at);
            if let Some(oldest) = oldest.map(|(bytes, _)| bytes.clone()) {
                held.remove(&oldest);
            }
        }
        held.insert(endorsements.into(), chip);
    }

    /// The policy, with its minimum raised to the newest list of this root that was accepted.
    fn raise_crl_minimum(&self, policy: &Policy, root: &[u8; 32]) -> Policy {
        let mut policy = policy.clone();
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = newest.get(root) {
            policy.snp.crl = stricter_minimum(policy.snp.crl, *seen);
        }
        policy
    }

    fn remember_crl(&self, verdict: &confide_verifier::Appraised, root: &[u8; 32]) {
        let Some(seen) = verdict.platform().amd().and_then(|amd| amd.crl) else { return };
        let seen = CrlMinimum { number_min: seen.number, issued_min: seen.issued };
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let held = newest.entry(*root).or_default();
        *held = stricter_minimum(*held, seen);
    }
}

impl VerifiedChip {
    fn verify(endorsements: &[u8], policy: &Policy, now: UnixTime) -> Result<Self, AppraisalError> {
        let endorsements = Endorsements::parse(endorsements)?;
        let is_simulated = endorsements.root_der().is_some_and(is_simulated_certificate);
        let prepared = endorsements.prepare(&policy.roots, now, &AwsLc)?;
        Ok(Self { prepared, is_simulated, learnt_at: now.as_secs() })
    }
}

//! Decides on evidence by a policy, and remembers what only time can show.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use confide_collateral::{Platform, Source};
use confide_evidence::{Appraise, EvidenceKind, PresentedEvidence, detect_kind};
use confide_verifier::{AwsLc, DangerousScope, Evidence, Policy, RootKind, Scope, UnixTime};

use crate::{
    accepted::{PeerAppraisal, SharedAppraisal},
    chips::VerifiedChips,
    error::AppraisalError,
    limits::FETCH_DEADLINE,
    newest::NewestCrls,
    platforms::PlatformMemory,
    sets::{CollateralSet, CollateralSets, PreparedSet},
};

/// Appraises evidence by one policy, from any number of threads.
///
/// Endorsements are prepared once; of platforms it keeps the verdicts on PCK certificate and
/// quoting enclave, so that evidence of a known platform costs one signature. It holds the newest
/// revocation list that it has accepted of each issuer, and refuses an older one for as long as it
/// lives. Swapping endorsements never blocks an appraisal.
pub struct PolicyAppraiser {
    policy: Policy,
    origin: EndorsementOrigin,
    clock: fn() -> u64,
    sets: CollateralSets,
    platforms: PlatformMemory,
    chips: VerifiedChips,
    newest: NewestCrls,
}

/// The origin of endorsements.
enum EndorsementOrigin {
    /// The peer staples them.
    Peer,
    /// They come from a file; what peers staple is ignored.
    File(ArcSwap<CollateralSet>),
    /// They are fetched from a service; what peers staple is ignored.
    Service(Arc<Source>),
}

impl PolicyAppraiser {
    /// `collateral` is used instead of what peers staple; `clock` gives Unix seconds.
    ///
    /// # Errors
    /// If `collateral` is not a set of endorsements.
    pub fn new(
        policy: Policy,
        collateral: Option<&[u8]>,
        clock: fn() -> u64,
    ) -> Result<Self, AppraisalError> {
        let origin = match collateral {
            None => EndorsementOrigin::Peer,
            Some(bytes) => {
                CollateralSet::check_parses(bytes)?;
                EndorsementOrigin::File(ArcSwap::new(CollateralSet::new(bytes.into())))
            }
        };
        Ok(Self::with_origin(policy, origin, clock))
    }

    /// Endorsements come from a service that keeps them fresh. An appraisal of a platform that the
    /// service does not have yet waits for [`FETCH_DEADLINE`] at most.
    pub fn with_source(policy: Policy, source: Arc<Source>, clock: fn() -> u64) -> Self {
        Self::with_origin(policy, EndorsementOrigin::Service(source), clock)
    }

    /// Takes other endorsements of one's own from now on; appraisals under way end with the old.
    ///
    /// What was learnt under the old ones is forgotten as soon as evidence is accepted with the
    /// new. Does nothing but read them where endorsements do not come from a file.
    ///
    /// # Errors
    /// If `collateral` is not a set of endorsements; the old ones then stay.
    pub fn replace_collateral(&self, collateral: &[u8]) -> Result<(), AppraisalError> {
        CollateralSet::check_parses(collateral)?;
        if let EndorsementOrigin::File(own) = &self.origin {
            own.store(CollateralSet::new(collateral.into()));
        }
        Ok(())
    }

    /// The policy that it decides by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The number of AMD chip keys that are known.
    pub fn chip_key_count(&self) -> usize {
        self.chips.count()
    }

    /// The memory of platforms.
    pub fn platforms(&self) -> &PlatformMemory {
        &self.platforms
    }

    fn with_origin(policy: Policy, origin: EndorsementOrigin, clock: fn() -> u64) -> Self {
        let (sets, platforms, chips) =
            (CollateralSets::default(), PlatformMemory::default(), VerifiedChips::default());
        Self { policy, origin, clock, sets, platforms, chips, newest: NewestCrls::default() }
    }

    /// Decides on the evidence of a peer that is talked to, however it came, with endorsements that
    /// came along where this appraiser has none of its own.
    ///
    /// # Errors
    /// Also where the evidence holds and says nothing of the program that answers, unless the policy
    /// is content with that in so many words (`dangerous_scope`).
    pub fn judge(
        &self,
        evidence: &Evidence<'_>,
        stapled: Option<&[u8]>,
    ) -> Result<SharedAppraisal, AppraisalError> {
        let accepted = self.judge_any_scope(evidence, stapled)?;
        match (accepted.verdict.scope(), self.policy.dangerous_scope) {
            (Scope::Workload, _) | (Scope::Platform, Some(DangerousScope::Platform)) => {
                Ok(accepted)
            }
            (Scope::Platform, None) => {
                Err(AppraisalError::Scope { missing: accepted.verdict.missing_keys() })
            }
        }
    }

    /// Decides as [`Self::judge`] does, whatever the scope: for a caller who reads the scope and passes it on, and
    /// does not talk to the peer.
    ///
    /// # Errors
    /// [`AppraisalError`] if the evidence is of a kind that is not appraised here, its endorsements are
    /// not at hand, or a check fails.
    pub fn judge_any_scope(
        &self,
        evidence: &Evidence<'_>,
        stapled: Option<&[u8]>,
    ) -> Result<SharedAppraisal, AppraisalError> {
        self.appraise_kind(evidence, stapled).map_err(|error| match error {
            AppraisalError::Rejected { rejection, .. } => {
                let has_own_endorsements = !matches!(self.origin, EndorsementOrigin::Peer);
                AppraisalError::Rejected { rejection, has_own_endorsements }
            }
            other => other,
        })
    }

    /// Appraises evidence by its kind.
    fn appraise_kind(
        &self,
        evidence: &Evidence<'_>,
        stapled: Option<&[u8]>,
    ) -> Result<SharedAppraisal, AppraisalError> {
        let started = Instant::now();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((self.clock)()));
        let own = self.policy.operator_roots.as_ref();
        let accepted = |(verdict, simulated): (confide_verifier::Appraised, bool), collateral| {
            let operator_root = own.is_some_and(|own| own.contains(&verdict.root().sha256));
            Ok(Arc::new(PeerAppraisal { verdict, simulated, operator_root, collateral }))
        };
        match detect_kind(evidence.quote) {
            Some(kind @ EvidenceKind::GpuEvidence) => Err(AppraisalError::Unsupported(kind)),
            Some(EvidenceKind::SnpReport) => {
                let bytes = self.obtain_endorsements(evidence.quote, stapled)?;
                let collateral = started.elapsed();
                accepted(self.chips.appraise(evidence, &bytes, &self.policy, now)?, collateral)
            }
            // Bytes of an unknown kind are treated as a quote, whose parser says what is wrong.
            None | Some(EvidenceKind::SgxQuote | EvidenceKind::TdxQuote) => {
                let set = self.collateral_set(evidence.quote, stapled)?;
                let ready = set.prepare_once(&self.policy, now)?;
                let collateral = started.elapsed();
                accepted(self.appraise_quote(evidence, &set, ready, now)?, collateral)
            }
        }
    }

    fn appraise_quote(
        &self,
        evidence: &Evidence<'_>,
        set: &Arc<CollateralSet>,
        ready: &PreparedSet,
        now: UnixTime,
    ) -> Result<(confide_verifier::Appraised, bool), AppraisalError> {
        let policy = set.policy_with_raised_minima(&self.policy, ready, &self.newest);
        let (verdict, learned) =
            ready.prepared.appraise(evidence, &policy.1, now, &AwsLc, &self.platforms)?;
        self.keep_prepared(set, ready);
        self.platforms.keep(learned, ready.prepared.endorsements_id());
        let simulated = verdict.root().kind == RootKind::Custom && ready.is_simulated;
        Ok((verdict, simulated))
    }

    fn collateral_set(
        &self,
        quote: &[u8],
        stapled: Option<&[u8]>,
    ) -> Result<Arc<CollateralSet>, AppraisalError> {
        match &self.origin {
            EndorsementOrigin::File(own) => Ok(own.load_full()),
            _ => Ok(self.sets.find_or_create(&self.obtain_endorsements(quote, stapled)?)),
        }
    }

    fn obtain_endorsements<'a>(
        &self,
        evidence: &[u8],
        stapled: Option<&'a [u8]>,
    ) -> Result<Cow<'a, [u8]>, AppraisalError> {
        match &self.origin {
            EndorsementOrigin::File(own) => Ok(own.load().bytes().to_vec().into()),
            EndorsementOrigin::Peer => Ok(stapled.ok_or(AppraisalError::NoCollateral)?.into()),
            EndorsementOrigin::Service(source) => {
                let platform = Platform::from_evidence(evidence, None)?;
                let set = match source.current_set(&platform) {
                    Some(set) => set,
                    None => source.find_or_fetch_blocking(&platform, FETCH_DEADLINE)?,
                };
                Ok(set.json().to_vec().into())
            }
        }
    }

    /// Keeps a set that evidence was accepted with: older revocation lists are refused from now on.
    fn keep_prepared(&self, set: &Arc<CollateralSet>, ready: &PreparedSet) {
        let is_newer = self.newest.remember(&ready.prepared);
        if is_newer || !self.sets.contains(set) {
            for generation in self.sets.keep_set(set, &self.newest.snapshot()) {
                self.platforms.forget(generation);
            }
        }
    }
}

impl Appraise for PolicyAppraiser {
    type Appraised = SharedAppraisal;
    type Rejection = AppraisalError;

    fn appraise(
        &self,
        presented: &PresentedEvidence<'_>,
    ) -> Result<SharedAppraisal, AppraisalError> {
        self.judge(&Evidence::from(presented), presented.collateral)
    }
}

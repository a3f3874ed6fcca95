//! Sets of endorsements, each prepared once.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use confide_evidence::{ParseError, snp_endorsements::SnpEndorsements};
use confide_verifier::{
    AwsLc, Endorsements, EndorsementsId, Policy, PreparedEndorsements, Rejection, UnixTime,
    is_simulated_certificate,
};

use crate::{
    error::AppraisalError,
    limits::{FLIGHTS_MAX, SETS_MAX},
    newest::{self, CrlMinima, NewestCrls},
};

/// A set of endorsements: its bytes, and what was prepared from them.
pub(crate) struct CollateralSet {
    bytes: Arc<[u8]>,
    prepared: OnceLock<PreparedSet>,
    /// Held by the thread that prepares the set; the others wait for it.
    flight: Mutex<()>,
    /// The policy as it stands against this set, remade when a newer revocation list was seen.
    policy: ArcSwapOption<(CrlMinima, Policy)>,
    /// Unix seconds of the last use.
    used: AtomicU64,
}

/// A set whose signatures hold.
pub(crate) struct PreparedSet {
    pub(crate) prepared: PreparedEndorsements,
    /// Whether its root's certificate names itself as simulated.
    pub(crate) is_simulated: bool,
}

impl CollateralSet {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            prepared: OnceLock::new(),
            flight: Mutex::new(()),
            policy: ArcSwapOption::empty(),
            used: AtomicU64::new(0),
        })
    }

    /// Reads the bytes, to find out early that they cannot be read.
    pub(crate) fn check_parses(bytes: &[u8]) -> Result<(), ParseError> {
        match SnpEndorsements::is_snp_endorsements(bytes) {
            true => SnpEndorsements::parse(bytes).map(|_| ()),
            false => Endorsements::parse(bytes).map(|_| ()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The prepared set. A failure is not kept: what does not hold yet may hold later.
    pub(crate) fn prepare_once(
        &self,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<&PreparedSet, AppraisalError> {
        self.used.store(now.as_secs(), Relaxed);
        if let Some(ready) = self.prepared.get() {
            return Ok(ready);
        }
        let _flight = self.flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = self.prepared.get() {
            return Ok(ready);
        }
        let endorsements = Endorsements::parse(&self.bytes)?;
        let prepared: Result<PreparedEndorsements, Rejection> =
            endorsements.prepare(&policy.roots, now, &AwsLc);
        let prepared = prepared?;
        let is_simulated = is_simulated_certificate(prepared.root_der());
        Ok(self.prepared.get_or_init(|| PreparedSet { prepared, is_simulated }))
    }

    /// The policy with its minima raised to the newest lists seen.
    pub(crate) fn policy_with_raised_minima(
        &self,
        policy: &Policy,
        ready: &PreparedSet,
        newest: &NewestCrls,
    ) -> Arc<(CrlMinima, Policy)> {
        if let Some(held) = self.policy.load_full().filter(|held| newest.is_latest(&held.0)) {
            return held;
        }
        let seen = newest.snapshot();
        let made =
            Arc::new((seen.clone(), newest::raise_crl_minima(policy, &ready.prepared, &seen)));
        self.policy.store(Some(made.clone()));
        made
    }

    fn has_bytes(&self, bytes: &[u8]) -> bool {
        std::ptr::eq(&*self.bytes, bytes) || *self.bytes == *bytes
    }

    fn endorsements_id(&self) -> Option<EndorsementsId> {
        self.prepared.get().map(|ready| ready.prepared.endorsements_id())
    }
}

/// The sets that evidence was accepted with. They are read without a lock.
#[derive(Default)]
pub(crate) struct CollateralSets {
    held: ArcSwap<Vec<Arc<CollateralSet>>>,
    /// Sets that were not accepted yet, kept so that a crowd with the same new set prepares it once.
    flights: Mutex<Vec<Weak<CollateralSet>>>,
}

impl CollateralSets {
    /// Returns the set with these bytes, whether it is held or new.
    pub(crate) fn find_or_create(&self, bytes: &[u8]) -> Arc<CollateralSet> {
        if let Some(set) = self.held.load().iter().find(|set| set.has_bytes(bytes)) {
            return set.clone();
        }
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|flight| flight.strong_count() > 0);
        let same = flights.iter().filter_map(Weak::upgrade).find(|set| set.has_bytes(bytes));
        if let Some(set) = same {
            return set;
        }
        let set = CollateralSet::new(bytes.into());
        if flights.len() < FLIGHTS_MAX {
            flights.push(Arc::downgrade(&set));
        }
        set
    }

    /// Whether a set is held.
    pub(crate) fn contains(&self, set: &Arc<CollateralSet>) -> bool {
        self.held.load().iter().any(|held| Arc::ptr_eq(held, set))
    }

    /// Holds a set that evidence was accepted with. Gives the generations that had to go: those
    /// whose lists are older than what was seen, and the one not used for longest when full.
    pub(crate) fn keep_set(
        &self,
        set: &Arc<CollateralSet>,
        seen: &CrlMinima,
    ) -> Vec<EndorsementsId> {
        let mut gone = Vec::new();
        self.held.rcu(|held| {
            gone.clear();
            let mut kept: Vec<Arc<CollateralSet>> = Vec::with_capacity(held.len() + 1);
            for each in held.iter().filter(|each| !Arc::ptr_eq(each, set)) {
                let ready = each.prepared.get();
                match ready.is_some_and(|ready| newest::has_newest_crls(&ready.prepared, seen)) {
                    true => kept.push(each.clone()),
                    false => gone.extend(each.endorsements_id()),
                }
            }
            if kept.len() >= SETS_MAX {
                let oldest =
                    kept.iter().enumerate().min_by_key(|(_, each)| each.used.load(Relaxed));
                if let Some((at, _)) = oldest {
                    gone.extend(kept.swap_remove(at).endorsements_id());
                }
            }
            kept.push(set.clone());
            kept
        });
        gone
    }
}

//! The newest revocation list that was accepted of each issuer: an older one is a rollback.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use confide_verifier::{CrlMinimum, CrlVersion, Policy, PreparedEndorsements};

/// The newest version of each issuer's revocation list, by issuer name. It only grows, and is read without a lock.
#[derive(Default)]
pub(crate) struct NewestCrls {
    seen: ArcSwap<BTreeMap<Vec<u8>, CrlMinimum>>,
    writing: Mutex<()>,
}

/// The newest versions as they were at one moment.
pub(crate) type CrlMinima = Arc<BTreeMap<Vec<u8>, CrlMinimum>>;

impl NewestCrls {
    /// Whether no newer list was accepted since this snapshot.
    pub(crate) fn is_latest(&self, seen: &CrlMinima) -> bool {
        Arc::ptr_eq(&self.seen.load(), seen)
    }

    pub(crate) fn snapshot(&self) -> CrlMinima {
        self.seen.load_full()
    }

    /// Takes in the lists of an accepted set; `true` where one of them was newer than what was held.
    pub(crate) fn remember(&self, prepared: &PreparedEndorsements) -> bool {
        let lists = prepared.revocation_lists();
        let is_new = |seen: &CrlMinima| {
            lists.iter().any(|(issuer, list)| {
                seen.get(*issuer)
                    .is_none_or(|held| stricter_minimum(*held, crl_minimum(*list)) != *held)
            })
        };
        if !is_new(&self.snapshot()) {
            return false;
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeMap::clone(&self.snapshot());
        for (issuer, list) in lists {
            let held = seen.entry(issuer.to_vec()).or_default();
            *held = stricter_minimum(*held, crl_minimum(list));
        }
        self.seen.store(Arc::new(seen));
        true
    }
}

/// The policy, with the minima raised to what was seen.
pub(crate) fn raise_crl_minima(
    policy: &Policy,
    prepared: &PreparedEndorsements,
    seen: &CrlMinima,
) -> Policy {
    let mut policy = policy.clone();
    let [(root, _), (ca, _)] = prepared.revocation_lists();
    for (minimum, issuer) in [(&mut policy.root_crl, root), (&mut policy.pck_crl, ca)] {
        if let Some(held) = seen.get(issuer) {
            *minimum = stricter_minimum(*minimum, *held);
        }
    }
    policy
}

/// Whether a set has only lists that are as new as the newest seen.
pub(crate) fn has_newest_crls(prepared: &PreparedEndorsements, seen: &CrlMinima) -> bool {
    prepared.revocation_lists().iter().all(|(issuer, list)| {
        let list = crl_minimum(*list);
        seen.get(*issuer).is_none_or(|held| stricter_minimum(list, *held) == list)
    })
}

fn crl_minimum(list: CrlVersion) -> CrlMinimum {
    CrlMinimum { number_min: list.number, issued_min: list.issued }
}

pub(crate) fn stricter_minimum(one: CrlMinimum, other: CrlMinimum) -> CrlMinimum {
    CrlMinimum {
        number_min: one.number_min.max(other.number_min),
        issued_min: one.issued_min.max(other.issued_min),
    }
}

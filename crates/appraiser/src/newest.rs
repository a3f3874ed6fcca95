//! The newest revocation list that was accepted of each issuer: an older one is a rollback.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use confide_verifier::{CrlMinimum, CrlSeen, Policy, Prepared};

/// By issuer name. It only grows, and is read without a lock.
#[derive(Default)]
pub(crate) struct Newest {
    seen: ArcSwap<BTreeMap<Vec<u8>, CrlMinimum>>,
    writing: Mutex<()>,
}

/// What was seen, as it was at one moment.
pub(crate) type Seen = Arc<BTreeMap<Vec<u8>, CrlMinimum>>;

impl Newest {
    /// Whether this is still what was seen.
    pub(crate) fn is(&self, seen: &Seen) -> bool {
        Arc::ptr_eq(&self.seen.load(), seen)
    }

    pub(crate) fn now(&self) -> Seen {
        self.seen.load_full()
    }

    /// Takes in the lists of an accepted set; whether one of them was newer than what was held.
    pub(crate) fn remember(&self, prepared: &Prepared) -> bool {
        let lists = prepared.revocation_lists();
        let is_new = |seen: &Seen| {
            lists.iter().any(|(issuer, list)| {
                seen.get(*issuer).is_none_or(|held| later(*held, minimum(*list)) != *held)
            })
        };
        if !is_new(&self.now()) {
            return false;
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeMap::clone(&self.now());
        for (issuer, list) in lists {
            let held = seen.entry(issuer.to_vec()).or_default();
            *held = later(*held, minimum(list));
        }
        self.seen.store(Arc::new(seen));
        true
    }
}

/// The policy, with the minima raised to what was seen.
pub(crate) fn raised(policy: &Policy, prepared: &Prepared, seen: &Seen) -> Policy {
    let mut policy = policy.clone();
    let [(root, _), (ca, _)] = prepared.revocation_lists();
    for (minimum, issuer) in [(&mut policy.root_crl, root), (&mut policy.pck_crl, ca)] {
        if let Some(held) = seen.get(issuer) {
            *minimum = later(*minimum, *held);
        }
    }
    policy
}

/// Whether a set has only lists that are as new as the newest seen.
pub(crate) fn is_current(prepared: &Prepared, seen: &Seen) -> bool {
    prepared.revocation_lists().iter().all(|(issuer, list)| {
        let list = minimum(*list);
        seen.get(*issuer).is_none_or(|held| later(list, *held) == list)
    })
}

fn minimum(list: CrlSeen) -> CrlMinimum {
    CrlMinimum { number_min: list.number, issued_min: list.issued }
}

pub(crate) fn later(one: CrlMinimum, other: CrlMinimum) -> CrlMinimum {
    CrlMinimum {
        number_min: one.number_min.max(other.number_min),
        issued_min: one.issued_min.max(other.issued_min),
    }
}

//! The keys to which clients encrypt bodies, and the requests that each has opened.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use confide_encrypted_body::{
    BodyKem, BodyPublicKey, EncapsulatedKey, EncryptedBodyError, RecipientKey,
};
use confide_evidence::weights_claim::WeightsClaim;
use confide_receipt::BodyKeyEntry;
use sha2::{Digest, Sha256};

/// The largest number of keys of each kind that are in use at once: the current one and those whose
/// keyset is still valid.
const KEYS_MAX: usize = 4;
/// The part of a key's places, in quarters, after which a new key takes its place in the keyset. It
/// opens requests until the rest is used up, so that a client with an older keyset is not refused.
const RENEWAL_QUARTERS: usize = 3;

/// The bytes of an encapsulated key's digest that are remembered. A client that finds two keys of
/// one digest only has its own request refused.
type SeenKey = [u8; 16];

/// One key of each kind, for the life of one keyset.
pub(crate) struct BodyKeyPair {
    keys: Vec<RecipientKey>,
    /// Unix seconds after which nothing is opened.
    not_after: u64,
    /// The requests that were opened.
    seen: Mutex<HashSet<SeenKey>>,
    seen_max: usize,
}

/// The outcome of remembering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestNovelty {
    New,
    Replayed,
    /// There is no place to remember it, so it cannot be opened.
    Full,
}

impl BodyKeyPair {
    /// Generates the keys, which remember `seen_max` requests.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub(crate) fn generate(not_after: u64, seen_max: usize) -> Result<Self, EncryptedBodyError> {
        let mut keys: Vec<RecipientKey> = Vec::new();
        while let Some(kem) = BodyKem::ALL.get(keys.len()) {
            let key = RecipientKey::generate(*kem)?;
            let id = |key: &RecipientKey| key.public_key().ohttp_key_id();
            // In OHTTP's list of keys, every one has an identifier of its own.
            if keys.iter().all(|other| id(other) != id(&key)) {
                keys.push(key);
            }
        }
        Ok(Self { keys, not_after, seen: Mutex::default(), seen_max })
    }

    /// The public keys, the preferred one first.
    pub(crate) fn list_public_keys(&self) -> impl Iterator<Item = &BodyPublicKey> {
        self.keys.iter().map(RecipientKey::public_key)
    }

    /// The key of a kind.
    pub(crate) fn find_key(&self, kem: BodyKem) -> Option<&RecipientKey> {
        self.keys.iter().find(|key| key.public_key().kem() == kem)
    }

    /// The entries of the keyset for a configuration, and the measured weights of its models.
    pub(crate) fn describe_keys(
        &self,
        config_digest: [u8; 32],
        weights: Option<&WeightsClaim>,
    ) -> Vec<BodyKeyEntry> {
        let describe = |key: &BodyPublicKey| BodyKeyEntry {
            algorithm: key.kem().algorithm().to_owned(),
            key_id: key.key_id().to_string(),
            public_key: key.as_bytes().to_vec(),
            config_digest,
            weights: weights.cloned(),
        };
        self.list_public_keys().map(describe).collect()
    }

    /// Whether a new key should take its place.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.lock_seen().len() >= self.seen_max / 4 * RENEWAL_QUARTERS
    }

    /// Remembers a request, which is not opened a second time.
    pub(crate) fn remember(&self, encapsulated: &EncapsulatedKey) -> RequestNovelty {
        let digest = Sha256::digest(encapsulated.as_bytes());
        let mut key = SeenKey::default();
        key.copy_from_slice(&digest[..16]);
        let mut seen = self.lock_seen();
        if seen.contains(&key) {
            return RequestNovelty::Replayed;
        }
        if seen.len() >= self.seen_max {
            return RequestNovelty::Full;
        }
        seen.insert(key);
        RequestNovelty::New
    }

    fn lock_seen(&self) -> MutexGuard<'_, HashSet<SeenKey>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BodyKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyKeyPair").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// The keys of one version of the configuration that are in use, the newest first. A key is dropped,
/// and its memory overwritten, when its keyset ends or when newer ones need its place.
#[derive(Debug, Default)]
pub(crate) struct BodyKeyRing(Mutex<VecDeque<Arc<BodyKeyPair>>>);

impl BodyKeyRing {
    /// Adds the keys of a new keyset.
    pub(crate) fn add(&self, keys: Arc<BodyKeyPair>) {
        let mut ring = self.lock();
        ring.truncate(KEYS_MAX - 1);
        ring.push_front(keys);
    }

    /// The keys that are in use at this Unix second.
    pub(crate) fn list_current(&self, now: u64) -> Vec<Arc<BodyKeyPair>> {
        self.drop_ended(now);
        self.lock().iter().cloned().collect()
    }

    /// Drops the keys whose keyset has ended at this Unix second.
    pub(crate) fn drop_ended(&self, now: u64) {
        self.lock().retain(|keys| now <= keys.not_after);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<BodyKeyPair>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::EncryptedBodyLimits;

    fn make_key(number: u8) -> EncapsulatedKey {
        EncapsulatedKey::parse(hex::encode([number; 32]).as_bytes()).unwrap()
    }

    #[test]
    fn a_key_remembers_so_many_requests_and_opens_no_more() {
        let keys = BodyKeyPair::generate(10, 8).unwrap();
        for number in 0..8 {
            assert_eq!(keys.needs_renewal(), number >= 6, "{number}");
            assert_eq!(keys.remember(&make_key(number)), RequestNovelty::New);
            assert_eq!(keys.remember(&make_key(number)), RequestNovelty::Replayed);
        }
        assert_eq!(keys.remember(&make_key(8)), RequestNovelty::Full);
        assert_eq!(keys.remember(&make_key(0)), RequestNovelty::Replayed);
    }

    #[test]
    fn one_peer_does_not_use_up_a_key_of_the_default_validity_before_it_is_renewed() {
        // An hour, of which two thirds pass until the renewal.
        let minutes = 60 * 2 / 3;
        let EncryptedBodyLimits { per_key, per_minute_per_peer } = EncryptedBodyLimits::default();
        // After a pause, the requests of one minute come at once.
        let sent = (minutes + 1) * per_minute_per_peer as usize;
        assert!(sent < per_key / 4 * RENEWAL_QUARTERS, "{sent}");
    }

    #[test]
    fn keys_end_with_their_keyset_and_the_oldest_go_first() {
        let ring = BodyKeyRing::default();
        for not_after in 1..=6 {
            ring.add(Arc::new(BodyKeyPair::generate(not_after, 8).unwrap()));
        }
        let list = |now| -> Vec<u64> {
            ring.list_current(now).iter().map(|keys| keys.not_after).collect()
        };
        assert_eq!(list(0), [6, 5, 4, 3]);
        assert_eq!(list(5), [6, 5]);
        assert!(list(7).is_empty());
    }
}

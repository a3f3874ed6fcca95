//! The endorsements of one platform, put together.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::{
    document::{Document, DocumentKey},
    error::CollateralError,
    identity::TcbEvaluation,
    platform::Platform,
    store::Store,
};

/// The endorsements of one platform as one JSON object, and their time of validity.
///
/// Only appraisal verifies that they are genuine.
#[derive(Clone, Debug)]
pub struct EndorsementSet {
    platform: Platform,
    json: Arc<[u8]>,
    documents: Vec<Arc<Document>>,
    from: u64,
    until: u64,
    refresh_at: u64,
    generation: u64,
    used: Arc<AtomicU64>,
}

impl EndorsementSet {
    /// Assembles a set from the documents in a store, from whichever service they came. Asks no
    /// service and ignores the time.
    ///
    /// # Errors
    /// [`CollateralError::NotAtHand`] if a document is missing, [`CollateralError::Refused`] if one
    /// cannot be encoded.
    pub fn from_store(
        store: &Store,
        platform: &Platform,
        evaluation: TcbEvaluation,
    ) -> Result<Self, CollateralError> {
        let keys = platform.document_keys(evaluation);
        let documents: Option<Vec<_>> =
            keys.iter().map(|key| store.find(key).map(Arc::new)).collect();
        let missing = || CollateralError::NotAtHand { subject: platform.to_string() };
        let frame = SetMetadata {
            platform: platform.clone(),
            refresh_at: 0,
            generation: 0,
            used: Arc::default(),
        };
        assemble(frame, documents.ok_or_else(missing)?)
    }

    /// The platform that the endorsements belong to.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The object that `confide verify --collateral` reads: `QuoteCollateralV3` for DCAP;
    /// `endorsement_key`, `chain` and `crl` for SNP.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The documents of the set.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.documents.iter().map(|document| &**document)
    }

    /// The first and the last Unix second at which all documents are valid.
    pub fn validity(&self) -> (u64, u64) {
        (self.from, self.until)
    }

    /// Whether all documents are valid at `now`, in Unix seconds.
    pub fn is_valid_at(&self, now: u64) -> bool {
        (self.from..=self.until).contains(&now)
    }

    /// The number of this set among all sets that this process assembled; later ones have greater
    /// numbers.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_refresh_due(&self, now: u64) -> bool {
        // A document that was fetched later than now shows that the clock went back.
        now >= self.refresh_at || self.documents.iter().any(|each| each.fetched_at > now)
    }

    pub(crate) fn note_use(&self, now: u64) {
        self.used.store(now, Relaxed);
    }

    pub(crate) fn used_at(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn contains(&self, key: &DocumentKey) -> bool {
        self.documents.iter().any(|document| document.key == *key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &DocumentKey> {
        self.documents.iter().map(|document| &document.key)
    }

    pub(crate) fn shared_used_at(&self) -> Arc<AtomicU64> {
        self.used.clone()
    }
}

/// The fields of a set that do not come from its documents.
pub(crate) struct SetMetadata {
    pub(crate) platform: Platform,
    pub(crate) refresh_at: u64,
    pub(crate) generation: u64,
    pub(crate) used: Arc<AtomicU64>,
}

/// Assembles a set; `documents` are in the order of `Platform::documents`.
pub(crate) fn assemble(
    frame: SetMetadata,
    documents: Vec<Arc<Document>>,
) -> Result<EndorsementSet, CollateralError> {
    let unreadable =
        |reason: String| CollateralError::Refused { subject: frame.platform.to_string(), reason };
    let json = match (&frame.platform, documents.as_slice()) {
        (Platform::Dcap { .. }, [root_crl, pck_crl, tcb_info, qe_identity]) => {
            dcap_json(root_crl, pck_crl, tcb_info, qe_identity)
        }
        (Platform::Snp(_), [key, chain, crl]) => snp_json(key, chain, crl),
        _ => return Err(unreadable("documents are missing".into())),
    };
    let json = json.map_err(&unreadable)?;
    let from = documents.iter().map(|document| document.issued).max().unwrap_or(u64::MAX);
    let until = documents.iter().map(|document| document.until).min().unwrap_or(0);
    let SetMetadata { platform, refresh_at, generation, used } = frame;
    Ok(EndorsementSet {
        platform,
        json: json.into(),
        documents,
        from,
        until,
        refresh_at,
        generation,
        used,
    })
}

#[derive(Serialize)]
struct DcapJson<'a> {
    pck_crl_issuer_chain: &'a str,
    root_ca_crl: String,
    pck_crl: String,
    tcb_info_issuer_chain: &'a str,
    tcb_info: &'a str,
    tcb_info_signature: &'a str,
    qe_identity_issuer_chain: &'a str,
    qe_identity: &'a str,
    qe_identity_signature: &'a str,
}

fn dcap_json(
    root_crl: &Document,
    pck_crl: &Document,
    tcb_info: &Document,
    qe_identity: &Document,
) -> Result<Vec<u8>, String> {
    let set = DcapJson {
        pck_crl_issuer_chain: &pck_crl.chain,
        root_ca_crl: hex::encode(&root_crl.content),
        pck_crl: hex::encode(&pck_crl.content),
        tcb_info_issuer_chain: &tcb_info.chain,
        tcb_info: document_text(tcb_info)?,
        tcb_info_signature: &tcb_info.signature,
        qe_identity_issuer_chain: &qe_identity.chain,
        qe_identity: document_text(qe_identity)?,
        qe_identity_signature: &qe_identity.signature,
    };
    serde_json::to_vec(&set).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct SnpJson<'a> {
    endorsement_key: String,
    chain: &'a str,
    crl: String,
}

fn snp_json(key: &Document, chain: &Document, crl: &Document) -> Result<Vec<u8>, String> {
    let set = SnpJson {
        endorsement_key: hex::encode(&key.content),
        chain: document_text(chain)?,
        crl: hex::encode(&crl.content),
    };
    serde_json::to_vec(&set).map_err(|error| error.to_string())
}

fn document_text(document: &Document) -> Result<&str, String> {
    let text = std::str::from_utf8(&document.content);
    text.map_err(|_| format!("{} is not text", document.key))
}

/// The number of small maps that make up a [`SetMap`]: a new set copies only one of them.
const SHARDS: usize = 64;

/// All sets at hand, by platform. Readers take no lock; only one writer at a time is allowed.
pub(crate) struct SetMap {
    shards: Vec<ArcSwap<HashMap<Platform, Arc<EndorsementSet>>>>,
    hasher: RandomState,
}

impl SetMap {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(HashMap::new())).collect();
        Self { shards, hasher: RandomState::new() }
    }

    pub(crate) fn find(&self, platform: &Platform) -> Option<Arc<EndorsementSet>> {
        self.shard(platform).load().get(platform).cloned()
    }

    pub(crate) fn to_vec(&self) -> Vec<Arc<EndorsementSet>> {
        let maps = self.shards.iter().map(|shard| shard.load_full());
        maps.flat_map(|map| map.values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn insert(&self, set: Arc<EndorsementSet>) {
        let shard = self.shard(&set.platform);
        let mut map = HashMap::clone(&shard.load());
        map.insert(set.platform.clone(), set);
        shard.store(Arc::new(map));
    }

    /// Drops the sets that were used longest ago, until at most `most` are left.
    pub(crate) fn shrink_to(&self, most: usize) {
        let count: usize = self.shards.iter().map(|shard| shard.load().len()).sum();
        if count <= most {
            return;
        }
        let mut sets = self.to_vec();
        sets.sort_by_key(|set| set.used_at());
        for set in sets.iter().take(count - most) {
            let shard = self.shard(&set.platform);
            let mut map = HashMap::clone(&shard.load());
            map.remove(&set.platform);
            shard.store(Arc::new(map));
        }
    }

    fn shard(&self, platform: &Platform) -> &ArcSwap<HashMap<Platform, Arc<EndorsementSet>>> {
        let hash = self.hasher.hash_one(platform);
        &self.shards[(hash % SHARDS as u64) as usize]
    }
}

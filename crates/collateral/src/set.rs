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
    identity::Evaluation,
    platform::Platform,
    store::Store,
};

/// The endorsements of one platform as one JSON object, and how long they hold.
///
/// Nothing here tells whether they are genuine: appraisal does.
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
    /// Puts a set together from the documents in a store, whichever service they came from; asks no
    /// service and ignores the time.
    ///
    /// # Errors
    /// [`CollateralError::NotAtHand`] if a document is missing, and others if they do not fit together.
    pub fn from_store(
        store: &Store,
        platform: &Platform,
        evaluation: Evaluation,
    ) -> Result<Self, CollateralError> {
        let keys = platform.documents(evaluation);
        let documents: Option<Vec<_>> =
            keys.iter().map(|key| store.find(key).map(Arc::new)).collect();
        let missing = || CollateralError::NotAtHand { subject: platform.to_string() };
        let frame = Frame {
            platform: platform.clone(),
            refresh_at: 0,
            generation: 0,
            used: Arc::default(),
        };
        assemble(frame, documents.ok_or_else(missing)?)
    }

    /// The platform that they belong to.
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

    /// Unix seconds: the latest issue of its documents, and the last second at which all hold.
    pub fn life(&self) -> (u64, u64) {
        (self.from, self.until)
    }

    /// Whether all documents hold at `now`, in Unix seconds.
    pub fn holds_at(&self, now: u64) -> bool {
        (self.from..=self.until).contains(&now)
    }

    /// The number of this set among all that were put together in this process; later ones have
    /// greater numbers.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn refresh_due(&self, now: u64) -> bool {
        // A document that was fetched later than now shows that the clock went back.
        now >= self.refresh_at || self.documents.iter().any(|each| each.fetched_at > now)
    }

    pub(crate) fn touch(&self, now: u64) {
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

    pub(crate) fn shared_use(&self) -> Arc<AtomicU64> {
        self.used.clone()
    }
}

/// The parts of a set besides its documents.
pub(crate) struct Frame {
    pub(crate) platform: Platform,
    pub(crate) refresh_at: u64,
    pub(crate) generation: u64,
    pub(crate) used: Arc<AtomicU64>,
}

/// Puts a set together; `documents` are in the order of `Platform::documents`.
pub(crate) fn assemble(
    frame: Frame,
    documents: Vec<Arc<Document>>,
) -> Result<EndorsementSet, CollateralError> {
    let unreadable =
        |reason: String| CollateralError::Refused { subject: frame.platform.to_string(), reason };
    let json = match (&frame.platform, documents.as_slice()) {
        (Platform::Dcap { .. }, [root_crl, pck_crl, tcb_info, qe_identity]) => {
            dcap(root_crl, pck_crl, tcb_info, qe_identity)
        }
        (Platform::Snp(_), [key, chain, crl]) => snp(key, chain, crl),
        _ => return Err(unreadable("documents are missing".into())),
    };
    let json = json.map_err(&unreadable)?;
    let from = documents.iter().map(|document| document.issued).max().unwrap_or(u64::MAX);
    let until = documents.iter().map(|document| document.until).min().unwrap_or(0);
    let Frame { platform, refresh_at, generation, used } = frame;
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
struct Dcap<'a> {
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

fn dcap(
    root_crl: &Document,
    pck_crl: &Document,
    tcb_info: &Document,
    qe_identity: &Document,
) -> Result<Vec<u8>, String> {
    let set = Dcap {
        pck_crl_issuer_chain: &pck_crl.chain,
        root_ca_crl: hex::encode(&root_crl.content),
        pck_crl: hex::encode(&pck_crl.content),
        tcb_info_issuer_chain: &tcb_info.chain,
        tcb_info: text(tcb_info)?,
        tcb_info_signature: &tcb_info.signature,
        qe_identity_issuer_chain: &qe_identity.chain,
        qe_identity: text(qe_identity)?,
        qe_identity_signature: &qe_identity.signature,
    };
    serde_json::to_vec(&set).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct Snp<'a> {
    endorsement_key: String,
    chain: &'a str,
    crl: String,
}

fn snp(key: &Document, chain: &Document, crl: &Document) -> Result<Vec<u8>, String> {
    let set = Snp {
        endorsement_key: hex::encode(&key.content),
        chain: text(chain)?,
        crl: hex::encode(&crl.content),
    };
    serde_json::to_vec(&set).map_err(|error| error.to_string())
}

fn text(document: &Document) -> Result<&str, String> {
    let text = std::str::from_utf8(&document.content);
    text.map_err(|_| format!("{} is not text", document.key))
}

/// The number of maps: many small ones instead of one, so that a new set copies only one of them.
const SHARDS: usize = 64;

/// All sets at hand. Readers take no lock; there is one writer at a time (the cache's commit).
pub(crate) struct SetShelf {
    shards: Vec<ArcSwap<HashMap<Platform, Arc<EndorsementSet>>>>,
    hasher: RandomState,
}

impl SetShelf {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(HashMap::new())).collect();
        Self { shards, hasher: RandomState::new() }
    }

    pub(crate) fn find(&self, platform: &Platform) -> Option<Arc<EndorsementSet>> {
        self.shard(platform).load().get(platform).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<EndorsementSet>> {
        let maps = self.shards.iter().map(|shard| shard.load_full());
        maps.flat_map(|map| map.values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn put(&self, set: Arc<EndorsementSet>) {
        let shard = self.shard(&set.platform);
        let mut map = HashMap::clone(&shard.load());
        map.insert(set.platform.clone(), set);
        shard.store(Arc::new(map));
    }

    /// Drops the sets that were used longest ago, until at most `most` are left.
    pub(crate) fn shrink(&self, most: usize) {
        let count: usize = self.shards.iter().map(|shard| shard.load().len()).sum();
        if count <= most {
            return;
        }
        let mut sets = self.all();
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

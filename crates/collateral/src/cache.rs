//! The documents and the sets made of them: which are at hand, which are due, and which are
//! refused.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use confide_http::{Flight, SingleFlight};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use crate::{
    back_off::back_off,
    client::Client,
    counts::{Counters, Counts, add},
    document::{Document, DocumentKey},
    error::CollateralError,
    limits::*,
    memory::NewestRanks,
    options::{Check, Clock, SourceOptions},
    platform::Platform,
    set::{EndorsementSet, Frame, SetShelf, assemble},
    store::Store,
};

/// The shortest time between two fetches of a document, in seconds, even where it is always due:
/// one that ends soon and whose issuer is late.
const REFETCH_S: u64 = 60;

pub(crate) type Outcome = Result<Arc<EndorsementSet>, CollateralError>;

pub(crate) struct Cache {
    client: Client,
    store: Option<Arc<Store>>,
    clock: Clock,
    check: Option<Check>,
    evaluation: crate::identity::Evaluation,
    refresh_every_s: u64,
    refresh_lead_s: u64,
    counters: Arc<Counters>,
    runtime: Handle,
    sets: SetShelf,
    state: Mutex<CacheState>,
    /// Held while a set is committed, so that one is committed at a time.
    commit: tokio::sync::Mutex<()>,
    flights: Arc<SingleFlight<Platform, Outcome>>,
    generation: watch::Sender<u64>,
}

struct CacheState {
    documents: HashMap<DocumentKey, Arc<Document>>,
    memory: NewestRanks,
    failures: HashMap<Platform, PlatformFailure>,
    new_platforms: u32,
    new_since: Instant,
}

struct PlatformFailure {
    error: CollateralError,
    count: u32,
    until: Instant,
}

impl Cache {
    pub(crate) fn open(
        options: SourceOptions,
        client: Client,
        counters: Arc<Counters>,
        runtime: Handle,
    ) -> Arc<Self> {
        let mut state = CacheState {
            documents: HashMap::new(),
            memory: NewestRanks::default(),
            failures: HashMap::new(),
            new_platforms: NEW_PLATFORMS_BURST,
            new_since: Instant::now(),
        };
        if let Some(store) = &options.store {
            state.memory = store.memory();
            match store.list() {
                Ok((documents, faults)) => {
                    for fault in faults {
                        add(&counters.store_failures, 1);
                        let (name, reason) = (fault.name, fault.reason);
                        tracing::warn!(name, reason, "a stored document is ignored");
                    }
                    let ours = documents.into_iter().filter(|each| is_from(&client, each));
                    let ours = ours.take(DOCUMENTS_MAX);
                    state.documents = ours.map(|each| (each.key.clone(), Arc::new(each))).collect();
                }
                Err(error) => {
                    add(&counters.store_failures, 1);
                    tracing::warn!(%error, "the store is not read");
                }
            }
        }
        Arc::new(Self {
            client,
            store: options.store.map(Arc::new),
            clock: options.clock,
            check: options.check,
            evaluation: options.evaluation,
            refresh_every_s: options.refresh_every.as_secs(),
            refresh_lead_s: options.refresh_lead.as_secs(),
            counters,
            runtime,
            sets: SetShelf::new(),
            state: Mutex::new(state),
            commit: tokio::sync::Mutex::new(()),
            flights: SingleFlight::new(),
            generation: watch::channel(0).0,
        })
    }

    pub(crate) fn current(self: &Arc<Self>, platform: &Platform) -> Option<Arc<EndorsementSet>> {
        let now = (self.clock)();
        let set = self.sets.find(platform).filter(|set| set.holds_at(now));
        match &set {
            None => add(&self.counters.misses, 1),
            Some(set) => {
                add(&self.counters.hits, 1);
                set.touch(now);
                if set.refresh_due(now) {
                    // The error is that of the last try, which was logged already.
                    drop(self.begin(platform));
                }
            }
        }
        set
    }

    /// Starts the work for a platform, or joins the one under way; what failed a moment ago fails
    /// again at once.
    pub(crate) fn begin(
        self: &Arc<Self>,
        platform: &Platform,
    ) -> Result<Flight<Outcome>, CollateralError> {
        if let Some(failed) = self.state().failures.get(platform)
            && Instant::now() < failed.until
        {
            return Err(failed.error.clone());
        }
        let (cache, of) = (self.clone(), platform.clone());
        Ok(self.flights.start(&self.runtime, platform, move || cache.refresh(of)))
    }

    /// Refreshes the sets that are due, for ever.
    pub(crate) async fn keep_fresh(self: Arc<Self>, every: Duration) {
        loop {
            sleep(every).await;
            let now = (self.clock)();
            for set in self.sets.all() {
                let idle = now.saturating_sub(set.used_at()) > UNUSED_S;
                if !idle && (set.refresh_due(now) || !set.holds_at(now)) {
                    drop(self.begin(set.platform()));
                }
            }
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counters.read()
    }

    async fn refresh(self: Arc<Self>, platform: Platform) -> Outcome {
        let (outcome, trouble) = match self.fetch(&platform).await {
            Ok((set, trouble)) => (Ok(set), trouble),
            Err(error) => (Err(error.clone()), Some(error)),
        };
        let mut state = self.state();
        match trouble {
            None => drop(state.failures.remove(&platform)),
            Some(error) => {
                tracing::warn!(%platform, %error, held = outcome.is_ok(), "refresh failed");
                state.note_failure(platform, error);
            }
        }
        outcome
    }

    /// The set, and the error of what went wrong although there is one.
    async fn fetch(
        self: &Arc<Self>,
        platform: &Platform,
    ) -> Result<(Arc<EndorsementSet>, Option<CollateralError>), CollateralError> {
        let keys = platform.documents(self.evaluation);
        self.adopt_from_store(&keys).await;
        let now = (self.clock)();
        let wanted = self.documents_to_fetch(platform, &keys, now)?;
        let mut requests = JoinSet::new();
        for key in wanted {
            let client = self.client.clone();
            requests.spawn(async move { client.document(&key, now).await });
        }
        let (mut fresh, mut trouble) = (HashMap::new(), None);
        while let Some(ended) = requests.join_next().await {
            let aborted = || CollateralError::Aborted { subject: platform.to_string() };
            match ended.unwrap_or_else(|_| Err(aborted())) {
                Ok(document) => drop(fresh.insert(document.key.clone(), Arc::new(document))),
                Err(error) => {
                    add(&self.counters.failures, 1);
                    trouble = Some(error);
                }
            }
        }
        self.commit(platform, &keys, fresh, trouble).await
    }

    /// The documents to fetch. A platform that is new here takes one of the places for new
    /// platforms.
    fn documents_to_fetch(
        &self,
        platform: &Platform,
        keys: &[DocumentKey],
        now: u64,
    ) -> Result<Vec<DocumentKey>, CollateralError> {
        let mut state = self.state();
        let missing = keys.iter().any(|key| !state.documents.contains_key(key));
        if missing && self.sets.find(platform).is_none() && !state.take_newcomer_place() {
            add(&self.counters.refused_platforms, 1);
            return Err(CollateralError::Crowded { subject: platform.to_string() });
        }
        let fine = |key: &DocumentKey| {
            let held = state.documents.get(key);
            held.is_some_and(|each| each.holds_at(now) && now < self.refresh_at(each))
                && held.is_some_and(|each| each.fetched_at <= now || !key.is_ranked())
        };
        Ok(keys.iter().filter(|key| !fine(key)).cloned().collect())
    }

    /// Takes over what another process has stored since, if it is newer.
    async fn adopt_from_store(&self, keys: &[DocumentKey]) {
        let Some(store) = self.store.clone() else { return };
        let keys = keys.to_vec();
        let read = spawn_blocking(move || {
            let found: Vec<Document> = keys.iter().filter_map(|key| store.find(key)).collect();
            (found, store.memory())
        });
        let Ok((found, memory)) = read.await else { return };
        let mut state = self.state();
        state.memory.merge(&memory);
        for document in found.into_iter().filter(|each| is_from(&self.client, each)) {
            let newer = state.documents.get(&document.key).is_none_or(|held| {
                document.fetched_at > held.fetched_at
                    && !document.key.is_older(document.rank(), held.rank())
            });
            if newer {
                state.documents.insert(document.key.clone(), Arc::new(document));
            }
        }
    }

    async fn commit(
        &self,
        platform: &Platform,
        keys: &[DocumentKey],
        mut fresh: HashMap<DocumentKey, Arc<Document>>,
        mut trouble: Option<CollateralError>,
    ) -> Result<(Arc<EndorsementSet>, Option<CollateralError>), CollateralError> {
        let _one = self.commit.lock().await;
        let now = (self.clock)();
        let root = self.root_of(keys, &fresh, now);
        fresh.retain(|_, document| match self.judge(document, &root_for(document, &root), now) {
            Ok(()) => true,
            Err(error) => {
                self.report_rollback(document, &error);
                trouble = Some(error);
                false
            }
        });
        let mut chosen = Vec::with_capacity(keys.len());
        for key in keys {
            let held = || self.state().documents.get(key).cloned();
            let document = match fresh.get(key).cloned().or_else(held) {
                Some(document) => document,
                None => return Err(trouble.unwrap_or_else(|| not_at_hand_error(platform))),
            };
            if let Err(error) = self.judge(&document, &root, now) {
                return Err(trouble.unwrap_or(error));
            }
            chosen.push(document);
        }
        let used = match self.sets.find(platform) {
            Some(set) => set.shared_use(),
            None => Arc::new(AtomicU64::new(now)),
        };
        let set = self.assemble(platform, chosen, used)?;
        if let Some(check) = &self.check
            && let Err(reason) = check(platform, set.json(), now)
        {
            add(&self.counters.refused_sets, 1);
            let event = "collateral_set_refused";
            tracing::warn!(event, %platform, reason, "a fetched set is refused");
            return Err(CollateralError::Refused { subject: platform.to_string(), reason });
        }
        add(&self.counters.refreshes, fresh.len() as u64);
        self.keep(&set, fresh, &root).await;
        Ok((set, trouble))
    }

    /// Checks that a document holds now and is not older than one that was seen.
    fn judge(&self, document: &Document, root: &[u8; 32], now: u64) -> Result<(), CollateralError> {
        let subject = || document.key.to_string();
        if !document.holds_at(now) {
            let (from, until) = (document.issued, document.until);
            return Err(CollateralError::NotHolding { subject: subject(), from, until, now });
        }
        let seen = self.state().memory.newest_rank(&document.key, root);
        let Some(seen) = seen.filter(|seen| document.key.is_older(document.rank(), *seen)) else {
            return Ok(());
        };
        Err(CollateralError::RolledBack {
            subject: subject(),
            seen_number: seen.number,
            seen_issued: seen.issued,
            got_number: document.number,
            got_issued: document.issued,
        })
    }

    fn report_rollback(&self, document: &Document, error: &CollateralError) {
        if matches!(error, CollateralError::RolledBack { .. }) {
            add(&self.counters.refused_rollbacks, 1);
            let (event, service) = ("collateral_rollback_refused", &document.service);
            tracing::warn!(event, service, %error, "an older document is refused");
        }
    }

    /// Puts the set in place, and every other set that shares a document with it.
    async fn keep(
        &self,
        set: &Arc<EndorsementSet>,
        fresh: HashMap<DocumentKey, Arc<Document>>,
        root: &[u8; 32],
    ) {
        let mut seen = NewestRanks::default();
        for document in set.documents() {
            seen.raise(document, root);
        }
        {
            let mut state = self.state();
            state.memory.merge(&seen);
            for (key, document) in &fresh {
                state.documents.insert(key.clone(), document.clone());
            }
        }
        // Written before anybody is served by it: no document may fall back behind one that was
        // served, even after the next start.
        self.write(move |store| store.remember(&seen).err().into_iter().collect()).await;
        self.sets.put(set.clone());
        self.sets.shrink(PLATFORMS_MAX);
        for other in self.sets.all() {
            if other.platform() != set.platform() && fresh.keys().any(|key| other.contains(key)) {
                self.assemble_anew(&other);
            }
        }
        self.forget_unused();
        self.generation.send_modify(|generation| *generation += 1);
        self.write(move |store| {
            fresh.values().filter_map(|document| store.put(document).err()).collect()
        })
        .await;
    }

    fn assemble_anew(&self, other: &EndorsementSet) {
        let documents: Option<Vec<Arc<Document>>> = {
            let state = self.state();
            other.keys().map(|key| state.documents.get(key).cloned()).collect()
        };
        let Some(documents) = documents else { return };
        if let Ok(set) = self.assemble(other.platform(), documents, other.shared_use()) {
            self.sets.put(set);
        }
    }

    fn assemble(
        &self,
        platform: &Platform,
        documents: Vec<Arc<Document>>,
        used: Arc<AtomicU64>,
    ) -> Outcome {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let refresh_at = documents.iter().map(|each| self.refresh_at(each)).min().unwrap_or(0);
        let generation = GENERATIONS.fetch_add(1, Relaxed);
        let frame = Frame { platform: platform.clone(), refresh_at, generation, used };
        assemble(frame, documents).map(Arc::new)
    }

    /// The time at which a document is due: after the interval or before its end, a tenth earlier
    /// at random, so that a fleet does not come at one time. AMD's certificates stay the same until
    /// they end.
    fn refresh_at(&self, document: &Document) -> u64 {
        if !document.key.is_ranked() {
            return document.until;
        }
        let mut hasher = DefaultHasher::new();
        (std::process::id(), &document.key, document.fetched_at).hash(&mut hasher);
        let jitter = |span: u64| hasher.finish() % (span / 10 + 1);
        let every = document.fetched_at.saturating_add(self.refresh_every_s);
        let end = document.until.saturating_sub(self.refresh_lead_s);
        let due = every
            .saturating_sub(jitter(self.refresh_every_s))
            .min(end.saturating_sub(jitter(self.refresh_lead_s)));
        due.max(document.fetched_at.saturating_add(REFETCH_S.min(self.refresh_every_s)))
    }

    /// The root under which the set is issued, from the document that carries it.
    fn root_of(
        &self,
        keys: &[DocumentKey],
        fresh: &HashMap<DocumentKey, Arc<Document>>,
        now: u64,
    ) -> [u8; 32] {
        let key = keys.iter().find(|key| carries_root(key));
        // A document that is refused must not choose the memory that the others are compared with.
        let fit = |document: &&Arc<Document>| {
            self.judge(document, &root_for(document, &[0; 32]), now).is_ok()
        };
        let document = key.and_then(|key| {
            let held = || self.state().documents.get(key).cloned();
            fresh.get(key).filter(fit).cloned().or_else(held)
        });
        document.and_then(|document| document.root()).unwrap_or_default()
    }

    fn forget_unused(&self) {
        let mut state = self.state();
        if state.documents.len() <= DOCUMENTS_MAX {
            return;
        }
        let used: HashSet<DocumentKey> = self
            .sets
            .all()
            .iter()
            .flat_map(|set| set.keys().cloned().collect::<Vec<_>>())
            .collect();
        state.documents.retain(|key, _| used.contains(key));
    }

    /// Writes to the store. What cannot be written is still in memory, and the error is logged.
    async fn write(&self, work: impl FnOnce(&Store) -> Vec<CollateralError> + Send + 'static) {
        let Some(store) = self.store.clone() else { return };
        let failures = spawn_blocking(move || work(&store)).await.unwrap_or_default();
        add(&self.counters.store_failures, failures.len() as u64);
        if let Some(error) = failures.first() {
            tracing::warn!(%error, count = failures.len(), "the store is not written");
        }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn note_failure(&mut self, platform: Platform, error: CollateralError) {
        let now = Instant::now();
        if self.failures.len() >= FAILURES_MAX && !self.failures.contains_key(&platform) {
            self.failures.retain(|_, failed| now < failed.until);
            if self.failures.len() >= FAILURES_MAX {
                self.failures.clear();
            }
        }
        let count = self.failures.get(&platform).map_or(0, |failed| failed.count.saturating_add(1));
        let wait = match error.is_unknown() {
            true => UNKNOWN_WAIT,
            false => back_off(FAILED_FIRST, FAILED_MAX, count),
        };
        self.failures.insert(platform, PlatformFailure { error, count, until: now + wait });
    }

    /// Takes a place for a new platform, from a bucket of places that fills with time.
    fn take_newcomer_place(&mut self) -> bool {
        let since = self.new_since.elapsed();
        let more = since.as_nanos() / NEW_PLATFORM_EVERY.as_nanos();
        if more > 0 {
            self.new_since = Instant::now();
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.new_platforms = self.new_platforms.saturating_add(more).min(NEW_PLATFORMS_BURST);
        }
        let free = self.new_platforms > 0;
        self.new_platforms -= u32::from(free);
        free
    }
}

/// Whether the document is the one of its set whose chain tells the root of the set.
fn carries_root(key: &DocumentKey) -> bool {
    matches!(key, DocumentKey::TcbInfo { .. } | DocumentKey::AmdChain { .. })
}

/// The root under which a document is compared: its own, where it carries one.
fn root_for(document: &Document, root: &[u8; 32]) -> [u8; 32] {
    if carries_root(&document.key) { document.root().unwrap_or_default() } else { *root }
}

fn is_from(client: &Client, document: &Document) -> bool {
    client.services().base_for(&document.key).is_ok_and(|base| base.url() == document.service)
}

fn not_at_hand_error(platform: &Platform) -> CollateralError {
    CollateralError::NotAtHand { subject: platform.to_string() }
}

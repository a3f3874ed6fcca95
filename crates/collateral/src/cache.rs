//! The cache of documents and of the sets made of them: it decides which are fetched, served and
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

use confide_http::{SharedOutcome, SingleFlight};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use crate::{
    back_off::back_off,
    client::Client,
    counts::{CollateralCounts, Counters, add_to_counter},
    document::{Document, DocumentKey},
    error::CollateralError,
    limits::*,
    newest_ranks::NewestVersions,
    options::{Clock, SetCheck, SourceOptions},
    platform::Platform,
    set::{EndorsementSet, SetMap, SetMetadata, assemble},
    store::Store,
};

/// The shortest time between two fetches of a document, in seconds. It bounds the fetches of a
/// document that expires soon and whose issuer is late with the next one.
const REFETCH_S: u64 = 60;

pub(crate) type SetResult = Result<Arc<EndorsementSet>, CollateralError>;

pub(crate) struct Cache {
    client: Client,
    store: Option<Arc<Store>>,
    clock: Clock,
    check: Option<SetCheck>,
    evaluation: crate::identity::TcbEvaluation,
    refresh_every_s: u64,
    refresh_lead_s: u64,
    counters: Arc<Counters>,
    runtime: Handle,
    sets: SetMap,
    state: Mutex<CacheState>,
    /// Held while a set is committed, so that sets are committed one at a time.
    commit: tokio::sync::Mutex<()>,
    flights: Arc<SingleFlight<Platform, SetResult>>,
    generation: watch::Sender<u64>,
}

struct CacheState {
    documents: HashMap<DocumentKey, Arc<Document>>,
    newest_ranks: NewestVersions,
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
            newest_ranks: NewestVersions::default(),
            failures: HashMap::new(),
            new_platforms: NEW_PLATFORMS_BURST,
            new_since: Instant::now(),
        };
        if let Some(store) = &options.store {
            state.newest_ranks = store.read_newest_versions();
            match store.list() {
                Ok((documents, faults)) => {
                    for fault in faults {
                        add_to_counter(&counters.store_failures, 1);
                        let (name, reason) = (fault.name, fault.reason);
                        tracing::warn!(name, reason, "a stored document is ignored");
                    }
                    let ours = documents.into_iter().filter(|each| is_from_service(&client, each));
                    let ours = ours.take(DOCUMENTS_MAX);
                    state.documents = ours.map(|each| (each.key.clone(), Arc::new(each))).collect();
                }
                Err(error) => {
                    add_to_counter(&counters.store_failures, 1);
                    tracing::warn!(%error, "the store could not be read");
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
            sets: SetMap::new(),
            state: Mutex::new(state),
            commit: tokio::sync::Mutex::new(()),
            flights: SingleFlight::new(),
            generation: watch::channel(0).0,
        })
    }

    pub(crate) fn current_set(
        self: &Arc<Self>,
        platform: &Platform,
    ) -> Option<Arc<EndorsementSet>> {
        let now = (self.clock)();
        let set = self.sets.find(platform).filter(|set| set.is_valid_at(now));
        match &set {
            None => add_to_counter(&self.counters.misses, 1),
            Some(set) => {
                add_to_counter(&self.counters.hits, 1);
                set.note_use(now);
                if set.is_refresh_due(now) {
                    // The error is that of the last try, which was logged already.
                    drop(self.start_refresh(platform));
                }
            }
        }
        set
    }

    /// Starts the refresh of a platform, or joins the one under way. A platform that failed a
    /// moment ago fails again at once.
    pub(crate) fn start_refresh(
        self: &Arc<Self>,
        platform: &Platform,
    ) -> Result<SharedOutcome<SetResult>, CollateralError> {
        if let Some(failed) = self.lock_state().failures.get(platform)
            && Instant::now() < failed.until
        {
            return Err(failed.error.clone());
        }
        let (cache, of) = (self.clone(), platform.clone());
        Ok(self.flights.start(&self.runtime, platform, move || cache.refresh(of)))
    }

    /// Refreshes the sets that are due, in an endless loop.
    pub(crate) async fn refresh_due_sets(self: Arc<Self>, every: Duration) {
        loop {
            sleep(every).await;
            let now = (self.clock)();
            for set in self.sets.to_vec() {
                let idle = now.saturating_sub(set.used_at()) > UNUSED_S;
                if !idle && (set.is_refresh_due(now) || !set.is_valid_at(now)) {
                    drop(self.start_refresh(set.platform()));
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

    pub(crate) fn watch_generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(crate) fn counts(&self) -> CollateralCounts {
        self.counters.snapshot()
    }

    async fn refresh(self: Arc<Self>, platform: Platform) -> SetResult {
        let (outcome, trouble) = match self.fetch_set(&platform).await {
            Ok((set, trouble)) => (Ok(set), trouble),
            Err(error) => (Err(error.clone()), Some(error)),
        };
        let mut state = self.lock_state();
        match trouble {
            None => drop(state.failures.remove(&platform)),
            Some(error) => {
                tracing::warn!(%platform, %error, held = outcome.is_ok(), "refresh failed");
                state.note_failure(platform, error);
            }
        }
        outcome
    }

    /// Fetches the documents that are due. Returns the set, and the last error if some fetch
    /// failed.
    async fn fetch_set(
        self: &Arc<Self>,
        platform: &Platform,
    ) -> Result<(Arc<EndorsementSet>, Option<CollateralError>), CollateralError> {
        let keys = platform.document_keys(self.evaluation);
        self.adopt_from_store(&keys).await;
        let now = (self.clock)();
        let wanted = self.documents_to_fetch(platform, &keys, now)?;
        let mut requests = JoinSet::new();
        for key in wanted {
            let client = self.client.clone();
            requests.spawn(async move { client.fetch_document(&key, now).await });
        }
        let (mut fresh, mut trouble) = (HashMap::new(), None);
        while let Some(ended) = requests.join_next().await {
            let aborted = || CollateralError::Aborted { subject: platform.to_string() };
            match ended.unwrap_or_else(|_| Err(aborted())) {
                Ok(document) => drop(fresh.insert(document.key.clone(), Arc::new(document))),
                Err(error) => {
                    add_to_counter(&self.counters.failures, 1);
                    trouble = Some(error);
                }
            }
        }
        self.commit_set(platform, &keys, fresh, trouble).await
    }

    /// The documents to fetch. A new platform takes one of the slots for new platforms.
    fn documents_to_fetch(
        &self,
        platform: &Platform,
        keys: &[DocumentKey],
        now: u64,
    ) -> Result<Vec<DocumentKey>, CollateralError> {
        let mut state = self.lock_state();
        let missing = keys.iter().any(|key| !state.documents.contains_key(key));
        if missing && self.sets.find(platform).is_none() && !state.take_new_platform_slot() {
            add_to_counter(&self.counters.refused_platforms, 1);
            return Err(CollateralError::TooManyNewPlatforms { subject: platform.to_string() });
        }
        let fine = |key: &DocumentKey| {
            let held = state.documents.get(key);
            held.is_some_and(|each| each.is_valid_at(now) && now < self.refresh_at(each))
                && held.is_some_and(|each| each.fetched_at <= now || !key.is_versioned())
        };
        Ok(keys.iter().filter(|key| !fine(key)).cloned().collect())
    }

    /// Adopts documents from the store that another process wrote, if they are newer.
    async fn adopt_from_store(&self, keys: &[DocumentKey]) {
        let Some(store) = self.store.clone() else { return };
        let keys = keys.to_vec();
        let read = spawn_blocking(move || {
            let found: Vec<Document> = keys.iter().filter_map(|key| store.find(key)).collect();
            (found, store.read_newest_versions())
        });
        let Ok((found, memory)) = read.await else { return };
        let mut state = self.lock_state();
        state.newest_ranks.merge(&memory);
        for document in found.into_iter().filter(|each| is_from_service(&self.client, each)) {
            let newer = state.documents.get(&document.key).is_none_or(|held| {
                document.fetched_at > held.fetched_at
                    && !document.key.is_older(document.version(), held.version())
            });
            if newer {
                state.documents.insert(document.key.clone(), Arc::new(document));
            }
        }
    }

    async fn commit_set(
        &self,
        platform: &Platform,
        keys: &[DocumentKey],
        mut fresh: HashMap<DocumentKey, Arc<Document>>,
        mut trouble: Option<CollateralError>,
    ) -> Result<(Arc<EndorsementSet>, Option<CollateralError>), CollateralError> {
        let _one = self.commit.lock().await;
        let now = (self.clock)();
        let root = self.find_root(keys, &fresh, now);
        fresh.retain(|_, document| {
            match self.check_document(document, &comparison_root(document, &root), now) {
                Ok(()) => true,
                Err(error) => {
                    self.report_rollback(document, &error);
                    trouble = Some(error);
                    false
                }
            }
        });
        let mut chosen = Vec::with_capacity(keys.len());
        for key in keys {
            let held = || self.lock_state().documents.get(key).cloned();
            let document = match fresh.get(key).cloned().or_else(held) {
                Some(document) => document,
                None => return Err(trouble.unwrap_or_else(|| not_at_hand_error(platform))),
            };
            if let Err(error) = self.check_document(&document, &root, now) {
                return Err(trouble.unwrap_or(error));
            }
            chosen.push(document);
        }
        let used = match self.sets.find(platform) {
            Some(set) => set.shared_used_at(),
            None => Arc::new(AtomicU64::new(now)),
        };
        let set = self.assemble(platform, chosen, used)?;
        if let Some(check) = &self.check
            && let Err(reason) = check(platform, set.json(), now)
        {
            add_to_counter(&self.counters.refused_sets, 1);
            let event = "collateral_set_refused";
            tracing::warn!(event, %platform, reason, "a fetched set is refused");
            return Err(CollateralError::Refused { subject: platform.to_string(), reason });
        }
        add_to_counter(&self.counters.refreshes, fresh.len() as u64);
        self.publish(&set, fresh, &root).await;
        Ok((set, trouble))
    }

    /// Checks that a document is valid now and not older than the newest one seen.
    fn check_document(
        &self,
        document: &Document,
        root: &[u8; 32],
        now: u64,
    ) -> Result<(), CollateralError> {
        let subject = || document.key.to_string();
        if !document.is_valid_at(now) {
            let (from, until) = (document.issued, document.until);
            return Err(CollateralError::NotValidNow { subject: subject(), from, until, now });
        }
        let seen = self.lock_state().newest_ranks.newest_version(&document.key, root);
        let Some(seen) = seen.filter(|seen| document.key.is_older(document.version(), *seen))
        else {
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
            add_to_counter(&self.counters.refused_rollbacks, 1);
            let (event, service) = ("collateral_rollback_refused", &document.service);
            tracing::warn!(event, service, %error, "an older document is refused");
        }
    }

    /// Makes the set the current one, and updates every other set that shares a document with it.
    async fn publish(
        &self,
        set: &Arc<EndorsementSet>,
        fresh: HashMap<DocumentKey, Arc<Document>>,
        root: &[u8; 32],
    ) {
        let mut seen = NewestVersions::default();
        for document in set.documents() {
            seen.record(document, root);
        }
        {
            let mut state = self.lock_state();
            state.newest_ranks.merge(&seen);
            for (key, document) in &fresh {
                state.documents.insert(key.clone(), document.clone());
            }
        }
        // Written before the set is served: no later document may be older than one that was
        // served, even after a restart.
        self.write_store(move |store| {
            store.merge_newest_versions(&seen).err().into_iter().collect()
        })
        .await;
        self.sets.insert(set.clone());
        self.sets.shrink_to(PLATFORMS_MAX);
        for other in self.sets.to_vec() {
            if other.platform() != set.platform() && fresh.keys().any(|key| other.contains(key)) {
                self.reassemble(&other);
            }
        }
        self.forget_unused();
        self.generation.send_modify(|generation| *generation += 1);
        self.write_store(move |store| {
            fresh.values().filter_map(|document| store.put(document).err()).collect()
        })
        .await;
    }

    fn reassemble(&self, other: &EndorsementSet) {
        let documents: Option<Vec<Arc<Document>>> = {
            let state = self.lock_state();
            other.keys().map(|key| state.documents.get(key).cloned()).collect()
        };
        let Some(documents) = documents else { return };
        if let Ok(set) = self.assemble(other.platform(), documents, other.shared_used_at()) {
            self.sets.insert(set);
        }
    }

    fn assemble(
        &self,
        platform: &Platform,
        documents: Vec<Arc<Document>>,
        used: Arc<AtomicU64>,
    ) -> SetResult {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let refresh_at = documents.iter().map(|each| self.refresh_at(each)).min().unwrap_or(0);
        let generation = GENERATIONS.fetch_add(1, Relaxed);
        let frame = SetMetadata { platform: platform.clone(), refresh_at, generation, used };
        assemble(frame, documents).map(Arc::new)
    }

    /// The Unix second at which a document is due: after the interval or before its expiry, up to a
    /// tenth earlier at random, so that the machines of a fleet do not ask at the same time. AMD's
    /// certificates stay the same until they expire.
    fn refresh_at(&self, document: &Document) -> u64 {
        if !document.key.is_versioned() {
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

    /// SHA-256 of the root under which the set is issued, from the document whose chain has it.
    fn find_root(
        &self,
        keys: &[DocumentKey],
        fresh: &HashMap<DocumentKey, Arc<Document>>,
        now: u64,
    ) -> [u8; 32] {
        let key = keys.iter().find(|key| carries_root(key));
        // A refused document must not choose the root under which the others are compared.
        let fit = |document: &&Arc<Document>| {
            self.check_document(document, &comparison_root(document, &[0; 32]), now).is_ok()
        };
        let document = key.and_then(|key| {
            let held = || self.lock_state().documents.get(key).cloned();
            fresh.get(key).filter(fit).cloned().or_else(held)
        });
        document.and_then(|document| document.root_digest()).unwrap_or_default()
    }

    fn forget_unused(&self) {
        let mut state = self.lock_state();
        if state.documents.len() <= DOCUMENTS_MAX {
            return;
        }
        let used: HashSet<DocumentKey> = self
            .sets
            .to_vec()
            .iter()
            .flat_map(|set| set.keys().cloned().collect::<Vec<_>>())
            .collect();
        state.documents.retain(|key, _| used.contains(key));
    }

    /// Writes to the store. On failure the documents stay in memory and the error is logged.
    async fn write_store(
        &self,
        work: impl FnOnce(&Store) -> Vec<CollateralError> + Send + 'static,
    ) {
        let Some(store) = self.store.clone() else { return };
        let failures = spawn_blocking(move || work(&store)).await.unwrap_or_default();
        add_to_counter(&self.counters.store_failures, failures.len() as u64);
        if let Some(error) = failures.first() {
            tracing::warn!(%error, count = failures.len(), "the store could not be written");
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, CacheState> {
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
        let wait = match error.is_not_found() {
            true => UNKNOWN_WAIT,
            false => back_off(FAILED_FIRST, FAILED_MAX, count),
        };
        self.failures.insert(platform, PlatformFailure { error, count, until: now + wait });
    }

    /// Takes one of the slots for new platforms, which are refilled with time (a token bucket).
    fn take_new_platform_slot(&mut self) -> bool {
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

/// Whether the document is the one whose chain has the root of its set.
fn carries_root(key: &DocumentKey) -> bool {
    matches!(key, DocumentKey::TcbInfo { .. } | DocumentKey::AmdChain { .. })
}

/// The root under which a document is compared: its own if it has one, otherwise `root`.
fn comparison_root(document: &Document, root: &[u8; 32]) -> [u8; 32] {
    if carries_root(&document.key) { document.root_digest().unwrap_or_default() } else { *root }
}

fn is_from_service(client: &Client, document: &Document) -> bool {
    client.services().base_for(&document.key).is_ok_and(|base| base.url() == document.service)
}

fn not_at_hand_error(platform: &Platform) -> CollateralError {
    CollateralError::NotAtHand { subject: platform.to_string() }
}

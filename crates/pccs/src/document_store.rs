//! Documents in a database, which are fetched if they are missing or old.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use confide_collateral::TcbEvaluation;
use confide_http::SingleFlight;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    database::{Database, DatabaseError, WriteOutcome},
    document::Document,
    intake,
    kind::DocumentKind,
    limits::PccsLimits,
    metrics::Metrics,
    request::DocumentRequest,
    upstream::{Upstream, UpstreamError},
};

/// A database of documents and the upstream from which missing and old ones are fetched.
pub struct DocumentStore {
    database: Arc<dyn Database>,
    upstream: Option<Arc<dyn Upstream>>,
    flights: Arc<SingleFlight<(DocumentKind, String), FetchResult>>,
    resting: Mutex<HashMap<(DocumentKind, String), FailedFetch>>,
    fetches: Semaphore,
}

/// The result of a fetch: a document, or `None` if the vendor has none.
type FetchResult = Result<Option<Document>, UpstreamError>;

/// A failed fetch, which is not repeated for [`PccsLimits::retry_after`].
#[derive(Clone, Copy)]
struct FailedFetch {
    since: Instant,
    /// Whether the vendor answered that it has no such document.
    unknown: bool,
}

/// A document, and how fresh it is.
pub(crate) struct StoredDocument {
    pub(crate) document: Document,
    pub(crate) freshness: Freshness,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// The document is old, and is being fetched again in the background.
    Aged,
    /// The document's next edition is overdue and could not be fetched.
    Overdue,
}

/// The reason for which no document was found.
#[derive(Debug)]
pub(crate) enum LookupError {
    NotFound,
    Upstream(UpstreamError),
    Database(DatabaseError),
}

impl DocumentStore {
    /// Serves from `database`, and fetches missing documents from `upstream`, if there is one.
    pub fn new(
        database: Arc<dyn Database>,
        upstream: Option<Arc<dyn Upstream>>,
        limits: &PccsLimits,
    ) -> Self {
        Self {
            database,
            upstream,
            flights: SingleFlight::new(),
            resting: Mutex::default(),
            fetches: Semaphore::new(limits.fetches),
        }
    }

    pub(crate) fn database(&self) -> &dyn Database {
        &*self.database
    }
}

/// The store and the settings that a request needs to find a document.
#[derive(Clone)]
pub(crate) struct DocumentLookup {
    pub(crate) kept: Arc<DocumentStore>,
    pub(crate) limits: Arc<PccsLimits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: fn() -> u64,
}

impl DocumentLookup {
    pub(crate) async fn find(
        &self,
        wanted: &DocumentRequest,
    ) -> Result<StoredDocument, LookupError> {
        let now = (self.clock)();
        let Some(document) = self.read_or_substitute(wanted).await? else {
            let fetched = self.fetch_shared(wanted).await.map_err(LookupError::Upstream)?;
            let document = fetched.ok_or(LookupError::NotFound)?;
            return Ok(StoredDocument { document, freshness: Freshness::Fresh });
        };
        let overdue = document.dates.is_overdue(now);
        let aged = self.is_aged(&document, now);
        if self.kept.upstream.is_none() || !(overdue || aged) {
            let freshness = if overdue { Freshness::Overdue } else { Freshness::Fresh };
            return Ok(StoredDocument { document, freshness });
        }
        if !overdue {
            // Many requests while the vendor is slow start only one background task.
            if !self.is_in_flight_or_failed(wanted) {
                let (lookup, wanted) = (self.clone(), wanted.clone());
                tokio::spawn(async move { lookup.refresh(&wanted).await });
            }
            return Ok(StoredDocument { document, freshness: Freshness::Aged });
        }
        // If the stored document is overdue, the request waits for a newer one. On failure the
        // overdue one is served: the relying party checks the dates.
        match self.fetch_shared(wanted).await {
            Ok(Some(newer)) if !newer.dates.is_before(&document.dates, document.kind) => {
                let overdue = newer.dates.is_overdue(now);
                let freshness = if overdue { Freshness::Overdue } else { Freshness::Fresh };
                Ok(StoredDocument { document: newer, freshness })
            }
            _ => Ok(StoredDocument { document, freshness: Freshness::Overdue }),
        }
    }

    fn is_aged(&self, document: &Document, now: u64) -> bool {
        // A document that was fetched later than now shows that the clock went back.
        let age = now.checked_sub(document.fetched_at);
        document.kind.is_reissued() && age.is_none_or(|age| age >= self.limits.refresh_after_s)
    }

    /// Fetches again the documents that were fetched longest ago; called at intervals.
    pub(crate) async fn refresh_due_documents(&self) {
        let before = (self.clock)().saturating_sub(self.limits.refresh_after_s);
        let due = match self.kept.database.list_due(before, self.limits.refresh_batch).await {
            Ok(due) => due,
            Err(error) => {
                self.metrics.database_errors.inc();
                tracing::warn!(%error, "cannot list the documents to fetch again");
                return;
            }
        };
        for (kind, key) in due {
            if let Some(wanted) = DocumentRequest::from_stored_key(kind, &key) {
                self.refresh(&wanted).await;
            }
        }
    }

    pub(crate) fn has_upstream(&self) -> bool {
        self.kept.upstream.is_some()
    }

    async fn refresh(&self, wanted: &DocumentRequest) {
        if let Err(error) = self.fetch_shared(wanted).await {
            let (kind, key) = (wanted.kind().name(), wanted.key());
            tracing::warn!(%error, kind, key, "cannot refresh a stored document");
        }
    }

    async fn read_or_substitute(
        &self,
        wanted: &DocumentRequest,
    ) -> Result<Option<Document>, LookupError> {
        let exact = self.read_exact(wanted).await?;
        // If there is an upstream, it decides which set is the early one.
        let by_number = matches!(wanted.evaluation(), Some(TcbEvaluation::Number(_)));
        if exact.is_some() || (self.has_upstream() && !by_number) {
            return Ok(exact);
        }
        for other in wanted.alternatives() {
            if let Some(document) =
                self.read_exact(&other).await?.filter(|it| can_stand_in(wanted, it))
            {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    async fn read_exact(&self, wanted: &DocumentRequest) -> Result<Option<Document>, LookupError> {
        let read = self.kept.database.read(wanted.kind(), &wanted.key()).await;
        read.map_err(|error| {
            self.metrics.database_errors.inc();
            LookupError::Database(error)
        })
    }

    /// Fetches and stores a document; simultaneous requests for the same document share one fetch,
    /// which continues if the request that started it is dropped.
    async fn fetch_shared(&self, wanted: &DocumentRequest) -> FetchResult {
        let Some(upstream) = self.kept.upstream.clone() else { return Ok(None) };
        let place = (wanted.kind(), wanted.key());
        let (lookup, wanted, key) = (self.clone(), wanted.clone(), place.clone());
        let work = move || async move {
            let fetched = lookup.fetch_and_store(&*upstream, &wanted).await;
            lookup.note_failure(key, &fetched);
            fetched
        };
        let admit = |running| self.admit_fetch(&place, running);
        match self.kept.flights.start_if_admitted(&Handle::current(), &place, admit, work) {
            Ok(flight) => {
                let lost = || UpstreamError::Failed("the fetch was aborted".into());
                flight.outcome().await.unwrap_or_else(|| Err(lost()))
            }
            Err(instead) => instead,
        }
    }

    /// Allows a new fetch while `running` others are under way; the error is the result instead.
    fn admit_fetch(
        &self,
        place: &(DocumentKind, String),
        running: usize,
    ) -> Result<(), FetchResult> {
        match self.recent_failure(place) {
            Some(FailedFetch { unknown: true, .. }) => Err(Ok(None)),
            Some(_) => {
                let retry_after_s = self.limits.retry_after.as_secs().max(1);
                Err(Err(UpstreamError::RecentFailure { retry_after_s }))
            }
            None if running >= self.limits.fetches_waiting => Err(Err(UpstreamError::Busy)),
            None => Ok(()),
        }
    }

    fn recent_failure(&self, place: &(DocumentKind, String)) -> Option<FailedFetch> {
        let resting = lock(&self.kept.resting).get(place).copied();
        resting.filter(|it| it.since.elapsed() < self.limits.retry_after)
    }

    fn is_in_flight_or_failed(&self, wanted: &DocumentRequest) -> bool {
        let place = (wanted.kind(), wanted.key());
        self.recent_failure(&place).is_some() || self.kept.flights.is_running(&place)
    }

    /// Records a document whose fetch failed, which the vendor does not have, or which it sent
    /// although it is overdue, so that it is not fetched again at once. Called before the flight
    /// ends, so that no new flight starts between a failure and its record.
    fn note_failure(&self, place: (DocumentKind, String), fetched: &FetchResult) {
        let mut resting = lock(&self.kept.resting);
        resting.retain(|_, it| it.since.elapsed() < self.limits.retry_after);
        let unknown = match fetched {
            Ok(Some(document)) if !document.dates.is_overdue((self.clock)()) => {
                resting.remove(&place);
                return;
            }
            other => matches!(other, Ok(None)),
        };
        if resting.len() < self.limits.fetches_waiting {
            resting.insert(place, FailedFetch { since: Instant::now(), unknown });
        }
    }

    async fn fetch_and_store(
        &self,
        upstream: &dyn Upstream,
        wanted: &DocumentRequest,
    ) -> FetchResult {
        let Ok(_place) = self.kept.fetches.acquire().await else { return Err(UpstreamError::Busy) };
        let now = (self.clock)();
        // A flight may have ended after this request read the database.
        if let Some(document) = self.find_up_to_date(wanted, now).await {
            return Ok(Some(document));
        }
        let fetching =
            tokio::time::timeout(self.limits.answer_wait, upstream.fetch(wanted.clone(), now));
        let fetched = match fetching.await {
            Ok(fetched) => fetched,
            Err(_) => Err(UpstreamError::Failed("the fetch took too long".into())),
        };
        let checked = fetched.and_then(|fetched| {
            let Some(document) = fetched else { return Ok(None) };
            intake::check_fetched_document(wanted, &document, now, self.limits.clock_skew_s)
                .map_err(|error| UpstreamError::Unusable(error.to_string()))?;
            Ok(Some(document))
        });
        match checked {
            Ok(Some(document)) => {
                self.metrics.fetched.inc();
                self.store_fetched(document).await
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.metrics.fetches_failed.inc();
                Err(error)
            }
        }
    }

    /// Returns the stored document, if it is neither overdue nor old.
    async fn find_up_to_date(&self, wanted: &DocumentRequest, now: u64) -> Option<Document> {
        let kept = self.read_exact(wanted).await.ok().flatten()?;
        (!kept.dates.is_overdue(now) && !self.is_aged(&kept, now)).then_some(kept)
    }

    async fn store_fetched(&self, document: Document) -> FetchResult {
        let (kind, key, got) = (document.kind.name(), document.key.clone(), document.dates);
        if self.is_full_for(&document).await {
            tracing::warn!(kind, key, "the database is full: a fetched document is not stored");
            return Ok(Some(document));
        }
        match self.kept.database.write(document.clone()).await {
            Ok(WriteOutcome::Stored) => Ok(Some(document)),
            Ok(WriteOutcome::Older { kept }) => {
                self.metrics.rollbacks_refused.inc();
                tracing::warn!(kind, key, ?kept, ?got, "rollback refused");
                let error = format!("rollback: stored is {kept:?}, got {got:?}");
                Err(UpstreamError::Unusable(error))
            }
            Err(error) => {
                // It can still be served; `find` compares it with the stored document.
                self.metrics.database_errors.inc();
                tracing::warn!(%error, kind, key, "cannot store a fetched document");
                Ok(Some(document))
            }
        }
    }

    /// Whether the database is full for a new document. Clients can name any chips and versions,
    /// which must not fill the disk.
    async fn is_full_for(&self, document: &Document) -> bool {
        let database = &self.kept.database;
        let full = database.count().await.is_ok_and(|count| count >= self.limits.documents);
        full && matches!(database.read(document.kind, &document.key).await, Ok(None))
    }
}

/// Whether a document of another set may answer: a request by number accepts only that number.
pub(crate) fn can_stand_in(wanted: &DocumentRequest, document: &Document) -> bool {
    match wanted.evaluation() {
        Some(TcbEvaluation::Number(number)) => document.dates.number == u64::from(number),
        _ => true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic cannot leave the maps in an inconsistent state.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

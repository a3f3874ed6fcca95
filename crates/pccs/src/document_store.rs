//! Documents in a database, fetched where they are missing or have aged.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use confide_collateral::Evaluation;
use confide_http::SingleFlight;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    database::{Database, DatabaseError, WriteOutcome},
    document::Document,
    intake,
    kind::Kind,
    limits::PccsLimits,
    metrics::Metrics,
    request::DocumentRequest,
    upstream::{Upstream, UpstreamError},
};

/// The documents of a fleet.
pub struct DocumentStore {
    database: Arc<dyn Database>,
    upstream: Option<Arc<dyn Upstream>>,
    flights: Arc<SingleFlight<(Kind, String), Fetched>>,
    resting: Mutex<HashMap<(Kind, String), FailedFetch>>,
    fetches: Semaphore,
}

/// The outcome of a fetch: a document, or none where the vendor has none.
type Fetched = Result<Option<Document>, UpstreamError>;

/// A failed fetch, which is not tried again for a moment.
#[derive(Clone, Copy)]
struct FailedFetch {
    since: Instant,
    /// The vendor said that it has none.
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
    /// It is being fetched again meanwhile.
    Aged,
    /// Its next edition is overdue and could not be had.
    Overdue,
}

/// The reason for which no document was found.
#[derive(Debug)]
pub(crate) enum LookupError {
    Nowhere,
    Upstream(UpstreamError),
    Database(DatabaseError),
}

impl DocumentStore {
    /// Serves from `database`; documents that it lacks come from `upstream`, where there is one.
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

/// The look-up of one request: the store and everything else that it needs.
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
        let Some(document) = self.read(wanted).await? else {
            let fetched = self.fetch(wanted).await.map_err(LookupError::Upstream)?;
            let document = fetched.ok_or(LookupError::Nowhere)?;
            return Ok(StoredDocument { document, freshness: Freshness::Fresh });
        };
        let overdue = document.dates.is_over(now);
        let aged = self.is_aged(&document, now);
        if self.kept.upstream.is_none() || !(overdue || aged) {
            let freshness = if overdue { Freshness::Overdue } else { Freshness::Fresh };
            return Ok(StoredDocument { document, freshness });
        }
        if !overdue {
            // At most one refresh runs, however many requests arrive while the vendor is slow.
            if !self.is_in_flight(wanted) {
                let (lookup, wanted) = (self.clone(), wanted.clone());
                tokio::spawn(async move { lookup.refresh(&wanted).await });
            }
            return Ok(StoredDocument { document, freshness: Freshness::Aged });
        }
        // It is worth waiting for a document that has ended. The relying party judges the dates in
        // any case.
        match self.fetch(wanted).await {
            Ok(Some(newer)) if !newer.dates.is_before(&document.dates, document.kind) => {
                let overdue = newer.dates.is_over(now);
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

    /// Fetches the documents again that were fetched longest ago; called at intervals.
    pub(crate) async fn refresh_due(&self) {
        let before = (self.clock)().saturating_sub(self.limits.refresh_after_s);
        let due = match self.kept.database.due(before, self.limits.refresh_batch).await {
            Ok(due) => due,
            Err(error) => {
                self.metrics.database_errors.inc();
                tracing::warn!(%error, "cannot look for documents to fetch anew");
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
        if let Err(error) = self.fetch(wanted).await {
            let (kind, key) = (wanted.kind().name(), wanted.key());
            tracing::warn!(%error, kind, key, "the kept document stays");
        }
    }

    async fn read(&self, wanted: &DocumentRequest) -> Result<Option<Document>, LookupError> {
        let exact = self.read_one(wanted).await?;
        // An upstream knows better than a stand-in which set is the early one.
        let by_number = matches!(wanted.set(), Some(Evaluation::Number(_)));
        if exact.is_some() || (self.has_upstream() && !by_number) {
            return Ok(exact);
        }
        for other in wanted.alternatives() {
            if let Some(document) =
                self.read_one(&other).await?.filter(|it| can_stand_in(wanted, it))
            {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    async fn read_one(&self, wanted: &DocumentRequest) -> Result<Option<Document>, LookupError> {
        let read = self.kept.database.read(wanted.kind(), &wanted.key()).await;
        read.map_err(|error| {
            self.metrics.database_errors.inc();
            LookupError::Database(error)
        })
    }

    /// Fetches and keeps a document; of many requests for the same document one fetches it. The
    /// fetch goes on when the request that started it is dropped.
    async fn fetch(&self, wanted: &DocumentRequest) -> Fetched {
        let Some(upstream) = self.kept.upstream.clone() else { return Ok(None) };
        let place = (wanted.kind(), wanted.key());
        let (lookup, wanted, key) = (self.clone(), wanted.clone(), place.clone());
        let work = move || async move {
            let fetched = lookup.fetch_and_keep(&*upstream, &wanted).await;
            lookup.note_failure(key, &fetched);
            fetched
        };
        let admit = |running| self.admit_fetch(&place, running);
        match self.kept.flights.start_if(&Handle::current(), &place, admit, work) {
            Ok(flight) => {
                let lost = || UpstreamError::Failed("the fetch was broken off".into());
                flight.outcome().await.unwrap_or_else(|| Err(lost()))
            }
            Err(instead) => instead,
        }
    }

    /// Whether a fetch begins while `running` others go on; the error is its outcome instead.
    fn admit_fetch(&self, place: &(Kind, String), running: usize) -> Result<(), Fetched> {
        match self.recent_failure(place) {
            Some(FailedFetch { unknown: true, .. }) => Err(Ok(None)),
            Some(_) => {
                let retry_after_s = self.limits.retry_after.as_secs().max(1);
                Err(Err(UpstreamError::Resting { retry_after_s }))
            }
            None if running >= self.limits.fetches_waiting => Err(Err(UpstreamError::Busy)),
            None => Ok(()),
        }
    }

    fn recent_failure(&self, place: &(Kind, String)) -> Option<FailedFetch> {
        let resting = lock(&self.kept.resting).get(place).copied();
        resting.filter(|it| it.since.elapsed() < self.limits.retry_after)
    }

    fn is_in_flight(&self, wanted: &DocumentRequest) -> bool {
        let place = (wanted.kind(), wanted.key());
        self.recent_failure(&place).is_some() || self.kept.flights.is_running(&place)
    }

    /// Remembers documents whose fetch failed, which the vendor does not have, or which it still
    /// gives although they are overdue: they are not fetched again at once. Called before the
    /// flight ends, so that no new flight starts between a failure and this note.
    fn note_failure(&self, place: (Kind, String), fetched: &Fetched) {
        let mut resting = lock(&self.kept.resting);
        resting.retain(|_, it| it.since.elapsed() < self.limits.retry_after);
        let unknown = match fetched {
            Ok(Some(document)) if !document.dates.is_over((self.clock)()) => {
                resting.remove(&place);
                return;
            }
            other => matches!(other, Ok(None)),
        };
        if resting.len() < self.limits.fetches_waiting {
            resting.insert(place, FailedFetch { since: Instant::now(), unknown });
        }
    }

    async fn fetch_and_keep(&self, upstream: &dyn Upstream, wanted: &DocumentRequest) -> Fetched {
        let Ok(_place) = self.kept.fetches.acquire().await else { return Err(UpstreamError::Busy) };
        let now = (self.clock)();
        // The request may have looked just before the last flight ended.
        if let Some(document) = self.up_to_date(wanted, now).await {
            return Ok(Some(document));
        }
        let fetching =
            tokio::time::timeout(self.limits.answer_wait, upstream.fetch(wanted.clone(), now));
        let fetched = match fetching.await {
            Ok(fetched) => fetched,
            Err(_) => Err(UpstreamError::Failed("it took too long".into())),
        };
        let checked = fetched.and_then(|fetched| {
            let Some(document) = fetched else { return Ok(None) };
            intake::check(wanted, &document, now, self.limits.clock_skew_s)
                .map_err(|error| UpstreamError::Unfit(error.to_string()))?;
            Ok(Some(document))
        });
        match checked {
            Ok(Some(document)) => {
                self.metrics.fetched.inc();
                self.keep(document).await
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.metrics.fetches_failed.inc();
                Err(error)
            }
        }
    }

    /// The kept document, where no newer one is to be expected.
    async fn up_to_date(&self, wanted: &DocumentRequest, now: u64) -> Option<Document> {
        let kept = self.read_one(wanted).await.ok().flatten()?;
        (!kept.dates.is_over(now) && !self.is_aged(&kept, now)).then_some(kept)
    }

    async fn keep(&self, document: Document) -> Fetched {
        let (kind, key, got) = (document.kind.name(), document.key.clone(), document.dates);
        if self.is_full_for(&document).await {
            tracing::warn!(kind, key, "the database is full: a fetched document is not kept");
            return Ok(Some(document));
        }
        match self.kept.database.write(document.clone()).await {
            Ok(WriteOutcome::Stored) => Ok(Some(document)),
            Ok(WriteOutcome::Older { kept }) => {
                self.metrics.rollbacks_refused.inc();
                tracing::warn!(kind, key, ?kept, ?got, "rollback refused: the vendor went back");
                let error = format!("rollback: kept is {kept:?}, got {got:?}");
                Err(UpstreamError::Unfit(error))
            }
            Err(error) => {
                // It can be served though it cannot be kept; `find` compares it with the kept
                // document.
                self.metrics.database_errors.inc();
                tracing::warn!(%error, kind, key, "cannot keep a fetched document");
                Ok(Some(document))
            }
        }
    }

    /// Whether the database is full for a new document. Clients name chips and versions: what they
    /// name must not fill the disk.
    async fn is_full_for(&self, document: &Document) -> bool {
        let database = &self.kept.database;
        let full = database.count().await.is_ok_and(|count| count >= self.limits.documents);
        full && matches!(database.read(document.kind, &document.key).await, Ok(None))
    }
}

/// Whether a document of another set may answer: for a request by number, only one with that
/// number.
pub(crate) fn can_stand_in(wanted: &DocumentRequest, document: &Document) -> bool {
    match wanted.set() {
        Some(Evaluation::Number(number)) => document.dates.number == u64::from(number),
        _ => true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The maps hold values that are whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

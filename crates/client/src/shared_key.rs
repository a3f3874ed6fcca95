//! The key of the gateway behind a proxy: fetched once for all requests that need it, used while it
//! is recent, and not fetched again at once after a failure.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_encrypted_body::BodyPublicKey;
use confide_http::SingleFlight;
use serde_json::Value;
use tokio::{runtime::Handle, time::Instant};

use crate::error::ClientError;

/// The longest time from the beginning of a fetch to a judged key, so that a silent proxy does not
/// collect waiting requests. It covers a full queue of reports at a busy gateway, several times.
const FETCH_DEADLINE: Duration = Duration::from_secs(30);
/// The time for which a failure answers all requests, without another fetch.
const FAILURE_AGE_MAX: Duration = Duration::from_secs(2);

/// A key of a gateway whose evidence was accepted.
#[derive(Clone, Debug)]
pub struct JudgedKey {
    /// The key.
    pub key: BodyPublicKey,
    /// Unix seconds after which it is not used.
    pub not_after: u64,
    /// The verification document: the checks of the report, for people and programs.
    pub verification: Value,
}

/// The reason why there is no key. All requests that wait for it get the same.
#[derive(Clone, Debug)]
pub(crate) enum KeyFailure {
    /// There is a report, and it is refused, or the gateway makes none.
    Refused { reason: String },
    /// No report could be fetched.
    Unavailable { reason: String },
}

impl KeyFailure {
    pub(crate) fn into_error(self) -> ClientError {
        match self {
            Self::Refused { reason } => ClientError::Report { reason },
            Self::Unavailable { reason } => ClientError::ReportUnavailable { reason },
        }
    }
}

type FetchResult = Result<Arc<JudgedKey>, KeyFailure>;

/// Fetches and judges a report.
pub(crate) type KeyFetch = Box<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<JudgedKey, KeyFailure>> + Send>> + Send + Sync,
>;

/// The key that all requests share.
pub(crate) struct SharedKey {
    fetch: KeyFetch,
    clock: fn() -> u64,
    age_max: Duration,
    /// The outcome of the last fetch, and when that began (a key) or ended (a failure).
    last: Mutex<Option<(FetchResult, Instant)>>,
    fetches: Arc<SingleFlight<(), FetchResult>>,
}

impl SharedKey {
    /// A key that is fetched when it is needed, and again when it is older than `age_max`. `clock`
    /// returns Unix seconds.
    pub(crate) fn new(fetch: KeyFetch, age_max: Duration, clock: fn() -> u64) -> Arc<Self> {
        let (last, fetches) = (Mutex::default(), SingleFlight::new());
        Arc::new(Self { fetch, clock, age_max, last, fetches })
    }

    /// The key, which is fetched unless the last one is recent.
    ///
    /// # Errors
    /// [`KeyFailure`] of this fetch, or of one that failed in the last seconds.
    pub(crate) async fn find(self: &Arc<Self>) -> FetchResult {
        if let Some(known) = self.recall() {
            return known;
        }
        let shared = self.clone();
        let fetch = || async move { shared.fetch_unless_known().await };
        let fetching = self.fetches.start(&Handle::current(), &(), fetch);
        fetching.outcome().await.unwrap_or_else(|| {
            Err(KeyFailure::Unavailable { reason: "the fetch of the report broke off".into() })
        })
    }

    /// Forgets a key that the gateway no longer has, unless another one is known by now. Returns whether
    /// it was forgotten.
    pub(crate) fn forget(&self, used: &Arc<JudgedKey>) -> bool {
        let is_used = |known: &FetchResult| matches!(known, Ok(key) if Arc::ptr_eq(key, used));
        self.lock_last().take_if(|(known, _)| is_used(known)).is_some()
    }

    /// The last outcome, while it may be used.
    fn recall(&self) -> Option<FetchResult> {
        let last = self.lock_last();
        let (outcome, since) = last.as_ref()?;
        let is_usable = match outcome {
            Ok(key) => since.elapsed() < self.age_max && (self.clock)() <= key.not_after,
            Err(_) => since.elapsed() < FAILURE_AGE_MAX,
        };
        is_usable.then(|| outcome.clone())
    }

    async fn fetch_unless_known(&self) -> FetchResult {
        // An earlier fetch may have ended between the look at its outcome and the start of this
        // one.
        if let Some(known) = self.recall() {
            return known;
        }
        let began = Instant::now();
        let fetched = tokio::time::timeout(FETCH_DEADLINE, (self.fetch)()).await;
        let outcome = match fetched {
            Ok(fetched) => fetched.map(Arc::new),
            Err(_) => {
                let reason = format!("none came within {FETCH_DEADLINE:?}");
                Err(KeyFailure::Unavailable { reason })
            }
        };
        let since = if outcome.is_ok() { began } else { Instant::now() };
        *self.lock_last() = Some((outcome.clone(), since));
        outcome
    }

    fn lock_last(&self) -> MutexGuard<'_, Option<(FetchResult, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use confide_encrypted_body::BodyKem;

    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(900);

    fn make_key(not_after: u64) -> JudgedKey {
        let key = BodyPublicKey::from_bytes(BodyKem::X25519, &[9; 32]).unwrap();
        JudgedKey { key, not_after, verification: Value::Null }
    }

    /// A shared key whose fetches are counted and give `outcome`; `None` never comes.
    fn share(outcome: Option<Result<JudgedKey, KeyFailure>>) -> (Arc<SharedKey>, Arc<AtomicU32>) {
        let fetches = Arc::<AtomicU32>::default();
        let count = fetches.clone();
        let fetch: KeyFetch = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let outcome = outcome.clone();
            Box::pin(async move {
                match outcome {
                    Some(outcome) => {
                        tokio::task::yield_now().await;
                        outcome
                    }
                    None => std::future::pending().await,
                }
            })
        });
        (SharedKey::new(fetch, AGE_MAX, || 100), fetches)
    }

    async fn find_at_once(shared: &Arc<SharedKey>, count: usize) -> Vec<FetchResult> {
        let requests: Vec<_> = (0..count)
            .map(|_| {
                let shared = shared.clone();
                tokio::spawn(async move { shared.find().await })
            })
            .collect();
        let mut found = Vec::new();
        for request in requests {
            found.push(request.await.unwrap());
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_come_together_fetch_one_key_and_use_it_while_it_is_recent() {
        let (shared, fetches) = share(Some(Ok(make_key(100))));
        let found = find_at_once(&shared, 20).await;
        assert!(found.iter().all(Result::is_ok));
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        tokio::time::advance(AGE_MAX).await;
        let next = shared.find().await.unwrap();
        assert_eq!(fetches.load(Ordering::SeqCst), 2, "the first one is too old");
        // Only the key in use is forgotten.
        assert!(!shared.forget(found[0].as_ref().unwrap()));
        shared.find().await.unwrap();
        assert_eq!(fetches.load(Ordering::SeqCst), 2);
        assert!(shared.forget(&next) && !shared.forget(&next));
        shared.find().await.unwrap();
        assert_eq!(fetches.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn an_expired_key_is_not_used() {
        static NOW: AtomicU64 = AtomicU64::new(100);
        let fetch: KeyFetch = Box::new(|| Box::pin(async { Ok(make_key(100)) }));
        let shared = SharedKey::new(fetch, AGE_MAX, || NOW.load(Ordering::SeqCst));
        let first = shared.find().await.unwrap();
        assert!(Arc::ptr_eq(&first, &shared.find().await.unwrap()));
        NOW.store(101, Ordering::SeqCst);
        assert!(!Arc::ptr_eq(&first, &shared.find().await.unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_proxy_holds_requests_for_one_deadline_and_the_next_ones_not_at_all() {
        let (shared, fetches) = share(None);
        let began = Instant::now();
        for failure in find_at_once(&shared, 20).await {
            assert!(matches!(failure, Err(KeyFailure::Unavailable { .. })), "{failure:?}");
        }
        let waited = began.elapsed();
        assert!(waited >= FETCH_DEADLINE && waited < 2 * FETCH_DEADLINE, "{waited:?}");
        let failed = Instant::now();
        assert!(find_at_once(&shared, 20).await.iter().all(Result::is_err));
        assert_eq!(failed.elapsed(), Duration::ZERO);
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        tokio::time::advance(FAILURE_AGE_MAX).await;
        assert!(shared.find().await.is_err());
        assert_eq!(fetches.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_the_same_for_all_who_wait() {
        let (shared, fetches) = share(Some(Err(KeyFailure::Refused { reason: "no".into() })));
        for refused in find_at_once(&shared, 3).await {
            let error = refused.unwrap_err().into_error();
            assert_eq!(error.failed_check(), Some("report"), "{error}");
        }
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
    }
}

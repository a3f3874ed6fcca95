//! Decides which requests are served: API keys, their routes, models and limits; and counts what
//! they use.

use std::{
    convert::Infallible,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use confide_http::Peer;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use crate::{
    api_key::{ApiKeyDigest, take_api_key},
    authorization_hook::{AuthorizationHook, Question},
    guess_limit::GuessLimiter,
    key_account::{AccountTable, ExceededLimit, KeyAccount, LimitRefusal},
    key_file::{KeyEntry, KeySet},
    rate_limit::RateLimitFields,
    trusted_file::TrustedFileError,
    upstream_key::UpstreamKey,
    usage::{UsageCounts, UsageLedger},
    usage_file::UsageFile,
    usage_scanner::AnswerUsage,
};

/// The time between two batches of lines in the usage file.
const USAGE_INTERVAL: Duration = Duration::from_secs(60);

/// Authorises requests by API key and counts their usage.
#[derive(Debug)]
pub struct Authorizer {
    source: KeySource,
    accounts: AccountTable,
    guesses: GuessLimiter,
    ledger: UsageLedger,
    upstream_key: Option<UpstreamKey>,
    /// The lock is held from taking counts to their last line, so that batches do not mix.
    usage_file: Option<Mutex<UsageFile>>,
    clock: fn() -> u64,
}

#[derive(Debug)]
enum KeySource {
    File(RwLock<Arc<KeySet>>),
    Hook(AuthorizationHook),
}

/// The properties of a request that decide whether a key may send it.
#[derive(Clone, Copy, Debug)]
pub struct RequestTerms<'a> {
    /// The method.
    pub method: &'a Method,
    /// The normalised path.
    pub path: &'a str,
    /// The path of the route that matches, in which `*` stands for identifiers.
    pub route: &'a str,
}

/// The reason why a request is not authorised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// There is no key, or it is unknown or has expired: the client does not learn which.
    InvalidKey,
    /// The request has more than one key.
    SeveralKeys,
    /// The client's network has sent too many wrong keys.
    TooManyInvalidKeys {
        /// The time after which keys are looked up again.
        retry_after: Duration,
    },
    /// The key may not use this route.
    Route,
    /// The key may not use this model.
    Model,
    /// A limit of the key is reached.
    Limit(LimitRefusal),
    /// The authorization hook gave no answer.
    Unavailable,
}

impl KeyRefusal {
    /// The status, the code for programs and the text for people.
    pub(crate) fn to_status_and_message(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::InvalidKey => (
                StatusCode::UNAUTHORIZED,
                "invalid_api_key",
                "wanted a valid API key in the field `Authorization: Bearer KEY` or `x-api-key`",
            ),
            Self::SeveralKeys => (
                StatusCode::BAD_REQUEST,
                "several_api_keys",
                "wanted one API key, in one field `Authorization` or `x-api-key`",
            ),
            Self::TooManyInvalidKeys { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_invalid_api_keys",
                "this network has sent too many invalid API keys",
            ),
            Self::Route => (
                StatusCode::FORBIDDEN,
                "route_not_allowed_for_key",
                "this API key may not use this path with this method",
            ),
            Self::Model => (
                StatusCode::NOT_FOUND,
                "model_not_found",
                "the model does not exist, or this API key may not use it",
            ),
            Self::Limit(LimitRefusal { limit, .. }) => {
                let message = match limit {
                    ExceededLimit::RequestsPerMinute => "this API key has no requests left for now",
                    ExceededLimit::TokensPerMinute => "this API key has no tokens left for now",
                    ExceededLimit::TokensPerDay => "this API key has no tokens left for today",
                    ExceededLimit::Concurrent => "this API key has too many running requests",
                };
                (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
            }
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "authorization_unavailable",
                "API keys cannot be checked at the moment",
            ),
        }
    }

    /// The time after which the request may be sent again.
    pub(crate) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::TooManyInvalidKeys { retry_after }
            | Self::Limit(LimitRefusal { retry_after, .. }) => Some(retry_after),
            Self::Unavailable => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl Authorizer {
    /// Authorises the keys of a set. `clock` returns Unix seconds.
    pub fn with_keys(keys: KeySet, clock: fn() -> u64) -> Self {
        Self::new(KeySource::File(RwLock::new(Arc::new(keys))), clock)
    }

    /// Authorises the keys that a service allows. `clock` returns Unix seconds.
    pub fn with_hook(hook: AuthorizationHook, clock: fn() -> u64) -> Self {
        Self::new(KeySource::Hook(hook), clock)
    }

    fn new(source: KeySource, clock: fn() -> u64) -> Self {
        Self {
            source,
            accounts: AccountTable::default(),
            guesses: GuessLimiter::default(),
            ledger: UsageLedger::default(),
            upstream_key: None,
            usage_file: None,
            clock,
        }
    }

    /// Returns the authorizer, which presents `key` to the model servers in place of the clients'
    /// keys.
    pub fn with_upstream_key(mut self, key: UpstreamKey) -> Self {
        self.upstream_key = Some(key);
        self
    }

    /// Returns the authorizer with a usage file, whose lines of this day count against the budgets.
    ///
    /// # Errors
    /// [`TrustedFileError`] if the file cannot be read or written, or others may write to it.
    pub fn with_usage_file(mut self, path: &Path) -> Result<Self, TrustedFileError> {
        let now = (self.clock)();
        let (file, spent) = UsageFile::open(path, now)?;
        for (name, tokens) in spent {
            if let Some(account) = self.accounts.find_or_open(&name.into(), now) {
                account.restore_spent(tokens, now);
            }
        }
        self.usage_file = Some(Mutex::new(file));
        Ok(self)
    }

    /// Replaces the keys of [`Authorizer::with_keys`]; running requests go on. A name that stays
    /// keeps what it has used, even with a new key. Returns whether there is a set of keys, and not
    /// a hook.
    pub fn replace_keys(&self, keys: KeySet) -> bool {
        match &self.source {
            KeySource::File(current) => {
                *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                true
            }
            KeySource::Hook(_) => false,
        }
    }

    /// Authorises a request by its key, which is removed from its fields together with
    /// `Accept-Encoding`: the tokens of an encoded answer could not be counted.
    ///
    /// # Errors
    /// [`KeyRefusal`] if the request may not be sent on.
    pub async fn authorize(
        self: &Arc<Self>,
        headers: &mut HeaderMap,
        peer: Peer,
        terms: &RequestTerms<'_>,
    ) -> Result<Grant, KeyRefusal> {
        let key = take_api_key(headers);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let digest = key.map_err(|_| KeyRefusal::SeveralKeys)?.ok_or(KeyRefusal::InvalidKey)?;
        let entry = self.find_entry(digest, peer, terms).await?;
        self.begin_request(entry, terms)
    }

    /// Inserts the key for the model servers, if there is one. Only authorised requests may get it.
    pub(crate) fn insert_upstream_key(&self, headers: &mut HeaderMap) {
        if let Some(key) = &self.upstream_key {
            key.insert_into(headers);
        }
    }

    /// Finds what is known of a key.
    async fn find_entry(
        &self,
        digest: ApiKeyDigest,
        peer: Peer,
        terms: &RequestTerms<'_>,
    ) -> Result<Arc<KeyEntry>, KeyRefusal> {
        let (hook, question) = match &self.source {
            KeySource::File(keys) => {
                let keys = keys.read().unwrap_or_else(PoisonError::into_inner).clone();
                let entry = keys.find(&digest).filter(|entry| entry.is_valid_at((self.clock)()));
                return entry.cloned().ok_or_else(|| self.refuse_wrong_key(peer));
            }
            KeySource::Hook(hook) => (hook, new_question(digest, terms)),
        };
        if let Some(entry) = hook.find_cached(&question) {
            return Ok(entry);
        }
        // Of a network with many wrong keys, only those that were valid before are asked about.
        if let Some(retry_after) = self.guesses.blocked_for(peer, Instant::now())
            && !hook.was_allowed(&question)
        {
            return Err(KeyRefusal::TooManyInvalidKeys { retry_after });
        }
        let answer = hook.ask(&question).await.map_err(|_| KeyRefusal::Unavailable)?;
        answer.ok_or_else(|| self.refuse_wrong_key(peer))
    }

    /// Counts a wrong key of a network. Valid keys of the network are still served, so that nobody
    /// can lock out others behind the same address.
    fn refuse_wrong_key(&self, peer: Peer) -> KeyRefusal {
        let now = Instant::now();
        match self.guesses.blocked_for(peer, now) {
            Some(retry_after) => KeyRefusal::TooManyInvalidKeys { retry_after },
            None => {
                self.guesses.record_wrong_key(peer, now);
                KeyRefusal::InvalidKey
            }
        }
    }

    /// Checks route and limits of a valid key, and counts the beginning of the request.
    fn begin_request(
        self: &Arc<Self>,
        entry: Arc<KeyEntry>,
        terms: &RequestTerms<'_>,
    ) -> Result<Grant, KeyRefusal> {
        if !entry.allows_route(terms.method, terms.path) {
            return Err(KeyRefusal::Route);
        }
        let unix_s = (self.clock)();
        let Some(account) = self.accounts.find_or_open(&entry.name, unix_s) else {
            tracing::error!("too many names of keys were used today");
            return Err(KeyRefusal::Unavailable);
        };
        let fields = account
            .begin_request(&entry.limits, Instant::now(), unix_s)
            .map_err(KeyRefusal::Limit)?;
        Ok(Grant {
            authorizer: self.clone(),
            account,
            key: entry,
            fields,
            is_generation: terms.method == Method::POST,
            is_failed: true,
            is_uncounted: false,
            usage: AnswerUsage::default(),
        })
    }

    /// Appends what was used to the usage file, if there is one; what cannot be written is kept for
    /// the next time. This blocks while it writes.
    pub fn write_usage(&self) {
        let Some(file) = &self.usage_file else { return };
        let file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = self.ledger.take_unwritten();
        if counts.is_empty() {
            return;
        }
        if let Err((error, rest)) = file.append(counts, (self.clock)()) {
            tracing::error!(%error, "the usage file cannot be written; the counts are kept");
            self.ledger.put_back_unwritten(rest);
        }
    }

    /// Appends to the usage file every minute.
    pub(crate) async fn write_usage_every_minute(self: Arc<Self>) -> Infallible {
        loop {
            tokio::time::sleep(USAGE_INTERVAL).await;
            let authorizer = self.clone();
            // A panic would be in the log; the next batch is tried all the same.
            let _ = tokio::task::spawn_blocking(move || authorizer.write_usage()).await;
        }
    }
}

impl Drop for Authorizer {
    /// Writes the usage of requests that were cut when the gateway stopped: each had a grant, which
    /// holds the authorizer.
    fn drop(&mut self) {
        self.write_usage();
    }
}

fn new_question(digest: ApiKeyDigest, terms: &RequestTerms<'_>) -> Question {
    Question { digest, method: terms.method.clone(), route: terms.route.to_owned() }
}

/// An authorised request. When it is dropped, at the end of the answer or of the attempt to get one,
/// its usage is counted.
pub struct Grant {
    authorizer: Arc<Authorizer>,
    account: Arc<KeyAccount>,
    key: Arc<KeyEntry>,
    fields: RateLimitFields,
    /// Whether the answer is a new one. The usage in a stored answer was counted when it was made.
    is_generation: bool,
    is_failed: bool,
    is_uncounted: bool,
    usage: AnswerUsage,
}

impl Grant {
    /// Whether the key may use some models only, so that [`Grant::check_model`] has to follow.
    pub(crate) fn limits_models(&self) -> bool {
        self.key.limits_models()
    }

    /// Whether the tokens of the answer are charged, if it has a status of success.
    pub(crate) fn is_generation(&self) -> bool {
        self.is_generation
    }

    /// Checks the model that a request names; `None` if it names none.
    ///
    /// # Errors
    /// [`KeyRefusal::Model`] if the key may not use the model, or the request has to name one.
    pub(crate) fn check_model(
        &self,
        method: &Method,
        model: Option<&str>,
    ) -> Result<(), KeyRefusal> {
        if self.key.allows_model(method, model) { Ok(()) } else { Err(KeyRefusal::Model) }
    }

    /// Reads the head of the answer, and adds the fields that describe the limits.
    pub(crate) fn read_answer_head(&mut self, status: StatusCode, headers: &mut HeaderMap) {
        self.is_failed = status.is_client_error() || status.is_server_error();
        self.fields.insert_into(headers);
    }

    /// Notes that the tokens of the answer cannot be counted.
    pub(crate) fn mark_uncounted(&mut self) {
        self.is_uncounted = true;
    }

    /// Notes that the answer broke off.
    pub(crate) fn mark_failed(&mut self) {
        self.is_failed = true;
    }

    /// Sets the tokens that are charged.
    pub(crate) fn set_usage(&mut self, usage: AnswerUsage) {
        self.usage = usage;
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("key", &self.key.name).finish_non_exhaustive()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let (authorizer, usage) = (&self.authorizer, &self.usage);
        let unix_s = (authorizer.clock)();
        self.account.end_request(usage.total_tokens(), unix_s);
        if authorizer.usage_file.is_some() {
            let counts = UsageCounts::of_answer(usage, self.is_failed, self.is_uncounted);
            authorizer.ledger.record(unix_s, &self.key.name, usage.model.as_deref(), &counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        path::PathBuf,
    };

    use super::*;

    fn authorizer_with(limits: &str) -> Authorizer {
        let digest = ApiKeyDigest::of_key(b"k").to_hex();
        let keys = format!("[[key]]\nname = \"a\"\nsha256 = \"{digest}\"\n{limits}");
        Authorizer::with_keys(KeySet::parse(&keys).unwrap(), || 1_800_000_000)
    }

    async fn authorize(authorizer: &Arc<Authorizer>) -> Result<Grant, KeyRefusal> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer k"));
        let path = "/v1/chat/completions";
        let terms = RequestTerms { method: &Method::POST, path, route: path };
        let peer = Peer::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        authorizer.authorize(&mut headers, peer, &terms).await
    }

    #[tokio::test(start_paused = true)]
    async fn limits_of_a_minute_come_back_with_time() {
        let authorizer = Arc::new(authorizer_with("requests_per_minute = 3"));
        for _ in 0..3 {
            drop(authorize(&authorizer).await.unwrap());
        }
        let refused = authorize(&authorizer).await.unwrap_err();
        assert!(matches!(
            refused,
            KeyRefusal::Limit(LimitRefusal { limit: ExceededLimit::RequestsPerMinute, .. })
        ));
        tokio::time::advance(refused.retry_after().unwrap()).await;
        assert!(authorize(&authorizer).await.is_ok());
    }

    fn usage_path(test: &str) -> PathBuf {
        let name = format!("confide-usage-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    #[tokio::test]
    async fn a_request_that_outlives_the_last_batch_is_written_too() {
        let path = usage_path("late");
        let authorizer = Arc::new(authorizer_with("").with_usage_file(&path).unwrap());
        let grant = authorize(&authorizer).await.unwrap();
        authorizer.write_usage();
        drop(authorizer);
        drop(grant);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn usage_is_written_every_minute() {
        let path = usage_path("minute");
        let authorizer = Arc::new(authorizer_with("").with_usage_file(&path).unwrap());
        let writer = tokio::spawn(authorizer.clone().write_usage_every_minute());
        for minute in 1..=2 {
            drop(authorize(&authorizer).await.unwrap());
            tokio::time::sleep(USAGE_INTERVAL + Duration::from_secs(1)).await;
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count(), minute, "{text}");
        }
        // A minute without requests has no line.
        tokio::time::sleep(USAGE_INTERVAL).await;
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        writer.abort();
        std::fs::remove_file(&path).unwrap();
    }
}

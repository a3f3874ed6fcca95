//! Asks a service of the operator about keys, in place of a key file.
//!
//! The service learns the digest of a key and the route, and never a key, an identifier or a
//! prompt. If it does not answer, nobody is served.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_http::{HttpUrl, Scheme, SingleFlight, error_chain};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, runtime::Handle, time::Instant};

use crate::{
    api_key::ApiKeyDigest,
    failure_log::FailureLog,
    key_file::{KeyEntry, check_models, is_key_name},
    rate_limit::KeyLimits,
};

/// The longest time for an answer, because a client waits for it.
const DEADLINE: Duration = Duration::from_secs(2);
/// The largest number of bytes of an answer, which has some 200.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// The largest number of questions at once. Each holds a connection for the deadline at most.
const RUNNING_MAX: usize = 64;
/// The largest number of answers that are remembered, at some 500 bytes each.
const CACHED_MAX: usize = 8192;
/// The longest time in seconds for which an answer is remembered: a revoked key is then refused.
const MAX_AGE_S_MAX: u64 = 3600;

/// The service that decides about keys.
#[derive(Debug)]
pub struct AuthorizationHook {
    url: HttpUrl,
    cached: Arc<Mutex<CachedEntries>>,
    failures: Arc<FailureLog>,
    running: Arc<SingleFlight<Question, HookOutcome>>,
}

/// The entry of a key, `None` if the service refuses it, or the failure of the service.
type HookOutcome = Result<Option<Arc<KeyEntry>>, HookFailure>;

/// The reason why an address cannot be that of a hook.
#[derive(Debug, thiserror::Error)]
#[error(
    "authorization hook `{url}` is not usable: wanted http://HOST:PORT[/PATH] on loopback, got {got}"
)]
pub struct HookUrlError {
    url: String,
    got: String,
}

/// The service gave no usable answer. The reason is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HookFailure;

/// A question to the service: may this key use this route?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) digest: ApiKeyDigest,
    pub(crate) method: Method,
    /// The path of the route, in which `*` stands for identifiers.
    pub(crate) route: String,
}

#[derive(Debug)]
struct CachedEntry {
    entry: Arc<KeyEntry>,
    expiry: Instant,
}

#[derive(Serialize)]
struct QuestionBody<'a> {
    key_sha256: String,
    method: &'a str,
    path: &'a str,
}

/// The answer. Unknown fields are refused, because a misspelt limit would be none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookAnswer {
    allow: bool,
    name: Option<String>,
    models: Option<Vec<String>>,
    #[serde(default)]
    max_age_s: u64,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    tokens_per_day: Option<u64>,
    concurrent: Option<u64>,
}

impl AuthorizationHook {
    /// A hook at a loopback address.
    ///
    /// # Errors
    /// [`HookUrlError`] for `https`, and for addresses of other machines: the answers would not be
    /// protected on the way.
    pub fn new(url: &str) -> Result<Self, HookUrlError> {
        let refuse = |got: String| HookUrlError { url: url.into(), got };
        let parsed = HttpUrl::parse(url).map_err(|error| refuse(error.to_string()))?;
        let parsed = parsed.with_numeric_localhost();
        if parsed.scheme() == Scheme::Https {
            return Err(refuse("https".into()));
        }
        if !parsed.is_loopback() {
            return Err(refuse(format!("host {}", parsed.host())));
        }
        Ok(Self {
            url: parsed,
            cached: Arc::default(),
            failures: Arc::default(),
            running: SingleFlight::new(),
        })
    }

    /// The remembered answer to a question, if it allowed the request and may still be used.
    pub(crate) fn find_cached(&self, question: &Question) -> Option<Arc<KeyEntry>> {
        let cached = lock(&self.cached);
        let found = cached.get(question).filter(|found| found.expiry > Instant::now())?;
        Some(found.entry.clone())
    }

    /// Whether the last answer to a question allowed the request, as far as it is remembered. The
    /// key is then not a guess, even if the answer may no longer be used.
    pub(crate) fn was_allowed(&self, question: &Question) -> bool {
        lock(&self.cached).contains_key(question)
    }

    /// Asks the service, together with all who ask the same at the same time. `None` is a refusal,
    /// which ends the memory of earlier answers.
    pub(crate) async fn ask(&self, question: &Question) -> HookOutcome {
        let admit = |running| if running < RUNNING_MAX { Ok(()) } else { Err(HookFailure) };
        let (url, cached, asked) = (self.url.clone(), self.cached.clone(), question.clone());
        let failures = self.failures.clone();
        let work = || async move {
            let outcome = match tokio::time::timeout(DEADLINE, send_question(&url, &asked)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("no answer within {DEADLINE:?}")),
            };
            let answer = outcome.map_err(|reason| {
                if let Some(failures) = failures.record(Instant::now()) {
                    tracing::warn!(%reason, failures, "the authorization hook failed");
                }
                HookFailure
            })?;
            match answer {
                Some((entry, max_age)) => {
                    remember(&cached, asked, &entry, max_age);
                    Ok(Some(entry))
                }
                None => {
                    lock(&cached).remove(&asked);
                    Ok(None)
                }
            }
        };
        let asked = self.running.start_if_admitted(&Handle::current(), question, admit, work)?;
        asked.outcome().await.unwrap_or(Err(HookFailure))
    }
}

type CachedEntries = HashMap<Question, CachedEntry>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers an answer. A full table forgets the answer that expires first.
fn remember(
    cached: &Mutex<CachedEntries>,
    question: Question,
    entry: &Arc<KeyEntry>,
    max_age: Duration,
) {
    let now = Instant::now();
    let mut cached = lock(cached);
    if cached.len() >= CACHED_MAX && !cached.contains_key(&question) {
        let first = cached.iter().min_by_key(|(_, kept)| kept.expiry);
        if let Some(first) = first.map(|(question, _)| question.clone()) {
            cached.remove(&first);
        }
    }
    cached.insert(question, CachedEntry { entry: entry.clone(), expiry: now + max_age });
}

/// Sends a question over a new connection. The error is the reason, for the log.
async fn send_question(
    url: &HttpUrl,
    question: &Question,
) -> Result<Option<(Arc<KeyEntry>, Duration)>, String> {
    let broken = |error: hyper::Error| error_chain(&error);
    let body = QuestionBody {
        key_sha256: question.digest.to_hex(),
        method: question.method.as_str(),
        path: &question.route,
    };
    let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
    let request = Request::post(url.path_and_query().as_str())
        .header(header::HOST, url.authority())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(url.authority()).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::OK {
            return Err(format!("wanted status 200, got {}", response.status()));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| format!("answer cannot be read: {error}"))?.to_bytes())
    };
    tokio::pin!(exchange);
    let body = tokio::select! {
        body = &mut exchange => body?,
        // The connection ends with the answer or before it; either way the exchange can end too.
        _ = connection => exchange.await?,
    };
    parse_answer(&body)
}

/// Parses an answer: the key and how long it may be remembered, or `None` for a refusal.
fn parse_answer(body: &[u8]) -> Result<Option<(Arc<KeyEntry>, Duration)>, String> {
    let answer: HookAnswer = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if !answer.allow {
        return Ok(None);
    }
    let name = answer.name.filter(|name| is_key_name(name)).ok_or("wanted the name of the key")?;
    let limits = KeyLimits {
        requests_per_minute: answer.requests_per_minute,
        tokens_per_minute: answer.tokens_per_minute,
        tokens_per_day: answer.tokens_per_day,
        concurrent: answer.concurrent,
    };
    limits.check()?;
    let max_age = Duration::from_secs(answer.max_age_s.min(MAX_AGE_S_MAX));
    let models = answer.models.map(check_models).transpose()?;
    Ok(Some((Arc::new(KeyEntry::with_limits(&name, limits, models)), max_age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_on_loopback() {
        for url in
            ["http://127.0.0.1:9000/authorize?x=1", "http://localhost:9000", "http://[::1]:9"]
        {
            assert!(AuthorizationHook::new(url).is_ok(), "{url}");
        }
        for url in ["https://127.0.0.1:9000", "http://10.0.0.1:9000", "http://hook.example", ""] {
            assert!(AuthorizationHook::new(url).is_err(), "{url}");
        }
    }

    #[test]
    fn an_answer_allows_only_if_all_of_it_is_understood() {
        let parsed = parse_answer(br#"{"allow":true,"name":"a","max_age_s":9999,"concurrent":2}"#);
        let (entry, max_age) = parsed.unwrap().unwrap();
        assert_eq!((&*entry.name, entry.limits.concurrent), ("a", Some(2)));
        assert_eq!(max_age, Duration::from_secs(MAX_AGE_S_MAX));
        assert!(parse_answer(br#"{"allow":false}"#).unwrap().is_none());
        for body in [
            "",
            "{}",
            r#"{"allow":1}"#,
            r#"{"allow":true}"#,
            r#"{"allow":true,"name":"a b"}"#,
            r#"{"allow":true,"name":"a","concurrent":0}"#,
            r#"{"allow":true,"name":"a","concurent":1}"#,
            r#"{"allow":true,"name":"a","models":[]}"#,
        ] {
            assert!(parse_answer(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_hook_is_given_up_and_those_who_ask_the_same_share_a_question() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hook = AuthorizationHook::new(&url).unwrap();
        let question = Question {
            digest: ApiKeyDigest::of_key(b"k"),
            method: Method::POST,
            route: "/v1/x".into(),
        };
        let began = Instant::now();
        let (first, second) = tokio::join!(hook.ask(&question), hook.ask(&question));
        assert_eq!((first.err(), second.err()), (Some(HookFailure), Some(HookFailure)));
        assert_eq!(began.elapsed().as_secs(), DEADLINE.as_secs());
        let accept = tokio::time::timeout(DEADLINE, listener.accept());
        assert!(accept.await.is_ok(), "nobody has asked");
        let accept = tokio::time::timeout(DEADLINE, listener.accept());
        assert!(accept.await.is_err(), "both have asked");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_remembered_for_their_time_and_in_bounded_number() {
        let hook = AuthorizationHook::new("http://127.0.0.1:1").unwrap();
        let entry = Arc::new(KeyEntry::with_limits("a", KeyLimits::default(), None));
        let question = |number: usize| Question {
            digest: ApiKeyDigest::of_key(&number.to_le_bytes()),
            method: Method::POST,
            route: "/v1/x".into(),
        };
        for number in 0..=CACHED_MAX {
            let max_age = Duration::from_secs(60) + Duration::from_millis(number as u64);
            remember(&hook.cached, question(number), &entry, max_age);
        }
        assert_eq!(hook.cached.lock().unwrap().len(), CACHED_MAX);
        assert!(hook.find_cached(&question(0)).is_none());
        assert!(hook.find_cached(&question(1)).is_some());
        let other = Question { route: "/v1/y".into(), ..question(1) };
        assert!(hook.find_cached(&other).is_none());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(hook.find_cached(&question(1)).is_none());
    }
}

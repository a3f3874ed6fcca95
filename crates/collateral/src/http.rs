//! An HTTP client with deadlines, limits and retries, which respects the rate limits of services.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_evidence::escape_untrusted;
use confide_http::{SingleFlight, error_chain};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    address::Address,
    back_off::back_off,
    counts::{CollateralCounts, Counters, HostCounters, add_to_counter},
    error::CollateralError,
    limits::*,
};

/// A request to an address.
#[derive(Clone)]
pub(crate) struct HttpRequest {
    /// The document, for errors.
    pub(crate) subject: String,
    /// The content type and the body of a POST; `None` for a GET.
    pub(crate) body: Option<(&'static str, Bytes)>,
    /// The shortest time between two such requests to one host.
    pub(crate) interval: Duration,
}

/// An answer with status 200.
pub(crate) struct OkResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) url: String,
}

/// The deadlines and the first back-off; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) attempt: Duration,
    pub(crate) request: Duration,
    pub(crate) back_off_first: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            attempt: ATTEMPT_DEADLINE,
            request: REQUEST_DEADLINE,
            back_off_first: BACK_OFF_FIRST,
        }
    }
}

type AnswerResult = Result<Arc<OkResponse>, CollateralError>;

pub(crate) struct RetryingClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    deadlines: Deadlines,
    hosts: Mutex<HashMap<String, Arc<HostState>>>,
    flights: Arc<SingleFlight<String, AnswerResult>>,
    tagged: Mutex<TaggedAnswers>,
    counters: Arc<Counters>,
}

struct HostState {
    slots: Semaphore,
    /// The instant before which no request is sent: set by an answer with status 429.
    not_before: Mutex<Instant>,
    /// The instant at which the next request with an `interval` is due.
    next_paced: Mutex<Instant>,
    counters: Arc<HostCounters>,
}

impl RetryingClient {
    /// `tls_roots` (DER) are trusted in addition to the system's, which are read if `with_tls`.
    pub(crate) fn new(
        with_tls: bool,
        tls_roots: &[Vec<u8>],
        deadlines: Deadlines,
        counters: Arc<Counters>,
    ) -> Result<Self, CollateralError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(with_tls, tls_roots)?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .http1_max_headers(64)
            .build(connector);
        Ok(Self {
            client,
            deadlines,
            hosts: Mutex::new(HashMap::new()),
            flights: SingleFlight::new(),
            tagged: Mutex::new(TaggedAnswers::default()),
            counters,
        })
    }

    /// Sends a request, or waits for the answer to an equal one that is under way.
    pub(crate) async fn send(
        self: &Arc<Self>,
        address: &Address,
        ask: HttpRequest,
    ) -> AnswerResult {
        let key = match &ask.body {
            None => address.uri.to_string(),
            Some((_, body)) => format!("{} {}", address.uri, hex::encode(Sha256::digest(body))),
        };
        let aborted = CollateralError::Aborted { subject: ask.subject.clone() };
        let (http, address) = (self.clone(), address.clone());
        let flight = self.flights.start(&Handle::current(), &key, move || async move {
            let outcome = http.send_with_retries(&address, &ask).await;
            if let Err(error) = &outcome {
                add_to_counter(&http.host(&address).counters.failures, 1);
                tracing::debug!(host = address.host, %error, "request failed");
            }
            outcome
        });
        flight.outcome().await.unwrap_or(Err(aborted))
    }

    async fn send_with_retries(&self, address: &Address, ask: &HttpRequest) -> AnswerResult {
        let until = Instant::now() + self.deadlines.request;
        let host = self.host(address);
        let mut failures = 0;
        loop {
            let start =
                host.reserve(ask.interval, until).map_err(|wait| CollateralError::Busy {
                    subject: ask.subject.clone(),
                    url: address.shown.clone(),
                    wait_ms: millis(wait),
                })?;
            sleep_until(start).await;
            let failure = match self.send_once(&host, address, ask, until).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            failures += 1;
            if let Some(wait) = failure.retry_after {
                host.delay_requests(wait);
            }
            let wait = back_off(self.deadlines.back_off_first, BACK_OFF_MAX, failures - 1);
            if !failure.is_temporary || failures >= ATTEMPTS_MAX || Instant::now() + wait >= until {
                return Err(failure.error);
            }
            sleep(wait).await;
        }
    }

    async fn send_once(
        &self,
        host: &HostState,
        address: &Address,
        ask: &HttpRequest,
        until: Instant,
    ) -> Result<Arc<OkResponse>, AttemptFailure> {
        let left = until.saturating_duration_since(Instant::now()).min(self.deadlines.attempt);
        let late = || AttemptFailure {
            error: CollateralError::Deadline {
                subject: ask.subject.clone(),
                url: address.shown.clone(),
                within_ms: millis(left),
            },
            is_temporary: true,
            retry_after: None,
        };
        // The wait for a free slot counts: requests to a slow host must not queue for ever.
        let work = async {
            let _slot = host.slots.acquire().await.map_err(|_| late())?;
            self.exchange(host, address, ask).await
        };
        timeout(left, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn exchange(
        &self,
        host: &HostState,
        address: &Address,
        ask: &HttpRequest,
    ) -> Result<Arc<OkResponse>, AttemptFailure> {
        let known = ask.body.is_none().then(|| self.lock_tagged().find(&address.uri.to_string()));
        let known = known.flatten();
        let request = build_request(address, ask, known.as_ref().map(|(tag, _)| tag));
        add_to_counter(&host.counters.requests, 1);
        let broken = |reason: String| AttemptFailure {
            error: CollateralError::Transport {
                subject: ask.subject.clone(),
                url: address.shown.clone(),
                reason: escape_untrusted(&reason),
            },
            is_temporary: true,
            retry_after: None,
        };
        let response = self.client.request(request.map_err(broken)?).await;
        let response = response.map_err(|error| broken(error_chain(&error)))?;
        let (parts, body) = response.into_parts();
        match (parts.status, known) {
            (StatusCode::OK, _) => {}
            (StatusCode::NOT_MODIFIED, Some((_, answer))) => {
                add_to_counter(&host.counters.not_modified, 1);
                return Ok(answer);
            }
            (status, _) => return Err(status_failure(host, address, ask, status, &parts.headers)),
        }
        let body = Limited::new(body, ANSWER_LENGTH_MAX).collect().await.map_err(|error| {
            match error.is::<LengthLimitError>() {
                true => AttemptFailure::permanent(CollateralError::TooLong {
                    subject: ask.subject.clone(),
                    url: address.shown.clone(),
                    limit: ANSWER_LENGTH_MAX,
                }),
                false => broken(error_chain(&*error)),
            }
        })?;
        let body = body.to_bytes();
        add_to_counter(&host.counters.bytes, body.len() as u64);
        let url = address.shown.clone();
        let answer = Arc::new(OkResponse { headers: parts.headers, body, url });
        if ask.body.is_none() {
            self.lock_tagged().insert(address.uri.to_string(), &answer);
        }
        Ok(answer)
    }

    pub(crate) fn counts(&self) -> CollateralCounts {
        self.counters.snapshot()
    }

    fn host(&self, address: &Address) -> Arc<HostState> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let now = Instant::now();
            Arc::new(HostState {
                slots: Semaphore::new(HOST_REQUESTS_MAX),
                not_before: Mutex::new(now),
                next_paced: Mutex::new(now),
                counters: self.counters.host(&address.host),
            })
        };
        hosts.entry(address.host.clone()).or_insert_with(new).clone()
    }

    fn lock_tagged(&self) -> std::sync::MutexGuard<'_, TaggedAnswers> {
        self.tagged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostState {
    /// Reserves the instant at which the request may be sent; the error is the wait, if it would
    /// end after `until`.
    fn reserve(&self, interval: Duration, until: Instant) -> Result<Instant, Duration> {
        let now = Instant::now();
        let start = now.max(*self.not_before.lock().unwrap_or_else(PoisonError::into_inner));
        if interval.is_zero() {
            return if start < until { Ok(start) } else { Err(start - now) };
        }
        let mut next = self.next_paced.lock().unwrap_or_else(PoisonError::into_inner);
        let start = start.max(*next);
        if start >= until {
            return Err(start - now);
        }
        *next = start + interval;
        Ok(start)
    }

    fn delay_requests(&self, wait: Duration) {
        let mut not_before = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        *not_before = (*not_before).max(Instant::now() + wait);
    }
}

/// The failure of one attempt.
struct AttemptFailure {
    error: CollateralError,
    is_temporary: bool,
    retry_after: Option<Duration>,
}

impl AttemptFailure {
    fn permanent(error: CollateralError) -> Self {
        Self { error, is_temporary: false, retry_after: None }
    }
}

/// The failure for a status other than 200. Redirects are refused too: only configured addresses
/// are used.
fn status_failure(
    host: &HostState,
    address: &Address,
    ask: &HttpRequest,
    status: StatusCode,
    headers: &HeaderMap,
) -> AttemptFailure {
    let error = CollateralError::Status {
        subject: ask.subject.clone(),
        url: address.shown.clone(),
        status: status.as_u16(),
    };
    let throttled = status == StatusCode::TOO_MANY_REQUESTS;
    if throttled {
        add_to_counter(&host.counters.throttled, 1);
    }
    let is_temporary =
        throttled || status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
    let named = throttled || status == StatusCode::SERVICE_UNAVAILABLE;
    AttemptFailure {
        error,
        is_temporary,
        retry_after: if named { retry_after(headers) } else { None },
    }
}

/// `Retry-After` in seconds, bounded; `None` for a date, so that the client's own back-off applies.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds = text.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

fn build_request(
    address: &Address,
    ask: &HttpRequest,
    tag: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .uri(address.uri.clone())
        .header(header::USER_AGENT, concat!("confide/", env!("CARGO_PKG_VERSION")));
    let body = match &ask.body {
        None => Bytes::new(),
        Some((kind, body)) => {
            request = request.method(Method::POST).header(header::CONTENT_TYPE, *kind);
            body.clone()
        }
    };
    if let Some(tag) = tag {
        request = request.header(header::IF_NONE_MATCH, tag);
    }
    request.body(Full::new(body)).map_err(|error| error.to_string())
}

/// The last answers that came with an ETag, oldest first.
#[derive(Default)]
struct TaggedAnswers(VecDeque<(String, HeaderValue, Arc<OkResponse>)>);

impl TaggedAnswers {
    fn find(&self, url: &str) -> Option<(HeaderValue, Arc<OkResponse>)> {
        let (_, tag, answer) = self.0.iter().find(|(known, ..)| known == url)?;
        Some((tag.clone(), answer.clone()))
    }

    fn insert(&mut self, url: String, answer: &Arc<OkResponse>) {
        self.0.retain(|(known, ..)| *known != url);
        let tag = answer.headers.get(header::ETAG).filter(|tag| tag.len() <= TAG_LENGTH_MAX);
        let Some(tag) = tag else { return };
        if self.0.len() == TAGGED_ANSWERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((url, tag.clone(), answer.clone()));
    }
}

fn tls_config(with_tls: bool, added: &[Vec<u8>]) -> Result<ClientConfig, CollateralError> {
    let mut roots = RootCertStore::empty();
    let no_roots = |reason: String| CollateralError::NoRoots { reason };
    for der in added {
        let der = CertificateDer::from(der.as_slice());
        roots.add(der.into_owned()).map_err(|error| no_roots(error.to_string()))?;
    }
    if with_tls {
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            let reasons: Vec<String> = system.errors.iter().map(ToString::to_string).collect();
            return Err(no_roots(reasons.join("; ")));
        }
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| no_roots(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! From a request to its answer.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use confide_http::metrics::MEDIA_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header::IF_NONE_MATCH};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use crate::{
    Faults, Kept, Limits, Simulation, UpstreamError, Wanted,
    answer::{Answer, Bytewise},
    faults::Fate,
    kept::{Freshness, Missing, Way},
    metrics::Metrics,
    request,
};

/// Says on every answer that the endorsements are simulated.
const SIMULATED: HeaderName = HeaderName::from_static("confide-simulated");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Where documents come from.
pub enum Source {
    /// A database, with or without vendors behind it.
    Kept(Arc<Kept>),
    /// A fake root. *Simulated*.
    Simulated(Arc<Simulation>),
}

/// What a service is made from.
pub struct Options {
    /// Where documents come from.
    pub source: Source,
    /// The bounds.
    pub limits: Limits,
    /// Unix seconds.
    pub clock: fn() -> u64,
}

/// Answers requests. It has no connection; [`crate::serve`] has.
pub struct Service {
    source: Source,
    limits: Arc<Limits>,
    clock: fn() -> u64,
    metrics: Arc<Metrics>,
    ids: RandomState,
    requests: AtomicU64,
}

/// What becomes of a request.
pub(crate) enum Outcome {
    Answer(Response<Bytewise>),
    /// A simulated service that never answers.
    Silence,
}

impl Service {
    /// A service from its parts.
    pub fn new(options: Options) -> Self {
        Self {
            source: options.source,
            limits: Arc::new(options.limits),
            clock: options.clock,
            metrics: Arc::new(Metrics::new()),
            ids: RandomState::new(),
            requests: AtomicU64::new(0),
        }
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Looks through the kept documents for those to fetch anew, for ever.
    pub(crate) async fn refresh(self: Arc<Self>) {
        let Some(way) = self.way().filter(Way::has_upstream) else { return };
        let mut ticks = tokio::time::interval(self.limits.refresh_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            way.refresh_due().await;
        }
    }

    pub(crate) async fn outcome(&self, request: Request<Incoming>) -> Outcome {
        let head = *request.method() == Method::HEAD;
        let path = request.uri().path();
        let (route, mut answer, truncated) = match path {
            "/health" => ("health", self.health().await, false),
            "/metrics" => ("metrics", self.metrics().await, false),
            "/simulate" => ("simulate", self.simulate(request).await, false),
            _ if head || *request.method() == Method::GET => {
                let wanted = match request::parse(path, request.uri().query()) {
                    Ok(wanted) => wanted,
                    Err(refusal) => return self.finished("none", refusal.into(), false),
                };
                let held = request.headers().get(IF_NONE_MATCH).cloned();
                match self.documented(&wanted, held.as_ref()).await {
                    Some((answer, truncated)) => (wanted.kind().name(), answer, truncated),
                    None => return Outcome::Silence,
                }
            }
            _ => {
                let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
                ("none", answer.allow("GET, HEAD"), false)
            }
        };
        if head {
            answer.body = Bytes::new();
        }
        self.finished(route, answer, truncated)
    }

    fn finished(&self, route: &'static str, mut answer: Answer, truncated: bool) -> Outcome {
        self.metrics.count_answer(route, answer.status.as_u16());
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = [number, !number].map(|half| format!("{:016x}", self.ids.hash_one(half))).concat();
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers.insert(REQUEST_ID, id);
        }
        if matches!(self.source, Source::Simulated(_)) {
            answer.headers.insert(SIMULATED, HeaderValue::from_static("true"));
        }
        Outcome::Answer(answer.response(truncated))
    }

    /// A document, and whether its body is to end in the middle; `None` where nothing is to come.
    async fn documented(
        &self,
        wanted: &Wanted,
        held: Option<&HeaderValue>,
    ) -> Option<(Answer, bool)> {
        let Source::Simulated(simulation) = &self.source else {
            return Some((self.kept(wanted, held).await, false));
        };
        let (latency, fate) = simulation.next();
        if fate != Fate::Answer {
            self.metrics.faults.inc();
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match fate {
            Fate::Hang => None,
            Fate::Fail => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Some((Answer::text(status, "simulated failure"), false))
            }
            Fate::TooMany { retry_after_s } => {
                let answer = Answer::text(StatusCode::TOO_MANY_REQUESTS, "simulated limit");
                Some((answer.retry_after(retry_after_s), false))
            }
            Fate::Answer | Fate::Truncate => {
                let answer = self.simulated(simulation, wanted, held).await;
                Some((answer, fate == Fate::Truncate))
            }
        }
    }

    async fn simulated(
        &self,
        simulation: &Arc<Simulation>,
        wanted: &Wanted,
        held: Option<&HeaderValue>,
    ) -> Answer {
        let (simulation, asked, now) = (Arc::clone(simulation), wanted.clone(), (self.clock)());
        // A set that is issued anew is signed first.
        let finding = tokio::task::spawn_blocking(move || simulation.find(&asked, now));
        match finding.await {
            Ok(Ok(Some(document))) => {
                Answer::document(&document, wanted.encoding(), Freshness::Fresh, held)
            }
            Ok(Ok(None)) => no_data(),
            Ok(Err(error)) => internal(&error),
            Err(error) => internal(&error.to_string()),
        }
    }

    async fn kept(&self, wanted: &Wanted, held: Option<&HeaderValue>) -> Answer {
        let Some(way) = self.way() else { return no_data() };
        let finding = tokio::time::timeout(self.limits.answer_wait, way.find(wanted));
        match finding.await {
            Ok(Ok(found)) => {
                if found.freshness != Freshness::Fresh {
                    self.metrics.stale.inc();
                }
                Answer::document(&found.document, wanted.encoding(), found.freshness, held)
            }
            Ok(Err(Missing::Nowhere)) => no_data(),
            Ok(Err(Missing::Upstream(error))) => upstream_failed(&error),
            Ok(Err(Missing::Database(error))) => internal(&error.to_string()),
            Err(_) => {
                Answer::text(StatusCode::GATEWAY_TIMEOUT, "neither database nor vendor answered")
            }
        }
    }

    async fn health(&self) -> Answer {
        if let Source::Kept(kept) = &self.source
            && let Err(error) = kept.database().count().await
        {
            tracing::warn!(%error, "the database does not answer");
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer");
        }
        Answer::text(StatusCode::OK, "ok")
    }

    async fn metrics(&self) -> Answer {
        let (simulated, documents) = match &self.source {
            Source::Kept(kept) => (false, kept.database().count().await.ok()),
            Source::Simulated(_) => (true, None),
        };
        let text = self.metrics.encode(simulated, documents);
        Answer::new(StatusCode::OK, MEDIA_TYPE, text)
    }

    /// Shows the faults, and sets those of a POST.
    async fn simulate(&self, request: Request<Incoming>) -> Answer {
        let Source::Simulated(simulation) = &self.source else {
            return request::Refusal::NotFound.into();
        };
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::POST => {
                let reading = Limited::new(request.into_body(), self.limits.body_bytes).collect();
                let Ok(Ok(body)) = tokio::time::timeout(self.limits.head_wait, reading).await
                else {
                    let limit = self.limits.body_bytes;
                    let text = format!("body: wanted at most {limit} bytes, all of them in time");
                    return Answer::text(StatusCode::BAD_REQUEST, text);
                };
                match Faults::from_json(&body.to_bytes()) {
                    Ok(faults) => simulation.set_faults(faults),
                    Err(error) => return Answer::text(StatusCode::BAD_REQUEST, error.to_string()),
                }
            }
            _ => {
                let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST");
                return answer.allow("GET, HEAD, POST");
            }
        }
        match serde_json::to_vec(&simulation.faults()) {
            Ok(text) => Answer::new(StatusCode::OK, "application/json", text),
            Err(error) => internal(&error.to_string()),
        }
    }

    fn way(&self) -> Option<Way> {
        let Source::Kept(kept) = &self.source else { return None };
        Some(Way {
            kept: Arc::clone(kept),
            limits: Arc::clone(&self.limits),
            metrics: Arc::clone(&self.metrics),
            clock: self.clock,
        })
    }
}

fn no_data() -> Answer {
    // The words of Intel's PCCS, for whoever searches for them.
    Answer::text(StatusCode::NOT_FOUND, "No cache data for this platform.")
}

/// What failed goes to the log: it names hosts.
fn upstream_failed(error: &UpstreamError) -> Answer {
    tracing::warn!(%error, "a document cannot be had");
    let text = "Unable to retrieve the collateral from the vendor.";
    match error {
        UpstreamError::Busy => Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(1),
        UpstreamError::Resting { retry_after_s } => {
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(*retry_after_s)
        }
        _ => Answer::text(StatusCode::BAD_GATEWAY, text),
    }
}

/// The reason goes to the log: it may name hosts and files.
fn internal(error: &str) -> Answer {
    tracing::warn!(error, "a request failed");
    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error occurred.")
}

//! Answers requests for documents, health and metrics.

#[cfg(feature = "simulate")]
mod simulated;

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
use hyper::body::Incoming;

use crate::{
    answer::{Answer, Bytewise},
    document_store::{DocumentLookup, DocumentStore, Freshness, LookupError},
    limits::PccsLimits,
    metrics::Metrics,
    request::{self, DocumentRequest},
    upstream::UpstreamError,
};

/// The field that says on every answer that the endorsements are simulated.
const SIMULATED: HeaderName = HeaderName::from_static("confide-simulated");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The source of a service's documents.
pub enum DocumentSource {
    /// A database, with or without vendors behind it.
    Store(Arc<DocumentStore>),
    /// A fake root. *Simulated*.
    #[cfg(feature = "simulate")]
    Simulated(Arc<crate::simulation::Simulation>),
}

impl DocumentSource {
    /// Whether the documents are those of a fake root.
    fn is_simulated(&self) -> bool {
        !matches!(self, DocumentSource::Store(_))
    }
}

/// Everything that a service is made from.
pub struct PccsOptions {
    /// The source of the documents.
    pub source: DocumentSource,
    /// The limits of the service.
    pub limits: PccsLimits,
    /// A clock that gives Unix seconds.
    pub clock: fn() -> u64,
}

/// Answers requests; [`crate::serve`] has the connections.
pub struct Service {
    source: DocumentSource,
    limits: Arc<PccsLimits>,
    clock: fn() -> u64,
    metrics: Arc<Metrics>,
    ids: RandomState,
    requests: AtomicU64,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Answer(Response<Bytewise>),
    /// A simulated service that never answers.
    Silence,
}

impl Service {
    /// A service from its parts.
    pub fn new(options: PccsOptions) -> Self {
        Self {
            source: options.source,
            limits: Arc::new(options.limits),
            clock: options.clock,
            metrics: Arc::new(Metrics::new()),
            ids: RandomState::new(),
            requests: AtomicU64::new(0),
        }
    }

    pub(crate) fn limits(&self) -> &Arc<PccsLimits> {
        &self.limits
    }

    /// Fetches the kept documents again that are due, for ever.
    pub(crate) async fn refresh(self: Arc<Self>) {
        let Some(lookup) = self.lookup().filter(DocumentLookup::has_upstream) else { return };
        let mut ticks = tokio::time::interval(self.limits.refresh_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            lookup.refresh_due().await;
        }
    }

    pub(crate) async fn answer_request(&self, request: Request<Incoming>) -> Outcome {
        let head = *request.method() == Method::HEAD;
        let path = request.uri().path();
        let (route, mut answer, truncated) = match path {
            "/health" => ("health", self.health().await, false),
            "/metrics" => ("metrics", self.metrics().await, false),
            #[cfg(feature = "simulate")]
            "/simulate" => ("simulate", self.simulate(request).await, false),
            _ if head || *request.method() == Method::GET => {
                let wanted = match request::parse(path, request.uri().query()) {
                    Ok(wanted) => wanted,
                    Err(refusal) => return self.finish("none", refusal.into(), false),
                };
                let held = request.headers().get(IF_NONE_MATCH).cloned();
                match self.document_answer(&wanted, held.as_ref()).await {
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
        self.finish(route, answer, truncated)
    }

    fn finish(&self, route: &'static str, mut answer: Answer, truncated: bool) -> Outcome {
        self.metrics.count_answer(route, answer.status.as_u16());
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = [number, !number].map(|half| format!("{:016x}", self.ids.hash_one(half))).concat();
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers.insert(REQUEST_ID, id);
        }
        if self.source.is_simulated() {
            answer.headers.insert(SIMULATED, HeaderValue::from_static("true"));
        }
        Outcome::Answer(answer.response(truncated))
    }

    /// A document, and whether its body is to end in the middle; `None` if nothing is to come.
    async fn document_answer(
        &self,
        wanted: &DocumentRequest,
        held: Option<&HeaderValue>,
    ) -> Option<(Answer, bool)> {
        #[cfg(feature = "simulate")]
        if let DocumentSource::Simulated(simulation) = &self.source {
            return self.simulated_answer(simulation, wanted, held).await;
        }
        Some((self.stored_answer(wanted, held).await, false))
    }

    async fn stored_answer(&self, wanted: &DocumentRequest, held: Option<&HeaderValue>) -> Answer {
        let Some(lookup) = self.lookup() else { return no_data() };
        let finding = tokio::time::timeout(self.limits.answer_wait, lookup.find(wanted));
        match finding.await {
            Ok(Ok(found)) => {
                if found.freshness != Freshness::Fresh {
                    self.metrics.stale.inc();
                }
                Answer::document(&found.document, wanted.encoding(), found.freshness, held)
            }
            Ok(Err(LookupError::Nowhere)) => no_data(),
            Ok(Err(LookupError::Upstream(error))) => upstream_error_answer(&error),
            Ok(Err(LookupError::Database(error))) => internal_error_answer(&error.to_string()),
            Err(_) => {
                Answer::text(StatusCode::GATEWAY_TIMEOUT, "neither database nor vendor answered")
            }
        }
    }

    async fn health(&self) -> Answer {
        if let DocumentSource::Store(kept) = &self.source
            && let Err(error) = kept.database().count().await
        {
            tracing::warn!(%error, "the database does not answer");
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer");
        }
        Answer::text(StatusCode::OK, "ok")
    }

    async fn metrics(&self) -> Answer {
        let (simulated, documents) = match &self.source {
            DocumentSource::Store(kept) => (false, kept.database().count().await.ok()),
            #[cfg(feature = "simulate")]
            DocumentSource::Simulated(_) => (true, None),
        };
        let text = self.metrics.encode(simulated, documents);
        Answer::new(StatusCode::OK, MEDIA_TYPE, text)
    }

    fn lookup(&self) -> Option<DocumentLookup> {
        match &self.source {
            DocumentSource::Store(kept) => Some(DocumentLookup {
                kept: Arc::clone(kept),
                limits: Arc::clone(&self.limits),
                metrics: Arc::clone(&self.metrics),
                clock: self.clock,
            }),
            #[cfg(feature = "simulate")]
            DocumentSource::Simulated(_) => None,
        }
    }
}

fn no_data() -> Answer {
    // The words of Intel's PCCS, so that a search for them finds its documentation.
    Answer::text(StatusCode::NOT_FOUND, "No cache data for this platform.")
}

/// The answer to a failed fetch. The reason only goes to the log: it names hosts.
fn upstream_error_answer(error: &UpstreamError) -> Answer {
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

/// The answer to an internal error. The reason only goes to the log: it may name hosts and files.
fn internal_error_answer(error: &str) -> Answer {
    tracing::warn!(error, "a request failed");
    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error occurred.")
}

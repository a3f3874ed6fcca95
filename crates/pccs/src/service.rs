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
    answer::{Answer, AnswerBody},
    document_store::{DocumentLookup, DocumentStore, Freshness, LookupError},
    limits::PccsLimits,
    metrics::Metrics,
    request::{self, DocumentRequest},
    upstream::UpstreamError,
};

/// The header field that marks every answer of a service whose endorsements are simulated.
const SIMULATED: HeaderName = HeaderName::from_static("confide-simulated");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The source of a service's documents.
pub enum DocumentSource {
    /// A database, with or without an upstream.
    Store(Arc<DocumentStore>),
    /// A fake root. *Simulated*.
    #[cfg(feature = "simulate")]
    Simulated(Arc<crate::simulation::Simulation>),
}

impl DocumentSource {
    /// Whether the documents are issued by a fake root.
    fn is_simulated(&self) -> bool {
        !matches!(self, DocumentSource::Store(_))
    }
}

/// The options of a [`Service`].
pub struct PccsOptions {
    /// The source of the documents.
    pub source: DocumentSource,
    /// The limits of the service.
    pub limits: PccsLimits,
    /// A clock that gives Unix seconds.
    pub clock: fn() -> u64,
}

/// Answers requests; [`crate::serve`] accepts their connections.
pub struct Service {
    source: DocumentSource,
    limits: Arc<PccsLimits>,
    clock: fn() -> u64,
    metrics: Arc<Metrics>,
    ids: RandomState,
    requests: AtomicU64,
}

/// The outcome of a request.
pub(crate) enum RequestOutcome {
    Answer(Response<AnswerBody>),
    /// The request is never answered: a simulated fault.
    Silence,
}

impl Service {
    /// Creates a service.
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

    /// Fetches again the stored documents that are due, in an endless loop.
    pub(crate) async fn refresh_in_loop(self: Arc<Self>) {
        let Some(lookup) = self.document_lookup().filter(DocumentLookup::has_upstream) else {
            return;
        };
        let mut ticks = tokio::time::interval(self.limits.refresh_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            lookup.refresh_due_documents().await;
        }
    }

    pub(crate) async fn answer_request(&self, request: Request<Incoming>) -> RequestOutcome {
        let head = *request.method() == Method::HEAD;
        let path = request.uri().path();
        let (route, mut answer, truncated) = match path {
            "/health" => ("health", self.health_answer().await, false),
            "/metrics" => ("metrics", self.metrics_answer().await, false),
            #[cfg(feature = "simulate")]
            "/simulate" => ("simulate", self.answer_simulate_route(request).await, false),
            _ if head || *request.method() == Method::GET => {
                let wanted = match request::parse_request(path, request.uri().query()) {
                    Ok(wanted) => wanted,
                    Err(refusal) => return self.finish_answer("none", refusal.into(), false),
                };
                let held = request.headers().get(IF_NONE_MATCH).cloned();
                match self.document_answer(&wanted, held.as_ref()).await {
                    Some((answer, truncated)) => (wanted.kind().name(), answer, truncated),
                    None => return RequestOutcome::Silence,
                }
            }
            _ => {
                let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
                ("none", answer.with_allow("GET, HEAD"), false)
            }
        };
        if head {
            answer.body = Bytes::new();
        }
        self.finish_answer(route, answer, truncated)
    }

    fn finish_answer(
        &self,
        route: &'static str,
        mut answer: Answer,
        truncated: bool,
    ) -> RequestOutcome {
        self.metrics.count_answer(route, answer.status.as_u16());
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = [number, !number].map(|half| format!("{:016x}", self.ids.hash_one(half))).concat();
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers.insert(REQUEST_ID, id);
        }
        if self.source.is_simulated() {
            answer.headers.insert(SIMULATED, HeaderValue::from_static("true"));
        }
        RequestOutcome::Answer(answer.into_response(truncated))
    }

    /// The answer to a request for a document, and whether its body breaks off in the middle;
    /// `None` if the request is never answered.
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
        let Some(lookup) = self.document_lookup() else { return no_data_answer() };
        let finding = tokio::time::timeout(self.limits.answer_wait, lookup.find(wanted));
        match finding.await {
            Ok(Ok(found)) => {
                if found.freshness != Freshness::Fresh {
                    self.metrics.stale.inc();
                }
                Answer::from_document(&found.document, wanted.encoding(), found.freshness, held)
            }
            Ok(Err(LookupError::NotFound)) => no_data_answer(),
            Ok(Err(LookupError::Upstream(error))) => upstream_error_answer(&error),
            Ok(Err(LookupError::Database(error))) => internal_error_answer(&error.to_string()),
            Err(_) => {
                Answer::text(StatusCode::GATEWAY_TIMEOUT, "neither database nor vendor answered")
            }
        }
    }

    async fn health_answer(&self) -> Answer {
        if let DocumentSource::Store(kept) = &self.source
            && let Err(error) = kept.database().count().await
        {
            tracing::warn!(%error, "the database does not answer");
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer");
        }
        Answer::text(StatusCode::OK, "ok")
    }

    async fn metrics_answer(&self) -> Answer {
        let (simulated, documents) = match &self.source {
            DocumentSource::Store(kept) => (false, kept.database().count().await.ok()),
            #[cfg(feature = "simulate")]
            DocumentSource::Simulated(_) => (true, None),
        };
        let text = self.metrics.encode(simulated, documents);
        Answer::new(StatusCode::OK, MEDIA_TYPE, text)
    }

    fn document_lookup(&self) -> Option<DocumentLookup> {
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

fn no_data_answer() -> Answer {
    // The text of Intel's PCCS, so that a search for it finds Intel's documentation.
    Answer::text(StatusCode::NOT_FOUND, "No cache data for this platform.")
}

/// The answer to a failed fetch. Only the log has the reason, as it names hosts.
fn upstream_error_answer(error: &UpstreamError) -> Answer {
    tracing::warn!(%error, "a document could not be fetched");
    let text = "Unable to retrieve the collateral from the vendor.";
    match error {
        UpstreamError::Busy => {
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).with_retry_after(1)
        }
        UpstreamError::RecentFailure { retry_after_s } => {
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).with_retry_after(*retry_after_s)
        }
        _ => Answer::text(StatusCode::BAD_GATEWAY, text),
    }
}

/// The answer to an internal error. Only the log has the reason, as it may name hosts and files.
fn internal_error_answer(error: &str) -> Answer {
    tracing::warn!(error, "a request failed");
    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error occurred.")
}

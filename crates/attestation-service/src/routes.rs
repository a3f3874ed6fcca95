//! The routes of the service.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use confide_appraiser::{AppraisalError, SharedAppraisal};
use confide_evidence::PresentedGpuEvidence;
use confide_http::{AdmissionQueue, metrics::MEDIA_TYPE};
use confide_verifier::Evidence;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    answer::{error_answer, json_answer, method_not_allowed_answer, remove_body, text_answer},
    appraisal_request::AppraisalRequest,
    error::RequestError,
    limits::ServiceLimits,
    metrics::Metrics,
    options::ServiceOptions,
    result::{self, CommonClaims},
};

/// The state that all routes share.
pub(crate) struct ServiceState {
    options: ServiceOptions,
    queue: AdmissionQueue,
    /// A permit for each byte of request bodies in memory.
    bodies: Arc<Semaphore>,
    /// Held while one caller makes the own evidence, so that the others wait without blocking
    /// threads that appraisals need.
    own_evidence: tokio::sync::Mutex<()>,
    metrics: Metrics,
}

/// The methods of the routes that are only read.
const READING: &[Method] = &[Method::GET, Method::HEAD];

/// Answers one request.
pub(crate) async fn answer_request(
    site: Arc<ServiceState>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let methods = match head.uri.path() {
        "/v1/appraise" => &[Method::POST],
        "/.well-known/jwks.json" | "/health" | "/metrics" => READING,
        _ => return error_answer(&RequestError::NoRoute),
    };
    if !methods.contains(&head.method) {
        return method_not_allowed_answer(methods);
    }
    let response = match head.uri.path() {
        "/v1/appraise" => answer_appraisal(&site, body).await,
        "/.well-known/jwks.json" => answer_keys(&site).await,
        "/health" => json_answer(StatusCode::OK, &json!({ "status": "ok" })),
        _ => text_answer(MEDIA_TYPE, site.metrics.encode(site.queue.waiting())),
    };
    if head.method == Method::HEAD { remove_body(response) } else { response }
}

async fn answer_appraisal(site: &Arc<ServiceState>, body: Incoming) -> Response<Full<Bytes>> {
    match appraise_body(site, body).await {
        Ok((outcome, response)) => {
            site.metrics.count_request(outcome);
            response
        }
        Err(error) => {
            site.metrics.count_request(error.code());
            error_answer(&error)
        }
    }
}

/// The outcome for the metrics, and the answer.
type AppraisalAnswer = (&'static str, Response<Full<Bytes>>);

async fn appraise_body(
    site: &Arc<ServiceState>,
    body: Incoming,
) -> Result<AppraisalAnswer, RequestError> {
    let (body, held) = read_body(site, body).await?;
    let request = AppraisalRequest::parse(&body)?;
    drop(body);
    // An unknown policy is refused before the request takes a slot in the queue.
    site.options.policies.find(&request.policy_id)?;
    let permit = site.queue.enter().await?;
    let worker = Arc::clone(site);
    // Signatures keep a core busy for a while, so they run outside the event loop.
    let work = tokio::task::spawn_blocking(move || {
        let (_permit, _held) = (permit, held);
        worker.appraise(&request)
    });
    work.await.map_err(|_| RequestError::Signing)?
}

impl ServiceState {
    pub(crate) fn new(options: ServiceOptions) -> Self {
        let bodies = options.limits.bodies_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            queue: AdmissionQueue::new(options.limits.queue_limits()),
            bodies: Arc::new(Semaphore::new(bodies)),
            own_evidence: tokio::sync::Mutex::default(),
            metrics: Metrics::new(),
            options,
        }
    }

    fn appraise(&self, request: &AppraisalRequest) -> Result<AppraisalAnswer, RequestError> {
        let ServiceOptions { policies, key, issuer, audience, lifetime, clock, .. } = &self.options;
        let policy = policies.find(&request.policy_id)?;
        let gpu = request.gpu.as_ref();
        let evidence = Evidence {
            quote: &request.evidence,
            claims: request.claims.as_deref(),
            report_data: request.report_data,
            gpu: gpu.map(|gpu| PresentedGpuEvidence { evidence: &gpu.evidence, nonce: gpu.nonce }),
            // A caller cannot prove how the evidence was bound to a connection.
            binding: None,
        };
        let started = Instant::now();
        let verdict = policy.appraiser.judge_any_scope(&evidence, request.endorsements.as_deref());
        self.metrics.observe_appraisal(started.elapsed());
        let common = CommonClaims {
            issuer,
            audience,
            issued_at: clock(),
            lifetime_s: lifetime.as_secs(),
            policy_sha256: policy.sha256,
        };
        let outcome = AppraisalOutcome::from_verdict(&common, request, verdict)?;
        let token = key.sign(&outcome.claims).ok_or(RequestError::Signing)?;
        let mut body = json!({ "result": token });
        if let Some(reason) = outcome.reason {
            body["reason"] = reason.into();
        }
        Ok((outcome.outcome, json_answer(outcome.status, &body)))
    }
}

struct AppraisalOutcome {
    outcome: &'static str,
    status: StatusCode,
    claims: Value,
    reason: Option<String>,
}

impl AppraisalOutcome {
    fn from_verdict(
        common: &CommonClaims<'_>,
        request: &AppraisalRequest,
        verdict: Result<SharedAppraisal, AppraisalError>,
    ) -> Result<Self, RequestError> {
        match verdict {
            Ok(appraised) if appraised.is_simulated() => {
                let claims = result::accepted_claims(common, request, &appraised);
                let (status, reason) = (StatusCode::UNPROCESSABLE_ENTITY, result::SIMULATED);
                Ok(Self { outcome: "simulated", status, claims, reason: Some(reason.into()) })
            }
            Ok(appraised) => {
                let claims = result::accepted_claims(common, request, &appraised);
                let status = StatusCode::OK;
                Ok(Self { outcome: "accepted", status, claims, reason: None })
            }
            Err(AppraisalError::Rejected { rejection: no, .. }) if !no.reason().is_unreadable() => {
                let claims = result::rejected_claims(common, request, &no.to_json());
                // Not 200: a caller that checks only the status must not take it for an acceptance.
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let reason = Some(no.reason().to_string());
                Ok(Self { outcome: "rejected", status, claims, reason })
            }
            Err(error) => Err(RequestError::NotAppraisable(error.to_string())),
        }
    }
}

async fn answer_keys(site: &Arc<ServiceState>) -> Response<Full<Bytes>> {
    let mut jwk = site.options.key.jwk();
    if site.options.own_evidence.is_some() {
        let worker = Arc::clone(site);
        let _one = site.own_evidence.lock().await;
        let made = tokio::task::spawn_blocking(move || {
            let now = (worker.options.clock)();
            let own = worker.options.own_evidence.as_ref();
            own.map(|own| own.evidence_for_key(&worker.options.key, now)).transpose()
        });
        match made.await {
            Ok(Ok(Some(evidence))) => jwk["confide.evidence"] = evidence,
            Ok(Ok(None)) => {}
            // The key is served without evidence; a relying party that requires evidence refuses
            // it.
            Ok(Err(error)) => tracing::warn!(%error, "the key is published without evidence"),
            Err(_) => tracing::warn!("the key is published without evidence: the device failed"),
        }
    }
    json_answer(StatusCode::OK, &json!({ "keys": [jwk] }))
}

/// Reads the body, and returns it with a permit for each of its bytes. The permits are taken as the
/// bytes arrive, so that a caller who announces more than it sends does not occupy more.
async fn read_body(
    site: &ServiceState,
    body: Incoming,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), RequestError> {
    let ServiceLimits { body_bytes: limit, bodies_bytes, body_wait, .. } = site.options.limits;
    let mut body = Limited::new(body, limit);
    let whole = async {
        let (mut bytes, mut held) = (Vec::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => RequestError::BodyLength { limit },
                false => RequestError::BodyAborted,
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let full = RequestError::BodiesFull { limit: bodies_bytes };
            let permits = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&site.bodies).try_acquire_many_owned(permits) else {
                return Err(full);
            };
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    };
    let late = RequestError::BodyLate { limit: body_wait };
    tokio::time::timeout(body_wait, whole).await.unwrap_or(Err(late))
}

//! The routes of the service.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use confide_appraiser::{AppraisalError, SharedAppraisal};
use confide_evidence::GpuPresented;
use confide_http::{AdmissionQueue, metrics::MEDIA_TYPE};
use confide_verifier::Evidence;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    answer::{json_answer, method_answer, refusal, text_answer, without_body},
    case::AppraisalRequest,
    error::RequestError,
    limits::ServiceLimits,
    metrics::Metrics,
    options::ServiceOptions,
    result::{self, Frame},
};

/// The service behind its routes.
pub(crate) struct Site {
    options: ServiceOptions,
    queue: AdmissionQueue,
    /// Permits, one for each byte of the bodies that are held.
    bodies: Arc<Semaphore>,
    /// One caller makes the own evidence; the others wait without a thread each, so that appraisals
    /// keep theirs.
    own_evidence: tokio::sync::Mutex<()>,
    metrics: Metrics,
}

/// Methods of the routes that are read.
const READING: &[Method] = &[Method::GET, Method::HEAD];

/// Answers one request.
pub(crate) async fn answer(site: Arc<Site>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let methods = match head.uri.path() {
        "/v1/appraise" => &[Method::POST],
        "/.well-known/jwks.json" | "/health" | "/metrics" => READING,
        _ => return refusal(&RequestError::NoRoute),
    };
    if !methods.contains(&head.method) {
        return method_answer(methods);
    }
    let response = match head.uri.path() {
        "/v1/appraise" => answer_appraisal(&site, body).await,
        "/.well-known/jwks.json" => answer_keys(&site).await,
        "/health" => json_answer(StatusCode::OK, &json!({ "status": "ok" })),
        _ => text_answer(MEDIA_TYPE, site.metrics.encode(site.queue.waiting())),
    };
    if head.method == Method::HEAD { without_body(response) } else { response }
}

async fn answer_appraisal(site: &Arc<Site>, body: Incoming) -> Response<Full<Bytes>> {
    match judge(site, body).await {
        Ok((outcome, response)) => {
            site.metrics.count_request(outcome);
            response
        }
        Err(error) => {
            site.metrics.count_request(error.code());
            refusal(&error)
        }
    }
}

/// The word that counts an outcome, and the answer.
type Judged = (&'static str, Response<Full<Bytes>>);

async fn judge(site: &Arc<Site>, body: Incoming) -> Result<Judged, RequestError> {
    let (body, held) = read(site, body).await?;
    let case = AppraisalRequest::parse(&body)?;
    drop(body);
    // An unknown policy is refused before the request takes a place in the queue.
    site.options.policies.find(&case.policy_id)?;
    let permit = site.queue.enter().await?;
    let worker = Arc::clone(site);
    // Signatures take a core for a while; the event loop goes on meanwhile.
    let work = tokio::task::spawn_blocking(move || {
        let (_permit, _held) = (permit, held);
        worker.decide(&case)
    });
    work.await.map_err(|_| RequestError::Signing)?
}

impl Site {
    pub(crate) fn new(options: ServiceOptions) -> Self {
        let bodies = options.limits.bodies_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            queue: AdmissionQueue::new(options.limits.queue()),
            bodies: Arc::new(Semaphore::new(bodies)),
            own_evidence: tokio::sync::Mutex::default(),
            metrics: Metrics::new(),
            options,
        }
    }

    fn decide(&self, case: &AppraisalRequest) -> Result<Judged, RequestError> {
        let ServiceOptions { policies, key, issuer, audience, lifetime, clock, .. } = &self.options;
        let policy = policies.find(&case.policy_id)?;
        let gpu = case.gpu.as_ref();
        let evidence = Evidence {
            quote: &case.evidence,
            claims: case.claims.as_deref(),
            report_data: case.report_data,
            gpu: gpu.map(|gpu| GpuPresented { evidence: &gpu.evidence, nonce: gpu.nonce }),
            // A caller's statement on how the evidence was bound proves nothing.
            binding: None,
        };
        let started = Instant::now();
        let verdict = policy.appraiser.judge_any_scope(&evidence, case.endorsements.as_deref());
        self.metrics.observe_appraisal(started.elapsed());
        let frame = Frame {
            issuer,
            audience,
            issued_at: clock(),
            lifetime_s: lifetime.as_secs(),
            policy_sha256: policy.sha256,
        };
        let judgement = Judgement::from_verdict(&frame, case, verdict)?;
        let token = key.sign(&judgement.claims).ok_or(RequestError::Signing)?;
        let mut body = json!({ "result": token });
        if let Some(reason) = judgement.reason {
            body["reason"] = reason.into();
        }
        Ok((judgement.outcome, json_answer(judgement.status, &body)))
    }
}

struct Judgement {
    outcome: &'static str,
    status: StatusCode,
    claims: Value,
    reason: Option<String>,
}

impl Judgement {
    fn from_verdict(
        frame: &Frame<'_>,
        case: &AppraisalRequest,
        verdict: Result<SharedAppraisal, AppraisalError>,
    ) -> Result<Self, RequestError> {
        match verdict {
            Ok(appraised) if appraised.is_simulated() => {
                let claims = result::accepted_claims(frame, case, &appraised);
                let (status, reason) = (StatusCode::UNPROCESSABLE_ENTITY, result::SIMULATED);
                Ok(Self { outcome: "simulated", status, claims, reason: Some(reason.into()) })
            }
            Ok(appraised) => {
                let claims = result::accepted_claims(frame, case, &appraised);
                let status = StatusCode::OK;
                Ok(Self { outcome: "accepted", status, claims, reason: None })
            }
            Err(AppraisalError::Rejected(no)) if !no.reason().is_unreadable() => {
                let claims = result::rejected_claims(frame, case, &no.to_json());
                // Not 200: a caller that looks at the status alone must not take it for an acceptance.
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let reason = Some(no.reason().to_string());
                Ok(Self { outcome: "rejected", status, claims, reason })
            }
            Err(error) => Err(RequestError::Unjudged(error.to_string())),
        }
    }
}

async fn answer_keys(site: &Arc<Site>) -> Response<Full<Bytes>> {
    let mut jwk = site.options.key.jwk();
    if site.options.own_evidence.is_some() {
        let worker = Arc::clone(site);
        let _one = site.own_evidence.lock().await;
        let made = tokio::task::spawn_blocking(move || {
            let now = (worker.options.clock)();
            let own = worker.options.own_evidence.as_ref();
            own.map(|own| own.for_key(&worker.options.key, now)).transpose()
        });
        match made.await {
            Ok(Ok(Some(evidence))) => jwk["confide.evidence"] = evidence,
            Ok(Ok(None)) => {}
            // The key is served without evidence; a relying party that wants evidence refuses it.
            Ok(Err(error)) => tracing::warn!(%error, "the key is published without evidence"),
            Err(_) => tracing::warn!("the key is published without evidence: the device failed"),
        }
    }
    json_answer(StatusCode::OK, &json!({ "keys": [jwk] }))
}

/// The body, and a permit for each of its bytes: they are taken as the bytes come, so that a caller
/// who announces much and sends little takes little.
async fn read(
    site: &Site,
    body: Incoming,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), RequestError> {
    let ServiceLimits { body_bytes: limit, bodies_bytes, body_wait, .. } = site.options.limits;
    let mut body = Limited::new(body, limit);
    let whole = async {
        let (mut bytes, mut held) = (Vec::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => RequestError::BodyLength { limit },
                false => RequestError::BodyBroken,
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

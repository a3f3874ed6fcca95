//! Fresh evidence for a client whose session is open: `POST /.well-known/confide/evidence`.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_channel::{EVIDENCE_MEDIA_TYPE, ErrorOrigin, LiveSession};
use confide_http::error_chain;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full, Limited};

use crate::{
    answer::AnswerBody, client_body::ClientBody, evidence_fault::EvidenceFault,
    limits::GatewayLimits, metered_body::MeteredBody, refusal::RequestRefusal,
};

/// The longest request in bytes: a message with a context has 36, one with a request for an
/// authenticator 59 and, from other programs, up to 517.
const REQUEST_BYTES_MAX: usize = 517;

/// Answers a request at [`EVIDENCE_PATH`](confide_channel::EVIDENCE_PATH).
pub(crate) async fn answer(
    evidence: Option<&FreshEvidence>,
    method: &Method,
    body: ClientBody,
    limits: &GatewayLimits,
) -> Result<Response<AnswerBody>, RequestRefusal> {
    if method != Method::POST {
        return Err(RequestRefusal::Method("POST".into()));
    }
    evidence.ok_or(EvidenceFault::NoSessionBinding)?.answer(body, limits).await
}

/// The source of fresh evidence for the client of one connection, at most once in an interval.
pub(crate) struct FreshEvidence {
    live: LiveSession,
    latest: Mutex<Instant>,
}

impl FreshEvidence {
    /// The evidence of an open session, which was just shown for the first time.
    pub(crate) fn new(live: LiveSession) -> Self {
        Self { live, latest: Mutex::new(Instant::now()) }
    }

    async fn answer(
        &self,
        body: ClientBody,
        limits: &GatewayLimits,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let reading = Limited::new(body, REQUEST_BYTES_MAX).collect();
        let read = tokio::time::timeout(limits.request_body_pace.pause, reading).await;
        let message = read.map_err(|_| RequestRefusal::BodyPaused)?;
        let message = message.map_err(|_| EvidenceFault::Request)?.to_bytes();
        self.begin_quote(limits.evidence_interval)?;
        let reply = self.live.answer(&message, limits.handshake).await.map_err(|error| {
            tracing::info!(error = error_chain(&error), "no fresh evidence");
            match error.origin() {
                ErrorOrigin::Peer => EvidenceFault::Request,
                _ => EvidenceFault::Unavailable,
            }
        })?;
        Ok(evidence_response(reply.into()))
    }

    /// Takes the interval's one quote.
    fn begin_quote(&self, interval: Duration) -> Result<(), RequestRefusal> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.elapsed() < interval {
            return Err(EvidenceFault::TooSoon.into());
        }
        *latest = Instant::now();
        Ok(())
    }
}

fn evidence_response(message: Bytes) -> Response<AnswerBody> {
    let length = HeaderValue::from(message.len());
    let mut response = Response::new(MeteredBody::without_meter(Either::Right(Full::new(message))));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVIDENCE_MEDIA_TYPE));
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

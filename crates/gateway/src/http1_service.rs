//! Answers the requests of one client's connection of HTTP/1.1.

use std::sync::{Arc, Mutex, PoisonError};

use confide_http::{ConnectionPlace, DateLine, Http1RequestBody, Http1Service, http1::Http1Error};
use http::{HeaderValue, Request, Response, StatusCode, header};

use crate::{
    answer::{self, AnswerBody},
    client_body::ClientBody,
    client_connection::ClientConnection,
    configuration_version::ReplacementSignal,
    fresh_evidence::FreshEvidence,
    ohttp_gateway,
    proxy::Proxy,
    sealed_answer::GatewayBody,
    websocket_relay::{RelaySink, WebSocketRelay},
};

/// Asks the client to end the connection after this answer.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Answers the requests of one connection by the proxy.
pub(crate) struct ProxyService<'a> {
    proxy: &'a Arc<Proxy>,
    place: &'a ConnectionPlace,
    evidence: Option<Arc<FreshEvidence>>,
    replaced: ReplacementSignal,
    /// The WebSocket that the connection becomes.
    relay: Mutex<Option<Box<WebSocketRelay>>>,
}

impl<'a> ProxyService<'a> {
    pub(crate) fn new(
        proxy: &'a Arc<Proxy>,
        place: &'a ConnectionPlace,
        evidence: Option<Arc<FreshEvidence>>,
        replaced: ReplacementSignal,
    ) -> Self {
        Self { proxy, place, evidence, replaced, relay: Mutex::new(None) }
    }

    /// The WebSocket that the connection has become.
    pub(crate) fn into_relay(self) -> Option<Box<WebSocketRelay>> {
        self.relay.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Http1Service for ProxyService<'_> {
    type Body = GatewayBody;
    type Refusal = AnswerBody;

    async fn answer(&self, request: Request<Http1RequestBody>) -> Response<GatewayBody> {
        let connection = ClientConnection {
            peer: self.place.peer(),
            relays: RelaySink::Single(&self.relay),
            evidence: self.evidence.as_deref(),
        };
        let request = request.map(ClientBody::Http1);
        let mut answer = ohttp_gateway::answer(self.proxy, request, connection).await;
        if self.replaced.is_set() && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(header::CONNECTION, CLOSE);
        }
        answer
    }

    fn refuse_head(
        &self,
        status: StatusCode,
        code: &'static str,
        error: Http1Error,
    ) -> Response<AnswerBody> {
        tracing::info!(code, "request not read");
        answer::error_response(status, code, &error.to_string())
    }

    fn date_line(&self) -> Option<DateLine> {
        self.proxy.clock().map(|clock| DateLine::from_unix_s(clock()))
    }
}

//! A loopback address for any HTTP client, answered over attested connections.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use confide_channel::tunnel::{AllowedOrigins, RequestSource};
use confide_http::{
    Admission, AdmissionLimits, BodyPace, ClientHandshake, ClosingSignal, ConnectionDeadlines,
    ConnectionPlace, DateLine, DrainOutcome, ExchangeError, Http1Limits, Http1RequestBody,
    Http1Service, PacedBody, PeerStream, StallGuard, UNBOUNDED, WEBSOCKET_VERSION, accept_until,
    find_pace_fault, has_explicit_end, has_supported_transfer_codings,
    http1::{HeadLimits, Http1Error},
    is_websocket_request, remove_hop_by_hop, serve_http1, wait_until_closing,
};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header, response,
};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full};
use tokio::net::TcpListener;

use crate::{
    encrypted_client::EncryptedAnswerBody,
    error::{Blame, ClientError, RequestBodyError},
    limits::ClientLimits,
    origin,
    pool::WebSocketAnswer,
    replica_set::ReplicaSet,
    request_body::{RequestBody, streamed_body},
    websocket::{AttestedWebSocket, WebSocketSlot},
};

/// The largest number of fields of a local request's head, and of its trailers.
const REQUEST_FIELDS_MAX: usize = 100;
/// The path at which local programs find what was verified.
pub const VERIFICATION_PATH: &str = "/.well-known/confide/verification";

/// Describes what was verified last, as JSON.
pub type VerificationSource = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

type LocalBody = Either<EncryptedAnswerBody, Full<Bytes>>;

/// Forwards the requests that come to `listener` until `stop` resolves, then lets running answers
/// and WebSockets end.
///
/// It adds nothing to a request and stores none. An answer that breaks off reaches the local
/// client as a broken stream. The request of a web page is refused unless `origins` contains its
/// origin. Requests for [`VERIFICATION_PATH`] are answered here, with what `verification` gives.
/// `clock` returns Unix seconds.
pub async fn serve(
    listener: TcpListener,
    replicas: Arc<ReplicaSet>,
    origins: AllowedOrigins,
    limits: ClientLimits,
    verification: VerificationSource,
    clock: fn() -> u64,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let (names, origins) = (LocalNames::from_listener(&listener), Arc::new(origins));
    let pace = limits.request_body_pace;
    let local = LocalProxy { replicas, names, origins, pace, verification, clock };
    // All users of this address are programs of one machine, so the limit per peer does not apply.
    let admission = Admission::new(AdmissionLimits::for_one_peer(limits.local_connections));
    let serve = move |stream, place, closing| {
        serve_local_connection(stream, place, local.clone(), limits, closing)
    };
    accept_until(listener, admission, limits.drain, stop, serve).await
}

async fn serve_local_connection(
    stream: PeerStream,
    place: ConnectionPlace,
    local: LocalProxy,
    limits: ClientLimits,
    closing: ClosingSignal,
) {
    let stream = Box::new(StallGuard::new(stream, limits.write_stall));
    let service = LocalService { local, slot: WebSocketSlot::default() };
    let head = HeadLimits { bytes: limits.head_bytes, fields: REQUEST_FIELDS_MAX };
    let http = Http1Limits { head, body_linger: limits.local_body_linger };
    let idle = limits.local_idle;
    let deadlines = ConnectionDeadlines { first_request: idle, idle, grace: UNBOUNDED };
    let stop = wait_until_closing(closing);
    let upgraded = serve_http1(stream, &service, &place, http, deadlines, stop).await;
    // The WebSocket belongs to this task, so that an eviction or the end of the drain ends it too.
    if let Some((stream, websocket)) = upgraded.zip(service.slot.take()) {
        Box::pin(websocket.relay(stream, &place, &limits)).await;
    }
}

/// Answers the requests of one local connection.
struct LocalService {
    local: LocalProxy,
    /// The WebSocket that the connection becomes.
    slot: WebSocketSlot,
}

impl Http1Service for LocalService {
    type Body = LocalBody;
    type Refusal = LocalBody;

    async fn answer(&self, request: Request<Http1RequestBody>) -> Response<LocalBody> {
        self.local.refuse_or_forward(request, &self.slot).await
    }

    fn refuse_head(
        &self,
        status: StatusCode,
        code: &'static str,
        error: Http1Error,
    ) -> Response<LocalBody> {
        error_response(status, code, &error.to_string())
    }

    fn date_line(&self) -> Option<DateLine> {
        Some(DateLine::from_unix_s((self.local.clock)()))
    }
}

#[derive(Clone)]
struct LocalProxy {
    replicas: Arc<ReplicaSet>,
    names: LocalNames,
    origins: Arc<AllowedOrigins>,
    pace: BodyPace,
    verification: VerificationSource,
    clock: fn() -> u64,
}

impl LocalProxy {
    /// Answers one request. A WebSocket that the answer accepts is put into `slot`.
    async fn refuse_or_forward(
        &self,
        request: Request<Http1RequestBody>,
        slot: &WebSocketSlot,
    ) -> Response<LocalBody> {
        if !self.names.matches_host_header(request.headers()) {
            let message = "Host is not this address: the request may come from a web page";
            return error_response(StatusCode::MISDIRECTED_REQUEST, "foreign_host", message);
        }
        match origin::classify_source(&self.origins, request.headers()) {
            RequestSource::Program => self.forward(request, slot).await,
            RequestSource::AllowedPage => {
                let page = request.headers().get(header::ORIGIN).cloned();
                let mut answer = match origin::is_preflight(&request) {
                    true => preflight_answer(request.headers()),
                    false => self.forward(request, slot).await,
                };
                if let Some(page) = page {
                    origin::allow_cors_origin(page, answer.headers_mut());
                }
                answer
            }
            RequestSource::Page => {
                let message = "request comes from a web page whose origin is not allowed";
                error_response(StatusCode::FORBIDDEN, "foreign_origin", message)
            }
        }
    }

    fn answer_verification(&self, method: &Method) -> Response<LocalBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let message = format!("wanted GET or HEAD, got {method}");
            return error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
        }
        let mut response = json_response(StatusCode::OK, &(self.verification)());
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, no_store);
        response
    }

    async fn forward(
        &self,
        request: Request<Http1RequestBody>,
        slot: &WebSocketSlot,
    ) -> Response<LocalBody> {
        let (method, version) = (request.method().clone(), request.version());
        if request.uri().path() == VERIFICATION_PATH {
            return self.answer_verification(&method);
        }
        // TRACE would have the keys in a request's fields echoed (RFC 9110 section 9.3.8).
        if matches!(method, Method::CONNECT | Method::TRACE) {
            let message = format!("{method} is not forwarded");
            return error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
        }
        // Authority-form and asterisk-form have no path (RFC 9112 section 3.2).
        if !request.uri().path().starts_with('/') {
            let message = "request target has no path";
            return error_response(StatusCode::BAD_REQUEST, "bad_request_target", message);
        }
        if !has_supported_transfer_codings(request.headers()) {
            let message = "request body has an unsupported transfer coding: wanted none or chunked";
            return error_response(StatusCode::NOT_IMPLEMENTED, "transfer_coding", message);
        }
        let (mut head, body) = request.into_parts();
        let handshake = match is_websocket_request(&head) {
            // The bytes of a body would be read as those of the WebSocket.
            true => match ClientHandshake::take(&mut head).filter(|_| body.is_end_stream()) {
                Some(handshake) => Some(handshake),
                None => return bad_handshake_response(),
            },
            false => None,
        };
        let request = upstream_request(Request::from_parts(head, body), self.pace);
        let answered = match handshake {
            Some(handshake) => match self.replicas.open_websocket(request).await {
                Ok(WebSocketAnswer::Accepted(head, upstream)) => {
                    return accept_websocket(handshake, *head, upstream, slot);
                }
                Ok(WebSocketAnswer::Refused(answer)) => Ok(answer.map(Either::Left)),
                Err(failure) => Err(failure),
            },
            None => self.replicas.request(request).await,
        };
        match answered {
            Ok(answer) => pass_on(answer, &method, version),
            Err(failure) => failure_response(&failure),
        }
    }
}

/// Checks an answer of the attested end, and passes it on.
fn pass_on(
    answer: Response<EncryptedAnswerBody>,
    method: &Method,
    version: Version,
) -> Response<LocalBody> {
    // A decrypted answer has a final frame, however it is framed outside.
    let is_decrypted = matches!(answer.body(), Either::Right(_));
    if !is_decrypted && !has_explicit_end(&answer, method) {
        let message = "answer of the attested end has neither Content-Length nor chunks, so \
            a complete answer cannot be told from a truncated one";
        return error_response(StatusCode::BAD_GATEWAY, "attested_end_unframed", message);
    }
    if redirects_elsewhere(&answer) {
        let message = "attested end redirects to another address, which would not be verified";
        return error_response(StatusCode::BAD_GATEWAY, "redirect_elsewhere", message);
    }
    // HTTP/1.0 has no chunks, so a broken stream would look complete.
    if version == Version::HTTP_10 && answer.body().size_hint().exact().is_none() {
        let message = "a streamed answer needs HTTP/1.1";
        return error_response(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "http_1_1_needed", message);
    }
    let (mut head, body) = answer.into_parts();
    remove_hop_by_hop(&mut head.headers);
    origin::remove_cors_headers(&mut head.headers);
    Response::from_parts(head, Either::Left(body))
}

/// The answer to a local client whose WebSocket the attested end has accepted.
fn accept_websocket(
    handshake: ClientHandshake,
    mut head: response::Parts,
    upstream: AttestedWebSocket,
    slot: &WebSocketSlot,
) -> Response<LocalBody> {
    handshake.accept(&mut head);
    slot.put(upstream);
    origin::remove_cors_headers(&mut head.headers);
    Response::from_parts(head, Either::Right(Full::default()))
}

/// Whether a client that follows this redirect would leave the attested channel, with its prompt.
/// Only a redirect to a path certainly stays (RFC 3986 section 4.2; browsers read `\` as `/`).
fn redirects_elsewhere<B>(answer: &Response<B>) -> bool {
    let away = |location: &HeaderValue| match location.as_bytes() {
        [b'/', rest @ ..] => matches!(rest, [b'/' | b'\\', ..]),
        _ => true,
    };
    answer.status().is_redirection() && answer.headers().get_all(header::LOCATION).iter().any(away)
}

/// Converts a local request to the one for the attested end, with a path as its target and without
/// the fields of this connection.
fn upstream_request(request: Request<Http1RequestBody>, pace: BodyPace) -> Request<RequestBody> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().cloned();
    head.uri = path.map_or_else(|| http::Uri::from_static("/"), http::Uri::from);
    head.version = Version::HTTP_11;
    remove_hop_by_hop(&mut head.headers);
    // This proxy has checked the origin; the model server does not know the allowed ones.
    head.headers.remove(header::ORIGIN);
    let body = PacedBody::new(body.map_err(RequestBodyError), pace);
    Request::from_parts(head, streamed_body(body))
}

fn preflight_answer(asked: &HeaderMap) -> Response<LocalBody> {
    let mut answer = Response::new(Either::Right(Full::default()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    origin::permit_preflight(asked, answer.headers_mut());
    answer
}

/// The names under which a local client may call the listener.
///
/// A web page that makes its own name resolve to 127.0.0.1 still sends that name as `Host`.
#[derive(Clone, Copy)]
struct LocalNames {
    listen: Option<SocketAddr>,
}

impl LocalNames {
    fn from_listener(listener: &TcpListener) -> Self {
        // On other addresses the names are unknown; the user was warned when the address was
        // chosen.
        Self { listen: listener.local_addr().ok().filter(|address| address.ip().is_loopback()) }
    }

    fn matches_host_header(&self, headers: &HeaderMap) -> bool {
        if self.listen.is_none() {
            return true;
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(host) = host.to_str() else { return false };
        let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
        let name = authority.host();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        bare.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Converts a failure to an error response in OpenAI's format. A refusal names the failed check.
fn failure_response(failure: &ClientError) -> Response<LocalBody> {
    let text = failure.reason();
    tracing::warn!(error = %text, "request not answered");
    if let Some(fault) = find_pace_fault(failure) {
        return error_response(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            &format!("request {fault}"),
        );
    }
    let status = match failure {
        ClientError::Slow { .. } => StatusCode::GATEWAY_TIMEOUT,
        ClientError::Busy { .. } | ClientError::QueueFull { .. } => return busy_response(&text),
        ClientError::Unencrypted { status } => return unencrypted_response(*status, &text),
        ClientError::Unauthenticated { .. } => {
            return error_response(StatusCode::BAD_GATEWAY, "answer_not_authentic", &text);
        }
        ClientError::KeyReplaced => return retry_response("gateway_key_replaced", &text),
        ClientError::ReportUnavailable { .. } => {
            return retry_response("gateway_report_unavailable", &text);
        }
        ClientError::UnencryptedWebSocket => {
            let status = StatusCode::NOT_IMPLEMENTED;
            return error_response(status, "websocket_not_encrypted", &text);
        }
        ClientError::BadUpgrade { .. } => {
            return error_response(StatusCode::BAD_GATEWAY, "attested_end_bad_upgrade", &text);
        }
        ClientError::Http(ExchangeError::UnaskedUpgrade) => {
            return error_response(StatusCode::BAD_GATEWAY, "attested_end_unframed", &text);
        }
        _ => StatusCode::BAD_GATEWAY,
    };
    match (failure.blame(), failure.refusal()) {
        (Blame::Local, _) if matches!(failure, ClientError::Http(_)) => {
            error_response(StatusCode::BAD_REQUEST, "local_body_malformed", &text)
        }
        (_, Some(refusal)) => {
            error_response(status, "evidence_rejected", &refusal.describe("the server"))
        }
        _ => error_response(status, "attested_end_unavailable", &text),
    }
}

/// The response to a request whose answer came in clear: its status, if it is one of a failure, so that
/// the client may try again, and nothing else of it.
fn unencrypted_response(status: StatusCode, text: &str) -> Response<LocalBody> {
    let is_failure = status.is_client_error() || status.is_server_error();
    let status = if is_failure { status } else { StatusCode::BAD_GATEWAY };
    error_response(status, "answer_not_encrypted", text)
}

/// The response 503 with `Retry-After`: a later request fetches a new report. The body that was
/// sent is gone, so the request cannot be repeated here.
fn retry_response(code: &str, text: &str) -> Response<LocalBody> {
    let mut answer = error_response(StatusCode::SERVICE_UNAVAILABLE, code, text);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// The response 400 to an invalid handshake, with the version that is supported (RFC 6455 section
/// 4.2.2).
fn bad_handshake_response() -> Response<LocalBody> {
    let message = "wanted a WebSocket handshake of version 13 (RFC 6455) without a body";
    let mut answer = error_response(StatusCode::BAD_REQUEST, "bad_websocket_handshake", message);
    answer.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, WEBSOCKET_VERSION);
    answer
}

/// The response 503 with `Retry-After`, since the queue will have room again.
fn busy_response(text: &str) -> Response<LocalBody> {
    let message = format!("{text}; change --requests or --requests-waiting of `confide connect`");
    let mut answer = error_response(StatusCode::SERVICE_UNAVAILABLE, "connect_busy", &message);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn error_response(status: StatusCode, code: &str, message: &str) -> Response<LocalBody> {
    let error = serde_json::json!({
        "error": { "message": message, "type": "confide_error", "param": null, "code": code }
    });
    json_response(status, &error)
}

fn json_response(status: StatusCode, content: &serde_json::Value) -> Response<LocalBody> {
    let body = Bytes::from(content.to_string());
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Either::Right(Full::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, length);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_another_name_does_not_reach_a_loopback_listener() {
        let names = LocalNames { listen: Some("127.0.0.1:8080".parse().unwrap()) };
        for (host, wanted) in [
            ("127.0.0.1:8080", true),
            ("LocalHost:8080", true),
            ("[::1]:8080", true),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            assert_eq!(names.matches_host_header(&headers), wanted, "{host}");
        }
        assert!(!names.matches_host_header(&HeaderMap::new()));
        assert!(LocalNames { listen: None }.matches_host_header(&HeaderMap::new()));
    }
}

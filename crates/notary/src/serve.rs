//! Accepts attested connections, answers on the notary's three routes, and drains at the stop.

use std::{convert::Infallible, future::Future, sync::Arc};

use bytes::Bytes;
use confide_channel::Server;
use confide_http::{
    Admission, ClosingSignal, ConnectionDeadlines, ConnectionPlace, DrainOutcome, PeerStream,
    StallGuard, UNBOUNDED, accept_until, error_chain, serve_connection, wait_until_closing,
};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::timeout};

use crate::{
    error::ExchangeError,
    exchange::{ExchangeContext, FrameStream},
    exchange_slots::ClientIdentity,
    limits::{NotaryLimits, REQUEST_HEAD_BYTES_MAX},
    refusal::Refusal,
    request::FetchRequest,
    signed::KeyEvidence,
};

/// The path of the notary's configuration and its digest, which anyone can recompute.
pub const WELL_KNOWN_PATH: &str = "/.well-known/confide";

/// The path of the evidence over the signing key.
pub const KEY_PATH: &str = "/v1/key";

/// The path to which requests are sent.
pub const FETCH_PATH: &str = "/v1/fetch";

/// The media type of requests and answers.
pub const MEDIA_TYPE: &str = "application/vnd.confide.notary.v1";

/// The largest head of a client's HTTP request in bytes: it needs only three fields.
const HTTP_HEAD_BYTES_MAX: usize = 16 * 1024;

/// Finds the name of the client with a credential, for a notary that serves listed clients only.
pub type ClientLookup = Box<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// The state that all connections share.
pub(crate) struct NotaryState {
    pub(crate) channel: Server,
    pub(crate) find_client: Option<ClientLookup>,
    pub(crate) description: Bytes,
    pub(crate) exchanges: Arc<ExchangeContext>,
    pub(crate) limits: NotaryLimits,
}

pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<NotaryState>,
    admission: Admission,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let drain = shared.limits.drain;
    let serve =
        move |stream, place, closing| serve_one_connection(stream, place, shared.clone(), closing);
    accept_until(listener, admission, drain, stop, serve).await
}

async fn serve_one_connection(
    stream: PeerStream,
    place: ConnectionPlace,
    shared: Arc<NotaryState>,
    mut closing: ClosingSignal,
) {
    let client = ClientIdentity::At(place.peer());
    let opened = tokio::select! {
        opened = shared.channel.accept(stream) => opened,
        _ = closing.changed() => return,
    };
    let stream = match opened {
        Ok(accepted) => StallGuard::new(accepted.stream, shared.limits.write_stall),
        Err(refusal) => {
            return tracing::info!(refusal = error_chain(&refusal), "connection refused");
        }
    };
    let limits = shared.limits;
    let service = service_fn(|request| {
        let (shared, client) = (shared.clone(), client.clone());
        place.run_exchange(async move {
            Ok::<_, Infallible>(answer_request(&shared, client, request).await)
        })
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_header_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let deadlines =
        ConnectionDeadlines { first_request: limits.idle, idle: UNBOUNDED, grace: UNBOUNDED };
    serve_connection(http, &place, deadlines, wait_until_closing(closing)).await;
}

type ResponseBody = Either<Full<Bytes>, FrameStream>;

async fn answer_request(
    shared: &NotaryState,
    client: ClientIdentity,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let route = (request.method().clone(), request.uri().path().to_owned());
    match (&route.0, route.1.as_str()) {
        (&Method::GET, WELL_KNOWN_PATH) => {
            full_response(StatusCode::OK, "application/json", shared.description.clone())
        }
        (&Method::GET, KEY_PATH) => match shared.exchanges.keys.usable_key().await {
            Ok(key) => {
                let bound = KeyEvidence { key: key.public, evidence: key.evidence.clone() };
                full_response(StatusCode::OK, MEDIA_TYPE, bound.encode().into())
            }
            Err(error) => refusal_response(&ExchangeError::Key(error).refusal()),
        },
        (&Method::POST, FETCH_PATH) => match fetch(shared, client, request).await {
            Ok(frames) => build_response(StatusCode::OK, MEDIA_TYPE, Either::Right(frames)),
            Err(error) => {
                tracing::info!(code = error.code(), "a request was refused");
                refusal_response(&error.refusal())
            }
        },
        (_, WELL_KNOWN_PATH | KEY_PATH | FETCH_PATH) => refusal_response(&Refusal::new(
            "method_not_allowed",
            "wanted GET, or POST of a request",
        )),
        _ => {
            let wanted = format!("wanted {FETCH_PATH}, {KEY_PATH} or {WELL_KNOWN_PATH}");
            refusal_response(&Refusal::new("not_found", wanted))
        }
    }
}

async fn fetch(
    shared: &NotaryState,
    client: ClientIdentity,
    request: Request<Incoming>,
) -> Result<FrameStream, ExchangeError> {
    let client = identify_client(shared.find_client.as_ref(), client, &request)?;
    let NotaryLimits { request: deadline, request_bytes: wanted, .. } = shared.limits;
    let body = Limited::new(request.into_body(), 4 + REQUEST_HEAD_BYTES_MAX + wanted);
    let bytes = timeout(deadline, body.collect())
        .await
        .map_err(|_| ExchangeError::RequestTimeout { deadline })?
        // The body is too long, or the sender has disconnected and reads no answer.
        .map_err(|_| ExchangeError::RequestTooLarge { wanted })?
        .to_bytes();
    shared.exchanges.run(FetchRequest::decode(&bytes)?, &client).await
}

/// Identifies the client by its credential, if clients are listed, before the body is read.
fn identify_client(
    find_client: Option<&ClientLookup>,
    address: ClientIdentity,
    request: &Request<Incoming>,
) -> Result<ClientIdentity, ExchangeError> {
    let Some(find_client) = find_client else { return Ok(address) };
    let field = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let credential = field.and_then(|field| field.strip_prefix(b"Bearer "));
    credential.and_then(find_client).map(ClientIdentity::Named).ok_or(ExchangeError::UnknownClient)
}

fn refusal_response(refusal: &Refusal) -> Response<ResponseBody> {
    full_response(refusal.status(), "application/json", refusal.to_json().into())
}

fn full_response(status: StatusCode, media: &'static str, bytes: Bytes) -> Response<ResponseBody> {
    build_response(status, media, Either::Left(Full::new(bytes)))
}

fn build_response(
    status: StatusCode,
    media: &'static str,
    body: ResponseBody,
) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

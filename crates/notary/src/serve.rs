//! Accepts attested connections, answers the notary's three routes, drains when asked to stop.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use confide_channel::{ChannelError, Server};
use confide_evidence::Appraise;
use confide_http::{
    Admission, Closing, ConnectionDeadlines, Drained, Occupancy, PeerStream, StallGuard, UNBOUNDED,
    accept_until, serve_connection, wait_until_closing,
};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::timeout};
use tokio_rustls::server::TlsStream;

use crate::{
    error::ExchangeError,
    exchange::{Exchanges, Frames},
    limits::{Limits, REQUEST_HEAD_BYTES_MAX},
    places::Client,
    refusal::Refusal,
    request::FetchRequest,
    signed::KeyEvidence,
};

/// Path of the notary's configuration and digest, from which anyone can recompute the digest.
pub const WELL_KNOWN_PATH: &str = "/.well-known/confide";

/// Path of the evidence over the signing key.
pub const KEY_PATH: &str = "/v1/key";

/// Path to which requests are sent.
pub const FETCH_PATH: &str = "/v1/fetch";

/// The media type of requests and answers.
pub const MEDIA_TYPE: &str = "application/vnd.confide.notary.v1";

/// The largest size in bytes of the head of a client's HTTP request: three fields are wanted.
const HTTP_HEAD_BYTES_MAX: usize = 16 * 1024;

/// Finds the name of the client that has this credential, where a notary does not fetch for everybody.
pub type ClientLookup = Box<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) channel: Server,
    pub(crate) find_client: Option<ClientLookup>,
    /// Appraises the evidence of clients; without it none is asked for.
    pub(crate) demand: Option<Box<dyn DemandEvidence>>,
    pub(crate) description: Bytes,
    pub(crate) exchanges: Arc<Exchanges>,
    pub(crate) limits: Limits,
}

pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    admission: Admission,
    stop: impl Future<Output = ()>,
) -> Drained {
    let drain = shared.limits.drain;
    let serve = move |stream, place, closing| connection(stream, place, shared.clone(), closing);
    accept_until(listener, admission, drain, stop, serve).await
}

async fn connection(
    stream: PeerStream,
    place: Occupancy,
    shared: Arc<Shared>,
    mut closing: Closing,
) {
    let client = Client::At(place.peer());
    let opened = tokio::select! {
        opened = open(&shared, stream) => opened,
        _ = closing.changed() => return,
    };
    let stream = match opened {
        Ok(stream) => StallGuard::new(stream, shared.limits.write_stall),
        Err(refusal) => return tracing::info!(%refusal, "connection refused"),
    };
    let limits = shared.limits;
    let service = service_fn(|request| {
        let (shared, client) = (shared.clone(), client.clone());
        place.run_exchange(
            async move { Ok::<_, Infallible>(answer(&shared, client, request).await) },
        )
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_header_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let deadlines = ConnectionDeadlines { first_request: limits.idle, grace: UNBOUNDED };
    serve_connection(http, &place, deadlines, wait_until_closing(closing)).await;
}

type Channel = TlsStream<PeerStream>;

async fn open(shared: &Shared, stream: PeerStream) -> Result<Channel, ChannelError> {
    match &shared.demand {
        None => Ok(shared.channel.accept(stream).await?.stream),
        Some(demand) => demand.accept(&shared.channel, stream).await,
    }
}

type Accepting<'a> = Pin<Box<dyn Future<Output = Result<Channel, ChannelError>> + Send + 'a>>;

/// Any [`Appraise`] by which the clients of a channel are judged.
pub(crate) trait DemandEvidence: Send + Sync {
    fn accept<'a>(&'a self, channel: &'a Server, stream: PeerStream) -> Accepting<'a>;
}

impl<A: Appraise> DemandEvidence for A {
    fn accept<'a>(&'a self, channel: &'a Server, stream: PeerStream) -> Accepting<'a> {
        Box::pin(async move {
            let attested = channel.accept_attested(self, stream).await?;
            Ok(attested.into_parts().0)
        })
    }
}

type Body = Either<Full<Bytes>, Frames>;

async fn answer(shared: &Shared, client: Client, request: Request<Incoming>) -> Response<Body> {
    let route = (request.method().clone(), request.uri().path().to_owned());
    match (&route.0, route.1.as_str()) {
        (&Method::GET, WELL_KNOWN_PATH) => {
            full_response(StatusCode::OK, "application/json", shared.description.clone())
        }
        (&Method::GET, KEY_PATH) => match shared.exchanges.keys.usable().await {
            Ok(key) => {
                let bound = KeyEvidence { key: key.public, evidence: key.evidence.clone() };
                full_response(StatusCode::OK, MEDIA_TYPE, bound.encode().into())
            }
            Err(error) => refusal_response(&ExchangeError::Key(error).refusal()),
        },
        (&Method::POST, FETCH_PATH) => match fetch(shared, client, request).await {
            Ok(frames) => response(StatusCode::OK, MEDIA_TYPE, Either::Right(frames)),
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
    shared: &Shared,
    client: Client,
    request: Request<Incoming>,
) -> Result<Frames, ExchangeError> {
    let client = identify_client(shared.find_client.as_ref(), client, &request)?;
    let Limits { request: deadline, request_bytes: wanted, .. } = shared.limits;
    let body = Limited::new(request.into_body(), 4 + REQUEST_HEAD_BYTES_MAX + wanted);
    let bytes = timeout(deadline, body.collect())
        .await
        .map_err(|_| ExchangeError::RequestTimeout { deadline })?
        // It is too long, or its sender went away and reads no answer.
        .map_err(|_| ExchangeError::RequestTooLarge { wanted })?
        .to_bytes();
    shared.exchanges.run(FetchRequest::decode(&bytes)?, &client).await
}

/// Identifies the client by its credential, where a list says who is served, before a body is read.
fn identify_client(
    find_client: Option<&ClientLookup>,
    address: Client,
    request: &Request<Incoming>,
) -> Result<Client, ExchangeError> {
    let Some(find_client) = find_client else { return Ok(address) };
    let field = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let credential = field.and_then(|field| field.strip_prefix(b"Bearer "));
    credential.and_then(find_client).map(Client::Named).ok_or(ExchangeError::UnknownClient)
}

fn refusal_response(refusal: &Refusal) -> Response<Body> {
    full_response(refusal.status(), "application/json", refusal.to_json().into())
}

fn full_response(status: StatusCode, media: &'static str, bytes: Bytes) -> Response<Body> {
    response(status, media, Either::Left(Full::new(bytes)))
}

fn response(status: StatusCode, media: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

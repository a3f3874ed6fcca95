//! A connection to the upstream, which carries one request at a time.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri, header, request, uri::PathAndQuery};
use http_body_util::{BodyExt, Either, Full, Limited};
use tokio::net::TcpStream;

use crate::{
    body::{LimitedBody, LingeringBody},
    fault::{UpstreamFailure, UpstreamFault},
    http1_connection::{AnswerFault, Http1Answer, Http1Connection},
    limits::GatewayLimits,
    request_model::MODELS_PATH,
    upstream::Upstream,
    upstream_socket::UpstreamSocket,
};

/// The body of a request to the upstream: streamed, or in memory and possibly empty.
pub(crate) type RequestBody = Either<LimitedBody<LingeringBody>, Full<Bytes>>;

/// The largest number of bytes of a list of models, enough for thousands of models.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// A connection on which no request runs.
pub(crate) struct Connection(Box<Http1Connection>);

/// An answer that is being read, with its connection.
pub(crate) type OpenAnswer = Http1Answer;

/// The upstream's answer to the request for its list of models.
pub(crate) enum ModelList {
    /// The body of an answer with status 200.
    List(Bytes),
    /// The status of any other answer.
    Refused(http::StatusCode),
}

impl Connection {
    /// Opens a TCP connection, with TLS to an https upstream.
    pub(crate) async fn open(
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure> {
        let until = tokio::time::Instant::now() + limits.upstream_connect;
        let dial = TcpStream::connect(upstream.authority().as_str());
        let stream = in_connect_deadline(upstream, until, dial).await?;
        // A request is a small write, which Nagle's algorithm would delay.
        let _ = stream.set_nodelay(true);
        let Some(name) = upstream.server_name() else {
            let socket = UpstreamSocket::Plain(stream);
            return Ok(Self(Http1Connection::new(socket, limits)));
        };
        let Some(roots) = upstream.roots() else {
            let reason = format!("{}: its root certificates were not read", upstream.authority());
            return Err(UpstreamFailure::new(UpstreamFault::Unreachable, reason));
        };
        let handshake = roots.connect(name.clone(), stream);
        let stream = in_connect_deadline(upstream, until, handshake).await?;
        let socket = UpstreamSocket::Tls(Box::new(stream));
        Ok(Self(Http1Connection::new(socket, limits)))
    }

    /// Sends one request. Its answer holds the connection.
    pub(crate) async fn send(
        self,
        request: Request<RequestBody>,
    ) -> Result<Response<OpenAnswer>, UnansweredRequest> {
        self.0.send(request).await
    }

    /// The connection of an answer, if the exchange is over and another request may follow.
    pub(crate) fn from_answer(answer: OpenAnswer) -> Option<Self> {
        answer.into_idle_connection().map(Self)
    }

    /// Sends a GET request of the gateway's own.
    pub(crate) async fn get(
        self,
        upstream: &Upstream,
        path: &PathAndQuery,
    ) -> Result<Response<OpenAnswer>, UpstreamFailure> {
        let malformed =
            |error: http::Error| UpstreamFailure::from_error(UpstreamFault::Malformed, &error);
        let target: Uri = upstream.target_for(path).map_err(malformed)?;
        let request = Request::get(target)
            .header(header::HOST, upstream.host_header())
            .body(Either::Right(Full::default()))
            .map_err(malformed)?;
        self.send(request).await.map_err(UnansweredRequest::into_failure)
    }

    /// Requests the list of models that the upstream serves. Returns it with the connection, if
    /// another request may follow.
    pub(crate) async fn list_models(
        self,
        upstream: &Upstream,
        deadline: Duration,
    ) -> Result<(ModelList, Option<Self>), UpstreamFailure> {
        let exchange = async {
            let response = self.get(upstream, &PathAndQuery::from_static(MODELS_PATH)).await?;
            if !response.status().is_success() {
                return Ok((ModelList::Refused(response.status()), None));
            }
            let mut answer = response.into_body();
            let body = Limited::new(&mut answer, LIST_BYTES_MAX).collect().await;
            let body = body.map_err(|error| {
                UpstreamFailure::new(UpstreamFault::BrokeOff, format!("list of models: {error}"))
            })?;
            Ok((ModelList::List(body.to_bytes()), Self::from_answer(answer)))
        };
        let slow = || {
            let reason = format!("no list of models within {deadline:?}");
            UpstreamFailure::new(UpstreamFault::NotReady, reason)
        };
        tokio::time::timeout(deadline, exchange).await.map_err(|_| slow())?
    }

    /// Whether the upstream has neither closed the connection nor sent anything unasked, as the
    /// kernel knows it now.
    pub(crate) fn is_open_and_silent(&mut self) -> bool {
        self.0.is_open_and_silent()
    }

    /// Waits at most `limit` for the upstream to close the connection; returns whether it did, or
    /// sent something unasked.
    pub(crate) async fn closes_within(&mut self, limit: Duration) -> bool {
        let _ = tokio::time::timeout(limit, self.0.wait_for_bytes_or_end()).await;
        !self.is_open_and_silent()
    }
}

/// Waits for a step of opening a connection, until the deadline for all of them. The reason of a
/// failure says why a certificate was refused; it is for the operator only.
async fn in_connect_deadline<T>(
    upstream: &Upstream,
    until: tokio::time::Instant,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, UpstreamFailure> {
    let outcome = tokio::time::timeout_at(until, step).await;
    let outcome = outcome.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    outcome.map_err(|error| {
        let reason = format!("{}: {error}", upstream.authority());
        UpstreamFailure::new(UpstreamFault::Unreachable, reason)
    })
}

/// A request that was sent, in part or whole, and got no answer.
pub(crate) struct UnansweredRequest {
    /// Whether any byte was received after the request was sent.
    pub(crate) has_received: bool,
    pub(crate) fault: AnswerFault,
}

impl UnansweredRequest {
    pub(crate) fn new(fault: AnswerFault, has_received: bool) -> Self {
        Self { has_received, fault }
    }

    pub(crate) fn into_failure(self) -> UpstreamFailure {
        UpstreamFailure::from_error(UpstreamFault::classify(&self.fault), &self.fault)
    }
}

/// Makes a request without a body from its head.
pub(crate) fn bodiless_request(head: request::Parts) -> Request<RequestBody> {
    Request::from_parts(head, Either::Right(Full::default()))
}

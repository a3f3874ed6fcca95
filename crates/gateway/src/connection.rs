//! Connections to an upstream, in both versions of HTTP, and the gateway's own requests on them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use confide_http::{
    Http1Answer, Http1Connection, RewoundStream, has_explicit_end, http1::HeadLimits,
};
use http::{Method, Request, Response, Uri, header, uri::PathAndQuery};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Full, Limited};
use tokio::net::TcpStream;

use crate::{
    answer_fault::AnswerFault,
    fault::{UpstreamFailure, UpstreamFault},
    http_version::HttpVersion,
    http2_session::{Http2Answer, Http2Session, Http2Stream},
    limits::GatewayLimits,
    request_model::MODELS_PATH,
    upstream::Upstream,
    upstream_request::{RequestBody, UnansweredRequest},
    upstream_socket::{UpstreamSocket, probe_at_silence},
};

/// The largest number of bytes of a list of models, enough for thousands of models.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// A stream after a change of protocols.
pub(crate) type UpgradedSocket = RewoundStream<UpstreamSocket>;

/// The largest number of fields of an answer's head, and of its trailers.
const ANSWER_FIELDS_MAX: usize = 100;

/// A connection on which no request runs, or a free stream of one.
pub(crate) enum Connection {
    Http1(Box<Http1Connection<UpstreamSocket>>),
    Http2(Http2Stream),
}

/// An answer that is being read, with its connection.
pub(crate) enum OpenAnswer {
    Http1(Http1Answer<UpstreamSocket, RequestBody>),
    Http2(Http2Answer),
}

/// The upstream's answer to the request for its list of models.
pub(crate) enum ModelList {
    /// The body of an answer with status 200.
    List(Bytes),
    /// The status of any other answer.
    Refused(http::StatusCode),
}

impl Connection {
    /// Opens a connection of HTTP/1.1.
    pub(crate) async fn open_http1(
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure> {
        let socket = open_socket(upstream, HttpVersion::Http1, limits).await?;
        let head = HeadLimits { bytes: limits.upstream_head_bytes, fields: ANSWER_FIELDS_MAX };
        Ok(Self::Http1(Http1Connection::new(socket, head)))
    }

    /// Opens a connection of the version that the upstream is configured for.
    pub(crate) async fn open(
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure> {
        if !upstream.speaks_http2() {
            return Self::open_http1(upstream, limits).await;
        }
        let session = open_http2_session(upstream, limits).await?;
        session.claim().map(Self::Http2).ok_or_else(|| no_free_stream(upstream))
    }

    /// Sends one request. Its answer holds the connection.
    pub(crate) async fn send(
        self,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<OpenAnswer>, UnansweredRequest> {
        match self {
            Self::Http1(connection) => {
                let answer = connection.send(request).await;
                answer.map(|answer| answer.map(OpenAnswer::Http1)).map_err(UnansweredRequest::from)
            }
            Self::Http2(stream) => {
                // Boxed, so that requests of HTTP/1.1 do not hold room for it.
                let answer = Box::pin(stream.send(request)).await;
                answer.map(|answer| answer.map(OpenAnswer::Http2))
            }
        }
    }

    /// The connection of an answer, if the exchange is over and another request may follow.
    pub(crate) fn from_answer(answer: OpenAnswer) -> Option<Self> {
        match answer {
            OpenAnswer::Http1(answer) => answer.into_idle_connection().map(Self::Http1),
            OpenAnswer::Http2(answer) => answer.into_idle_stream().map(Self::Http2),
        }
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
        self.send(Box::new(request)).await.map_err(UnansweredRequest::into_failure)
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
    /// kernel knows it now. A stream of HTTP/2 needs no test: a request that crosses the end of its
    /// connection was not processed, and that is known.
    pub(crate) fn is_open_and_silent(&mut self) -> bool {
        match self {
            Self::Http1(connection) => {
                connection.silent_stream().is_some_and(UpstreamSocket::is_open_and_silent)
            }
            Self::Http2(_) => true,
        }
    }

    /// Waits at most `limit` for the upstream to close the connection; returns whether it did, or
    /// sent something unasked.
    pub(crate) async fn closes_within(&mut self, limit: Duration) -> bool {
        if let Self::Http1(connection) = self
            && let Some(socket) = connection.silent_stream()
        {
            let _ = tokio::time::timeout(limit, socket.wait_for_bytes_or_end()).await;
        }
        !self.is_open_and_silent()
    }
}

impl OpenAnswer {
    /// Whether the end of the answer differs from a broken connection.
    pub(crate) fn has_explicit_end(answer: &Response<Self>, method: &Method) -> bool {
        let is_http2 = matches!(answer.body(), Self::Http2(_));
        (is_http2 && !answer.status().is_informational()) || has_explicit_end(answer, method)
    }

    /// The stream, after an answer that changes the protocol, which HTTP/2 does not have.
    pub(crate) fn into_upgraded(self) -> Option<UpgradedSocket> {
        match self {
            Self::Http1(answer) => Some(answer.into_upgraded()),
            Self::Http2(_) => None,
        }
    }
}

impl Body for OpenAnswer {
    type Data = Bytes;
    type Error = AnswerFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        match self.get_mut() {
            Self::Http1(answer) => Pin::new(answer).poll_frame(cx).map_err(AnswerFault::Http1),
            Self::Http2(answer) => Pin::new(answer).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(answer) => answer.is_end_stream(),
            Self::Http2(answer) => answer.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(answer) => answer.size_hint(),
            Self::Http2(answer) => answer.size_hint(),
        }
    }
}

/// Opens a TCP connection, with TLS to an https upstream.
async fn open_socket(
    upstream: &Upstream,
    version: HttpVersion,
    limits: &GatewayLimits,
) -> Result<UpstreamSocket, UpstreamFailure> {
    let until = tokio::time::Instant::now() + limits.upstream_connect;
    let dial = TcpStream::connect(upstream.authority().as_str());
    let stream = in_connect_deadline(upstream, until, dial).await?;
    // A request is a small write, which Nagle's algorithm would delay.
    let _ = stream.set_nodelay(true);
    probe_at_silence(&stream, limits.upstream_silence);
    let Some(name) = upstream.server_name() else {
        return Ok(UpstreamSocket::Plain(stream));
    };
    let Some(roots) = upstream.roots() else {
        let reason = format!("{}: its root certificates were not read", upstream.authority());
        return Err(UpstreamFailure::new(UpstreamFault::Unreachable, reason));
    };
    let handshake = roots.connect(name.clone(), stream, version);
    let stream = in_connect_deadline(upstream, until, handshake).await?;
    Ok(UpstreamSocket::Tls(Box::new(stream)))
}

/// Opens a connection of HTTP/2.
pub(crate) async fn open_http2_session(
    upstream: &Upstream,
    limits: &GatewayLimits,
) -> Result<Http2Session, UpstreamFailure> {
    let until = tokio::time::Instant::now() + limits.upstream_connect;
    let socket = open_socket(upstream, HttpVersion::Http2, limits).await?;
    let starting = async {
        let started = Http2Session::start(socket, upstream, limits).await;
        started.map_err(|reason| io::Error::other(format!("HTTP/2: {reason}")))
    };
    in_connect_deadline(upstream, until, starting).await
}

/// The failure of a connection that takes no request.
pub(crate) fn no_free_stream(upstream: &Upstream) -> UpstreamFailure {
    let reason = format!("{}: its new connection takes no request", upstream.authority());
    UpstreamFailure::new(UpstreamFault::BrokeOff, reason)
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

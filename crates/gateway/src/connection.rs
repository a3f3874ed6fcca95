//! One connection to the upstream, which carries one request at a time.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, Uri, header, request, uri::PathAndQuery};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{self, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};

use crate::{
    body::{LimitedBody, LingeringBody},
    fault::{UpstreamFailure, UpstreamFault},
    limits::GatewayLimits,
    request_model::MODELS_PATH,
    upstream::Upstream,
    upstream_stream::{UpstreamStreamState, observe_socket, observe_upstream_stream},
};

/// The body of a request to the upstream: streamed, or in memory and possibly empty.
pub(crate) type RequestBody = Either<LimitedBody<LingeringBody>, Full<Bytes>>;

/// The largest number of bytes of a list of models, enough for thousands of models.
const LIST_BYTES_MAX: usize = 1024 * 1024;
/// The longest wait for a connection to become ready after its last answer; one that takes longer
/// counts as stuck.
const READY_DEADLINE: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    sender: SendRequest<RequestBody>,
    wire: Arc<UpstreamStreamState>,
    ended: watch::Receiver<Option<Instant>>,
    head_bytes_max: usize,
}

/// The upstream's answer to the request for its list of models.
pub(crate) enum ModelList {
    /// The body of an answer with status 200.
    List(Bytes),
    /// The status of any other answer.
    Refused(http::StatusCode),
}

impl Connection {
    /// Opens a TCP connection, with TLS to an https upstream, and starts HTTP on it.
    pub(crate) async fn open(
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure> {
        let until = tokio::time::Instant::now() + limits.upstream_connect;
        let dial = TcpStream::connect(upstream.authority().as_str());
        let stream = in_connect_deadline(upstream, until, dial).await?;
        // A request is a small write, which Nagle's algorithm would delay.
        let _ = stream.set_nodelay(true);
        let wire = Arc::new(UpstreamStreamState::default());
        let stream = observe_socket(stream, &wire);
        let Some(name) = upstream.server_name() else {
            return Self::start_http(stream, wire, limits).await;
        };
        let Some(roots) = upstream.roots() else {
            let reason = format!("{}: its root certificates were not read", upstream.authority());
            return Err(UpstreamFailure::new(UpstreamFault::Unreachable, reason));
        };
        let handshake = roots.connect(name.clone(), stream);
        let stream = in_connect_deadline(upstream, until, handshake).await?;
        Self::start_http(stream, wire, limits).await
    }

    async fn start_http<S>(
        stream: S,
        wire: Arc<UpstreamStreamState>,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = observe_upstream_stream(stream, &wire);
        let (sender, connection) = http1::Builder::new()
            .max_header_size(limits.upstream_head_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| UpstreamFailure::from_error(UpstreamFault::BrokeOff, &error))?;
        let (at_end, ended) = watch::channel(None);
        tokio::spawn(async move {
            // A WebSocket takes the stream with it.
            let outcome = connection.with_upgrades().await;
            at_end.send_replace(Some(Instant::now()));
            if let Err(error) = outcome {
                tracing::debug!(%error, "connection to the upstream ended early");
            }
        });
        Ok(Self { sender, wire, ended, head_bytes_max: limits.upstream_head_bytes })
    }

    /// Sends one request. If nothing of the request was written, the error returns it.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Box<UnansweredRequest>> {
        let before = self.wire.received_bytes();
        let mut failed = match self.sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let received = self.wire.received_bytes() - before;
        let request = TrySendError::take_message(&mut failed);
        let error = failed.into_error();
        let fault = UpstreamFault::classify(&error, received, self.head_bytes_max);
        Err(Box::new(UnansweredRequest { request, received, fault, error }))
    }

    /// Sends a GET request of the gateway's own.
    pub(crate) async fn get(
        &mut self,
        upstream: &Upstream,
        path: &PathAndQuery,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        let malformed =
            |error: http::Error| UpstreamFailure::from_error(UpstreamFault::Malformed, &error);
        let target: Uri = upstream.target_for(path).map_err(malformed)?;
        let request = Request::get(target)
            .header(header::HOST, upstream.host_header())
            .body(Either::Right(Full::default()))
            .map_err(malformed)?;
        self.send(request).await.map_err(|failed| failed.into_failure())
    }

    /// Requests the list of models that the upstream serves.
    pub(crate) async fn list_models(
        &mut self,
        upstream: &Upstream,
        deadline: Duration,
    ) -> Result<ModelList, UpstreamFailure> {
        let exchange = async {
            let response = self.get(upstream, &PathAndQuery::from_static(MODELS_PATH)).await?;
            if !response.status().is_success() {
                return Ok(ModelList::Refused(response.status()));
            }
            let body = Limited::new(response.into_body(), LIST_BYTES_MAX).collect().await;
            let body = body.map_err(|error| {
                UpstreamFailure::new(UpstreamFault::BrokeOff, format!("list of models: {error}"))
            })?;
            Ok(ModelList::List(body.to_bytes()))
        };
        let slow = || {
            let reason = format!("no list of models within {deadline:?}");
            UpstreamFailure::new(UpstreamFault::NotReady, reason)
        };
        tokio::time::timeout(deadline, exchange).await.map_err(|_| slow())?
    }

    /// Waits until the connection can take the next request; returns `false` if the connection
    /// ended or the wait took too long.
    pub(crate) async fn wait_until_ready(&mut self) -> bool {
        let ready = tokio::time::timeout(READY_DEADLINE, self.sender.ready()).await;
        matches!(ready, Ok(Ok(())))
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The time at which the connection ended; `None` while it is open.
    pub(crate) fn end_time(&self) -> Option<Instant> {
        *self.ended.borrow()
    }

    /// Waits for the end of the connection, at most `limit`; returns whether it ended.
    pub(crate) async fn wait_for_end(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.ended.wait_for(Option::is_some)).await.is_ok()
    }

    /// Makes the next request test whether the connection is still open, before it is written.
    pub(crate) fn schedule_liveness_test(&self) {
        self.wire.schedule_liveness_test();
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

/// A request that got no answer.
pub(crate) struct UnansweredRequest {
    /// The request, if nothing of it was written.
    pub(crate) request: Option<Request<RequestBody>>,
    /// The number of bytes received after the request was sent.
    pub(crate) received: u64,
    pub(crate) fault: UpstreamFault,
    pub(crate) error: hyper::Error,
}

impl UnansweredRequest {
    pub(crate) fn into_failure(self) -> UpstreamFailure {
        UpstreamFailure::from_error(self.fault, &self.error)
    }
}

/// Makes a request without a body from its head.
pub(crate) fn bodiless_request(head: request::Parts) -> Request<RequestBody> {
    Request::from_parts(head, Either::Right(Full::default()))
}

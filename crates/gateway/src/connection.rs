//! One connection to the upstream: dialled, asked, used for one request at a time.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, Uri, header, request, uri::PathAndQuery};
use http_body_util::{BodyExt, Either, Empty, Limited};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{self, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::watch};

use crate::{
    body::{GuardedBody, Lingering},
    fault::{UpstreamFailure, UpstreamFault},
    limits::GatewayLimits,
    upstream::Upstream,
    wire::{WireState, watch_wire},
};

/// The body of a request on its way to the upstream, or none.
pub(crate) type RequestBody = Either<GuardedBody<Lingering>, Empty<Bytes>>;

/// The most bytes of a list of models: the list of a server with thousands of models fits.
const LIST_BYTES_MAX: usize = 1024 * 1024;
/// The longest wait for a connection after its last answer; one that takes longer is stuck.
const READY_DEADLINE: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    sender: SendRequest<RequestBody>,
    wire: Arc<WireState>,
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
    /// Opens a TCP connection and starts HTTP on it.
    pub(crate) async fn open(
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, UpstreamFailure> {
        let unreachable = |error: &io::Error| {
            let reason = format!("{}: {error}", upstream.authority());
            UpstreamFailure::new(UpstreamFault::Unreachable, reason)
        };
        let dial = TcpStream::connect(upstream.authority().as_str());
        let stream = tokio::time::timeout(limits.upstream_connect, dial)
            .await
            .map_err(|_| unreachable(&io::ErrorKind::TimedOut.into()))?
            .map_err(|error| unreachable(&error))?;
        // A request is a small write and must not wait for an earlier acknowledgement.
        let _ = stream.set_nodelay(true);
        let (stream, wire) = watch_wire(stream);
        let (sender, connection) = http1::Builder::new()
            .max_header_size(limits.upstream_head_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| UpstreamFailure::from_error(UpstreamFault::BrokeOff, &error))?;
        let (at_end, ended) = watch::channel(None);
        tokio::spawn(async move {
            let outcome = connection.await;
            at_end.send_replace(Some(Instant::now()));
            if let Err(error) = outcome {
                tracing::debug!(%error, "connection to the upstream ended early");
            }
        });
        Ok(Self { sender, wire, ended, head_bytes_max: limits.upstream_head_bytes })
    }

    /// Sends one request. If nothing of the request was written, the error gives it back.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Box<UnsentRequest>> {
        let before = self.wire.received_bytes();
        let mut failed = match self.sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let received = self.wire.received_bytes() - before;
        let request = TrySendError::take_message(&mut failed);
        let error = failed.into_error();
        let fault = UpstreamFault::classify(&error, received, self.head_bytes_max);
        Err(Box::new(UnsentRequest { request, received, fault, error }))
    }

    /// Asks on this connection which models the upstream serves.
    pub(crate) async fn list_models(
        &mut self,
        upstream: &Upstream,
        deadline: Duration,
    ) -> Result<ModelList, UpstreamFailure> {
        let malformed = |error: &(dyn std::error::Error + 'static)| {
            UpstreamFailure::from_error(UpstreamFault::Malformed, error)
        };
        let path = PathAndQuery::from_static("/v1/models");
        let target: Uri = upstream.target_for(&path).map_err(|error| malformed(&error))?;
        let request = Request::get(target)
            .header(header::HOST, upstream.host_header())
            .body(Either::Right(Empty::new()))
            .map_err(|error| malformed(&error))?;
        let exchange = async {
            let response = self.send(request).await.map_err(|failed| failed.into_failure())?;
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

    /// Waits until the last answer has also ended on this side; `false` where the connection ended.
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

    /// Waits at most `limit` for the end of the connection, and returns whether it ended.
    pub(crate) async fn ends_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.ended.wait_for(Option::is_some)).await.is_ok()
    }

    /// Makes the next request test whether the connection is still open, before it is written.
    pub(crate) fn test_before_use(&self) {
        self.wire.test_before_use();
    }
}

/// A request that got no answer.
pub(crate) struct UnsentRequest {
    /// The request, where nothing of it was written.
    pub(crate) request: Option<Request<RequestBody>>,
    /// The number of bytes that were received instead of an answer.
    pub(crate) received: u64,
    pub(crate) fault: UpstreamFault,
    pub(crate) error: hyper::Error,
}

impl UnsentRequest {
    pub(crate) fn into_failure(self) -> UpstreamFailure {
        UpstreamFailure::from_error(self.fault, &self.error)
    }
}

/// A request without a body, made again from its head.
pub(crate) fn without_body(head: request::Parts) -> Request<RequestBody> {
    Request::from_parts(head, Either::Right(Empty::new()))
}

//! One open connection, and the answer that comes over it.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_appraiser::SharedAppraisal;
use confide_channel::{ChannelTimings, LivePeer};
use confide_http::{ExchangeError, Http1Answer, Http1Connection, RewoundStream, http1::HeadLimits};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use crate::{error::ClientError, remote_stream::RemoteStream, request_body::RequestBody};

/// The largest number of fields of an answer's head, and of its trailers.
const ANSWER_FIELDS_MAX: usize = 100;

/// The time of each step of opening a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTimings {
    /// The time to open the TCP connection, or the tunnel with its upgrade.
    pub dial: Duration,
    /// The times of handshake, evidence and appraisal; the round trips include the dial's.
    pub channel: ChannelTimings,
}

impl ConnectTimings {
    /// The time from the first packet to a connection that can send a request.
    pub fn total(&self) -> Duration {
        self.dial + self.channel.handshake + self.channel.quote + self.channel.appraisal
    }
}

/// What is known of the other end of a connection.
pub(crate) struct PeerState {
    pub(crate) appraised: Option<SharedAppraisal>,
    /// What fresh evidence is asked for with; `None` without session binding.
    pub(crate) live: Option<LivePeer>,
    /// The time of the newest evidence.
    pub(crate) fresh_since: Instant,
    pub(crate) timings: ConnectTimings,
}

impl PeerState {
    /// The Unix second after which the claims are no longer valid; `None` on plain TLS.
    pub(crate) fn not_after(&self) -> Option<u64> {
        self.appraised.as_ref().map(|appraised| appraised.not_after())
    }
}

/// One open connection that takes one request at a time. Its bytes move only while one of its methods,
/// or the answer that it has become, is polled.
pub struct Connection {
    http: Box<Http1Connection<RemoteStream>>,
    pub(crate) peer: PeerState,
}

/// The body of an answer, with its connection. Dropping it before its end closes the connection.
pub struct ConnectionAnswer {
    answer: Http1Answer<RemoteStream, RequestBody>,
    pub(crate) peer: PeerState,
}

impl Connection {
    /// Starts HTTP on a stream. `head_bytes` limits the heads of answers.
    pub(crate) fn new(stream: RemoteStream, head_bytes: usize, peer: PeerState) -> Self {
        let limits = HeadLimits { bytes: head_bytes, fields: ANSWER_FIELDS_MAX };
        Self { http: Http1Connection::new(stream, limits).joining_small_chunks(), peer }
    }

    /// The result of the peer's appraisal; `None` on plain TLS, which has no evidence.
    pub fn appraisal(&self) -> Option<&SharedAppraisal> {
        self.peer.appraised.as_ref()
    }

    /// Whether the server can be asked for fresh evidence on this connection.
    pub(crate) fn is_renewable(&self) -> bool {
        self.peer.live.is_some()
    }

    /// The time of each step of opening the connection.
    pub fn timings(&self) -> ConnectTimings {
        self.peer.timings
    }

    /// The Unix second after which the claims are no longer valid; `None` on plain TLS.
    pub fn not_after(&self) -> Option<u64> {
        self.peer.not_after()
    }

    /// The runtime in which the connection was opened.
    pub(crate) fn runtime(&self) -> &Handle {
        self.http.stream().runtime()
    }

    /// Resolves when the other end has closed the connection, or sent something unasked.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.http.poll_end(cx)
    }

    /// Whether the connection can take a request, as far as is known now.
    pub(crate) async fn is_open(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_end(cx).is_pending())).await
    }

    /// Sends one request. The request target is a path, and the caller sets `Host`.
    ///
    /// Once the answer's body was read to its end, [`ConnectionAnswer::into_idle`] gives the connection
    /// back.
    ///
    /// # Errors
    /// [`ClientError::Http`] if the connection fails before the head of the answer.
    pub async fn send(
        self,
        request: Request<RequestBody>,
    ) -> Result<Response<ConnectionAnswer>, ClientError> {
        let Self { http, peer } = self;
        match http.send(Box::new(request)).await {
            Ok(answer) => Ok(answer.map(|answer| ConnectionAnswer { answer, peer })),
            Err(unanswered) => Err(ClientError::Http(unanswered.error)),
        }
    }
}

impl ConnectionAnswer {
    /// The connection, if the answer was read to its end and another request may follow.
    pub fn into_idle(self) -> Option<Connection> {
        let Self { answer, peer } = self;
        answer.into_idle_connection().map(|http| Connection { http, peer })
    }

    /// The stream, after an answer that changes the protocol.
    pub(crate) fn into_upgraded(self) -> RewoundStream<RemoteStream> {
        self.answer.into_upgraded()
    }
}

impl Body for ConnectionAnswer {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        Pin::new(&mut self.answer).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

//! Keeps attested connections and hands them out for one request each.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_appraiser::SharedAppraisal;
use confide_http::{
    AdmissionPermit, AdmissionQueue, BodyClock, BodyPace, ExchangeError, HandshakeKey, QueueError,
    error_chain,
};
use confide_verification::ConnectionPromise;
use http::{HeaderValue, Request, Response, header, response};
use http_body::{Body, Frame, SizeHint};

use crate::{
    answer_error::AnswerError,
    connection::{ConnectTimings, Connection, ConnectionAnswer, PeerState},
    connector::Connector,
    error::{Blame, ClientError},
    idle_connections::{IdleConnection, IdleConnections},
    limits::ClientLimits,
    request_body::RequestBody,
    running_request::{RequestPlace, RunningRequest},
    unanswered_request::UnansweredRequest,
    websocket::AttestedWebSocket,
};

/// Sends requests to one attested end over pooled connections.
///
/// Every new connection is appraised. One whose claims have expired is dropped before the next
/// request; one whose evidence is older than [`ClientLimits::age_max`] is asked for fresh evidence
/// (session binding), or dropped. One that claims another guarantee
/// than the first connection is refused. Clones share connections and limits.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<PoolState>,
}

struct PoolState {
    connector: Connector,
    idle: IdleConnections,
    queue: AdmissionQueue,
    host: HeaderValue,
    limits: ClientLimits,
    clock: fn() -> u64,
    /// The appraisal of the first connection, of whichever replica.
    first: Arc<OnceLock<SharedAppraisal>>,
    latest: Mutex<Option<SharedAppraisal>>,
}

/// An answer, and the connection that it came over.
pub struct PooledAnswer {
    /// The head, and the body that is read as it arrives.
    pub response: Response<AnswerBody>,
    /// The time of each step of opening the connection; `None` if a pooled connection was used.
    pub opened: Option<ConnectTimings>,
    /// The appraisal of the connection; `None` on plain TLS, which has no evidence.
    pub appraisal: Option<SharedAppraisal>,
}

/// Deadlines of one request for its connection. The client's own limits apply as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestDeadlines {
    /// The longest wait until one of the connections is free.
    pub queue: Option<Duration>,
    /// The longest time to open and appraise a new connection.
    pub connect: Option<Duration>,
}

/// An admitted connection for one request, and a place among the running ones.
pub(crate) struct CheckedOut {
    connection: Connection,
    /// The time of each step of opening the connection; `None` if it is a pooled one.
    opened: Option<ConnectTimings>,
    place: RequestPlace,
}

/// The source of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectionSource {
    /// The pool, or a new connection if the pool has none.
    PooledOrNew,
    /// A new connection, which becomes that of a WebSocket.
    New,
}

/// The answer of the attested end to the handshake of a WebSocket.
pub(crate) enum WebSocketAnswer {
    /// The attested end accepted, with this head.
    Accepted(Box<response::Parts>, AttestedWebSocket),
    /// The attested end answered as to any request.
    Refused(Box<Response<AnswerBody>>),
}

impl HttpClient {
    /// A client without connections yet. `clock` returns Unix seconds.
    pub fn new(connector: Connector, limits: ClientLimits, clock: fn() -> u64) -> Self {
        let queue = AdmissionQueue::new(limits.queue_limits());
        Self::with_shared_parts(connector, limits, clock, queue, Arc::default())
    }

    /// A client of another replica of the same service. Both share the limits on requests, and a
    /// connection of either that claims another guarantee than the first of both is refused.
    pub fn for_replica(&self, connector: Connector) -> Self {
        let PoolState { limits, clock, queue, first, .. } = &*self.shared;
        Self::with_shared_parts(connector, *limits, *clock, queue.clone(), first.clone())
    }

    fn with_shared_parts(
        connector: Connector,
        limits: ClientLimits,
        clock: fn() -> u64,
        queue: AdmissionQueue,
        first: Arc<OnceLock<SharedAppraisal>>,
    ) -> Self {
        let authority = connector.endpoint().to_string();
        // An endpoint was parsed from an address, whose bytes are valid in a header value.
        let host = HeaderValue::from_str(&authority)
            .unwrap_or_else(|_| HeaderValue::from_static("attested"));
        Self {
            shared: Arc::new(PoolState {
                connector,
                idle: IdleConnections::default(),
                queue,
                host,
                limits,
                clock,
                first,
                latest: Mutex::new(None),
            }),
        }
    }

    /// Opens one connection now and keeps it, so that the caller knows before the first request
    /// whether the evidence is accepted.
    ///
    /// # Errors
    /// Those of [`Connector::connect`].
    pub async fn open_connection(
        &self,
    ) -> Result<(Option<SharedAppraisal>, ConnectTimings), ClientError> {
        let connection = self.shared.connect().await?;
        let opened = (connection.appraisal().cloned(), connection.timings());
        self.shared.keep_idle(connection);
        Ok(opened)
    }

    /// The appraisal of the newest connection.
    pub fn latest_appraisal(&self) -> Option<SharedAppraisal> {
        lock(&self.shared.latest).clone()
    }

    /// Sends one request over a pooled or a new connection, and sets `Host`. The request target is
    /// a path.
    ///
    /// A request is repeated only if a pooled connection turned out to be closed before the first
    /// byte was sent.
    ///
    /// # Errors
    /// An error if no connection becomes free or can be opened, or if the answer does not begin in
    /// time.
    pub async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<PooledAnswer, ClientError> {
        self.request_within(request, RequestDeadlines::default()).await
    }

    /// Sends one request as [`HttpClient::request`] does, with deadlines of its own.
    ///
    /// # Errors
    /// Those of [`HttpClient::request`]: [`ClientError::Busy`] after the deadline of the queue, and
    /// [`ClientError::DialTimeout`] after that of the connection.
    pub async fn request_within(
        &self,
        request: Request<RequestBody>,
        deadlines: RequestDeadlines,
    ) -> Result<PooledAnswer, ClientError> {
        let checked_out = self.check_out(ConnectionSource::PooledOrNew, deadlines, None).await?;
        let answered = self.send(checked_out, request, deadlines.connect).await;
        answered.map_err(|unanswered| unanswered.error)
    }

    /// Waits for a place among the running requests, and for a connection from `source`. Nothing of a
    /// request is sent yet.
    pub(crate) async fn check_out(
        &self,
        source: ConnectionSource,
        deadlines: RequestDeadlines,
        running: Option<RunningRequest>,
    ) -> Result<CheckedOut, ClientError> {
        let permit = self.shared.acquire_permit_within(deadlines.queue).await?;
        let place = RequestPlace::new(permit, running);
        let (connection, opened) = match source {
            ConnectionSource::PooledOrNew => self.shared.take_or_open(deadlines.connect).await?,
            ConnectionSource::New => self.shared.open(deadlines.connect).await?,
        };
        Ok(CheckedOut { connection, opened, place })
    }

    /// Sends one request on a connection that was checked out, and sets `Host`. If it was a pooled one
    /// that turns out to be closed before the first byte was sent, another one takes its place, which
    /// is opened within `connect`.
    pub(crate) async fn send(
        &self,
        checked_out: CheckedOut,
        mut request: Request<RequestBody>,
        connect: Option<Duration>,
    ) -> Result<PooledAnswer, Box<UnansweredRequest>> {
        let shared = &self.shared;
        let CheckedOut { mut connection, mut opened, place } = checked_out;
        request.headers_mut().insert(header::HOST, shared.host.clone());
        while !connection.is_open().await {
            if opened.is_some() {
                let error = ClientError::Http(ExchangeError::ConnectionClosed);
                return Err(UnansweredRequest::from_unsent(error, request));
            }
            match shared.take_or_open(connect).await {
                Ok(next) => (connection, opened) = next,
                Err(error) => return Err(UnansweredRequest::from_unsent(error, request)),
            }
        }
        let appraisal = connection.appraisal().cloned();
        let deadline = shared.limits.response_start;
        let sent = tokio::time::timeout(deadline, connection.send(request)).await;
        let sent = sent.unwrap_or(Err(ClientError::Slow { deadline }));
        let response = sent.map_err(UnansweredRequest::from_sent)?;
        let response = shared.lease_answer(response, place);
        Ok(PooledAnswer { response, opened, appraisal })
    }

    /// Opens a WebSocket over a connection that was opened for it. Sets `Host` and the handshake; the
    /// request target is a path. The WebSocket counts as a running request until its end.
    ///
    /// # Errors
    /// Those of [`HttpClient::request`], and [`ClientError::BadUpgrade`].
    pub(crate) async fn open_websocket(
        &self,
        checked_out: CheckedOut,
        mut request: Request<RequestBody>,
    ) -> Result<WebSocketAnswer, ClientError> {
        let shared = &self.shared;
        let CheckedOut { connection, place, .. } = checked_out;
        request.headers_mut().insert(header::HOST, shared.host.clone());
        let key = HandshakeKey::offer(request.headers_mut());
        let deadline = shared.limits.websocket_open;
        let exchanged = tokio::time::timeout(deadline, connection.send(request)).await;
        let response = exchanged.map_err(|_| ClientError::Slow { deadline })??;
        if key.is_accepted(&response) {
            let (head, answer) = response.into_parts();
            let lifetime = shared.remaining_time(&answer.peer);
            let websocket = AttestedWebSocket { stream: answer.into_upgraded(), lifetime, place };
            return Ok(WebSocketAnswer::Accepted(Box::new(head), websocket));
        }
        let status = response.status();
        if status.is_success() || status.is_informational() {
            let target = shared.connector.endpoint().to_string();
            return Err(ClientError::BadUpgrade { target, status });
        }
        let answer = shared.lease_answer(response, place);
        Ok(WebSocketAnswer::Refused(Box::new(answer)))
    }

    /// Replaces evidence on idle connections before it is too old, until it is dropped, so that no
    /// request waits for it. Only a connection that is in use from time to time lives that long.
    pub async fn keep_fresh(&self) -> Infallible {
        let pause = self.shared.limits.age_max / KEEP_FRESH_STEPS;
        loop {
            tokio::time::sleep(pause).await;
            self.shared.refresh_idle(pause * (KEEP_FRESH_STEPS - 2)).await;
        }
    }

    /// The number of idle connections in the pool.
    pub fn idle_connections(&self) -> usize {
        self.shared.idle.len()
    }
}

impl PoolState {
    async fn acquire_permit(&self) -> Result<AdmissionPermit, ClientError> {
        let connections = self.limits.connections;
        self.queue.enter().await.map_err(|error| match error {
            QueueError::Full { queued: waiting } => ClientError::QueueFull { connections, waiting },
            QueueError::TimedOut { waited: deadline } => {
                ClientError::Busy { connections, deadline }
            }
        })
    }

    async fn acquire_permit_within(
        &self,
        deadline: Option<Duration>,
    ) -> Result<AdmissionPermit, ClientError> {
        let connections = self.limits.connections;
        let acquired = finish_within(deadline, self.acquire_permit()).await;
        acquired.unwrap_or_else(|deadline| Err(ClientError::Busy { connections, deadline }))
    }

    /// Takes a pooled connection, or opens one within the deadline.
    async fn take_or_open(
        &self,
        deadline: Option<Duration>,
    ) -> Result<(Connection, Option<ConnectTimings>), ClientError> {
        if let Some(connection) = self.take_idle().await {
            return Ok((connection, None));
        }
        self.open(deadline).await
    }

    /// Opens a connection within the deadline.
    async fn open(
        &self,
        deadline: Option<Duration>,
    ) -> Result<(Connection, Option<ConnectTimings>), ClientError> {
        let opened = finish_within(deadline, self.connect()).await;
        let opened = opened.unwrap_or_else(|deadline| {
            let target = self.connector.endpoint().to_string();
            Err(ClientError::DialTimeout { target, deadline })
        });
        opened.map(|connection| {
            let timings = connection.timings();
            (connection, Some(timings))
        })
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let connection = self.connector.connect().await?;
        if let Some(appraised) = connection.appraisal() {
            self.check_guarantee(appraised)?;
            *lock(&self.latest) = Some(appraised.clone());
        }
        let timings = connection.timings();
        tracing::debug!(
            dial_us = timings.dial.as_micros() as u64,
            handshake_us = timings.channel.handshake.as_micros() as u64,
            quote_us = timings.channel.quote.as_micros() as u64,
            appraisal_us = timings.channel.appraisal.as_micros() as u64,
            "connection opened"
        );
        Ok(connection)
    }

    /// Refuses a guarantee that differs from the first connection's, which the user was shown. A
    /// policy may admit several configurations.
    fn check_guarantee(&self, appraised: &SharedAppraisal) -> Result<(), ClientError> {
        let first = self.first.get_or_init(|| appraised.clone());
        let promise = |by: &SharedAppraisal| ConnectionPromise {
            guarantee: by.guarantee().to_owned(),
            claimed: by.claimed_guarantee().map(str::to_owned),
        };
        let compared = promise(first).check_later(promise(appraised));
        compared.map_err(ClientError::GuaranteeChanged)
    }

    /// Takes the most recently used connection that may still be used, and drops those that may
    /// not.
    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let kept = self.idle.pop()?;
            if self.is_stale(&kept) {
                continue;
            }
            let mut connection = kept.connection;
            if !connection.is_open().await {
                continue;
            }
            if connection.peer.fresh_since.elapsed() <= self.limits.age_max {
                return Some(connection);
            }
            // A new connection shows whether the server is still to be trusted.
            if let Some(renewed) = self.renew(connection).await {
                return Some(renewed);
            }
        }
    }

    /// Puts fresh evidence, or new connections, in the place of idle connections whose evidence is
    /// older than `age`.
    async fn refresh_idle(&self, age: Duration) {
        let is_old = |kept: &mut IdleConnection| kept.connection.peer.fresh_since.elapsed() > age;
        // Taken out, so that no request waits for one of them.
        for IdleConnection { mut connection, since } in self.idle.extract_if(is_old) {
            if since.elapsed() > self.limits.idle || !connection.is_open().await {
                continue;
            }
            let renewed = match connection.is_renewable() {
                true => self.renew(connection).await,
                false => None,
            };
            let connection = match renewed {
                Some(renewed) => renewed,
                None => match self.connect().await {
                    Ok(newer) => newer,
                    Err(error) => {
                        report_missing_evidence(&error);
                        continue;
                    }
                },
            };
            self.idle.push(IdleConnection { connection, since });
        }
    }

    /// Obtains fresh evidence on a connection. `None` if there is none that is accepted: the connection
    /// is closed then.
    async fn renew(&self, connection: Connection) -> Option<Connection> {
        let renewed = self.connector.renew_evidence(connection).await;
        let accepted = renewed.and_then(|connection| {
            if let Some(appraised) = connection.appraisal() {
                self.check_guarantee(appraised)?;
            }
            Ok(connection)
        });
        match accepted {
            Ok(connection) => {
                *lock(&self.latest) = connection.appraisal().cloned();
                tracing::debug!("fresh evidence on an open connection");
                Some(connection)
            }
            Err(error) => {
                report_missing_evidence(&error);
                None
            }
        }
    }

    /// An answer that holds its connection and its permit until its end.
    fn lease_answer(
        self: &Arc<Self>,
        response: Response<ConnectionAnswer>,
        place: RequestPlace,
    ) -> Response<AnswerBody> {
        response.map(|answer| {
            let lease = AnswerLease { answer, shared: self.clone(), _place: place };
            AnswerBody::new(lease, self.limits.response_pause)
        })
    }

    fn keep_idle(&self, connection: Connection) {
        // The pool is a stack: connections deep in it are checked here, or they would stay in it
        // until their peer ends them.
        self.idle.retain(|kept| !self.is_stale(kept));
        if !self.is_expired(&connection) {
            self.idle.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    fn is_stale(&self, kept: &IdleConnection) -> bool {
        self.is_expired(&kept.connection) || kept.since.elapsed() > self.limits.idle
    }

    /// The time until the claims of a connection expire, or its evidence is too old.
    fn remaining_time(&self, peer: &PeerState) -> Duration {
        let fresh = self.limits.age_max.saturating_sub(peer.fresh_since.elapsed());
        let valid = peer.not_after().map_or(u64::MAX, |end| end.saturating_sub((self.clock)()));
        fresh.min(Duration::from_secs(valid))
    }

    fn is_expired(&self, connection: &Connection) -> bool {
        let ran_out = connection.not_after().is_some_and(|end| (self.clock)() >= end);
        let is_old = connection.peer.fresh_since.elapsed() > self.limits.age_max;
        ran_out || (is_old && !connection.is_renewable())
    }
}

/// The parts of the age of evidence in which idle connections are looked at; two parts remain for
/// obtaining fresh evidence.
const KEEP_FRESH_STEPS: u32 = 8;

fn report_missing_evidence(error: &ClientError) {
    let text = error_chain(error);
    match error.blame() {
        Blame::Evidence => tracing::warn!(error = text, "fresh evidence refused"),
        _ => tracing::debug!(error = text, "no fresh evidence"),
    }
}

/// Runs `work` to its end, or gives the deadline that it missed.
async fn finish_within<T>(
    deadline: Option<Duration>,
    work: impl Future<Output = T>,
) -> Result<T, Duration> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => tokio::time::timeout(deadline, work).await.map_err(|_| deadline),
    }
}

/// Locks a mutex. A panic elsewhere leaves its value valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running answer.
struct AnswerLease {
    answer: ConnectionAnswer,
    shared: Arc<PoolState>,
    _place: RequestPlace,
}

/// The body of an answer. Reading it to its end returns the connection to the pool; dropping it
/// earlier closes the connection, so that the other end stops working.
pub struct AnswerBody {
    /// The rest of the answer, until its end.
    lease: Option<AnswerLease>,
    pause_limit: Duration,
    clock: BodyClock,
}

impl AnswerBody {
    fn new(lease: AnswerLease, pause_limit: Duration) -> Self {
        let clock = BodyClock::new(BodyPace::without_rate(pause_limit));
        let mut body = Self { lease: Some(lease), pause_limit, clock };
        body.return_connection_at_end();
        body
    }

    fn return_connection_at_end(&mut self) {
        let is_complete = |lease: &mut AnswerLease| lease.answer.is_end_stream();
        if let Some(AnswerLease { answer, shared, _place }) = self.lease.take_if(is_complete)
            && let Some(connection) = answer.into_idle()
        {
            // It is back before the next request is admitted.
            shared.keep_idle(connection);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(&mut lease.answer).poll_frame(cx) else {
            let limit = self.pause_limit;
            ready!(self.clock.poll_fault(cx));
            self.lease = None;
            return Poll::Ready(Some(Err(AnswerError::Paused { limit })));
        };
        self.clock.count_received(0);
        match frame {
            // A broken connection is dropped with its lease, at once.
            Some(Err(_)) => self.lease = None,
            Some(Ok(_)) | None => self.return_connection_at_end(),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(AnswerError::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.lease
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), |lease| lease.answer.size_hint())
    }
}

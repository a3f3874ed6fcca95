//! Keeps attested connections and hands them out for one request each.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_appraiser::SharedAppraisal;
use confide_http::{
    AdmissionPermit, AdmissionQueue, BodyClock, BodyPace, HandshakeKey, QueueError, error_chain,
};
use confide_verification::ConnectionPromise;
use http::{HeaderValue, Request, Response, header, response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    answer_error::AnswerError,
    connector::{ConnectTimings, Connection, Connector, RequestBody},
    error::{Blame, ClientError},
    idle_connections::{IdleConnection, IdleConnections},
    limits::ClientLimits,
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

/// Where a request gets its connection from.
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
        announce_body(&mut request);
        loop {
            let sent = connection.http.try_send(request);
            let deadline = shared.limits.response_start;
            let mut failed = match tokio::time::timeout(deadline, sent).await {
                Err(_) => return Err(UnansweredRequest::from_sent(ClientError::Slow { deadline })),
                Ok(Ok(response)) => {
                    let appraisal = connection.appraisal().cloned();
                    let response = shared.lease_answer(response, connection, place);
                    return Ok(PooledAnswer { response, opened, appraisal });
                }
                Ok(Err(failed)) => failed,
            };
            let unsent = failed.take_message();
            match unsent {
                Some(unsent) if opened.is_none() => match shared.take_or_open(connect).await {
                    Ok(next) => {
                        (connection, opened) = next;
                        request = unsent;
                    }
                    Err(error) => return Err(UnansweredRequest::from_unsent(error, unsent)),
                },
                unsent => {
                    let error = ClientError::Http(failed.into_error());
                    return Err(Box::new(UnansweredRequest { error, unsent }));
                }
            }
        }
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
        let CheckedOut { mut connection, place, .. } = checked_out;
        request.headers_mut().insert(header::HOST, shared.host.clone());
        let key = HandshakeKey::offer(request.headers_mut());
        let exchange = async {
            let mut response = connection.send(request).await?;
            let stream = match key.is_accepted(&response) {
                true => {
                    let stream = hyper::upgrade::on(&mut response).await;
                    Some(stream.map_err(ClientError::Http)?)
                }
                false => None,
            };
            Ok((response, stream))
        };
        let deadline = shared.limits.websocket_open;
        let exchanged = tokio::time::timeout(deadline, exchange).await;
        let (response, stream) = exchanged.map_err(|_| ClientError::Slow { deadline })??;
        if let Some(stream) = stream {
            let lifetime = shared.remaining_time(&connection);
            let (head, _) = response.into_parts();
            let websocket = AttestedWebSocket { stream, lifetime, place };
            return Ok(WebSocketAnswer::Accepted(Box::new(head), websocket));
        }
        let status = response.status();
        if status.is_success() || status.is_informational() {
            let target = shared.connector.endpoint().to_string();
            return Err(ClientError::BadUpgrade { target, status });
        }
        let answer = shared.lease_answer(response, connection, place);
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
            // The connection's last answer was read to its end, so it is ready at once or closed.
            let ready = tokio::time::timeout(READY_DEADLINE, connection.http.ready()).await;
            if matches!(ready, Ok(Ok(()))) && self.is_fresh_or_renewed(&mut connection).await {
                return Some(connection);
            }
        }
    }

    /// Puts fresh evidence, or new connections, in the place of idle connections whose evidence is
    /// older than `age`.
    async fn refresh_idle(&self, age: Duration) {
        let is_old = |kept: &mut IdleConnection| kept.connection.fresh_since.elapsed() > age;
        // Taken out, so that no request waits for one of them.
        for IdleConnection { mut connection, since } in self.idle.extract_if(is_old) {
            if connection.http.is_closed() || since.elapsed() > self.limits.idle {
                continue;
            }
            if !(connection.is_renewable() && self.is_renewed(&mut connection).await) {
                match self.connect().await {
                    Ok(newer) => connection = newer,
                    Err(error) => {
                        report_missing_evidence(&error);
                        continue;
                    }
                }
            }
            self.idle.push(IdleConnection { connection, since });
        }
    }

    /// Obtains fresh evidence on a connection whose evidence is too old; false if it has to be
    /// dropped. A new connection then shows whether the server is still to be trusted.
    async fn is_fresh_or_renewed(&self, connection: &mut Connection) -> bool {
        connection.fresh_since.elapsed() <= self.limits.age_max || self.is_renewed(connection).await
    }

    async fn is_renewed(&self, connection: &mut Connection) -> bool {
        let renewed = self.connector.renew_evidence(connection).await;
        let accepted = renewed.and_then(|()| match connection.appraisal() {
            Some(appraised) => self.check_guarantee(appraised),
            None => Ok(()),
        });
        match accepted {
            Ok(()) => {
                *lock(&self.latest) = connection.appraisal().cloned();
                tracing::debug!("fresh evidence on an open connection");
                true
            }
            Err(error) => {
                report_missing_evidence(&error);
                false
            }
        }
    }

    /// An answer that holds its connection and its permit until its end.
    fn lease_answer(
        self: &Arc<Self>,
        response: Response<Incoming>,
        connection: Connection,
        place: RequestPlace,
    ) -> Response<AnswerBody> {
        let lease = ConnectionLease { connection, shared: self.clone(), _place: place };
        response.map(|body| AnswerBody::new(body, lease, self.limits.response_pause))
    }

    fn keep_idle(&self, connection: Connection) {
        // The pool is a stack: connections deep in it are checked here, or they would stay in it
        // until their peer ends them.
        self.idle.retain(|kept| !self.is_stale(kept));
        if !connection.http.is_closed() && !self.is_expired(&connection) {
            self.idle.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    fn is_stale(&self, kept: &IdleConnection) -> bool {
        self.is_expired(&kept.connection) || kept.since.elapsed() > self.limits.idle
    }

    /// The time until the claims of a connection expire, or its evidence is too old.
    fn remaining_time(&self, connection: &Connection) -> Duration {
        let fresh = self.limits.age_max.saturating_sub(connection.fresh_since.elapsed());
        let valid =
            connection.not_after().map_or(u64::MAX, |end| end.saturating_sub((self.clock)()));
        fresh.min(Duration::from_secs(valid))
    }

    fn is_expired(&self, connection: &Connection) -> bool {
        let ran_out = connection.not_after().is_some_and(|end| (self.clock)() >= end);
        let is_old = connection.fresh_since.elapsed() > self.limits.age_max;
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

/// Says that a body comes in chunks where its length is unknown. hyper does so too, but sends no body of
/// a GET or HEAD that does not say it.
fn announce_body(request: &mut Request<RequestBody>) {
    let body = request.body();
    let is_unsized = !body.is_end_stream() && body.size_hint().exact().is_none();
    if is_unsized && !request.headers().contains_key(header::CONTENT_LENGTH) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}

/// The time after which a pooled connection that is not ready counts as stuck.
const READY_DEADLINE: Duration = Duration::from_secs(1);

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

struct ConnectionLease {
    connection: Connection,
    shared: Arc<PoolState>,
    _place: RequestPlace,
}

/// The body of an answer. Reading it to its end returns the connection to the pool; dropping it
/// earlier closes the connection, so that the other end stops working.
pub struct AnswerBody {
    inner: Incoming,
    lease: Option<ConnectionLease>,
    pause_limit: Duration,
    clock: BodyClock,
}

impl AnswerBody {
    fn new(inner: Incoming, lease: ConnectionLease, pause_limit: Duration) -> Self {
        let clock = BodyClock::new(BodyPace::without_rate(pause_limit));
        let mut body = Self { inner, lease: Some(lease), pause_limit, clock };
        body.return_connection_at_end();
        body
    }

    /// The next frame. If none is there, the bytes of the connection are moved first.
    fn poll_received(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some(lease) = &mut self.lease {
            lease.connection.http.poll_transport(cx);
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn return_connection_at_end(&mut self) {
        if self.inner.is_end_stream() {
            self.return_connection();
        }
    }

    fn return_connection(&mut self) {
        if let Some(ConnectionLease { connection, shared, _place }) = self.lease.take() {
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
        let outcome = match self.poll_received(cx) {
            Poll::Pending => {
                let limit = self.pause_limit;
                self.clock.poll_fault(cx).map(|_| Some(Err(AnswerError::Paused { limit })))
            }
            Poll::Ready(frame) => {
                self.clock.count_received(0);
                Poll::Ready(frame.map(|frame| frame.map_err(AnswerError::Broken)))
            }
        };
        match &outcome {
            Poll::Ready(None) => self.return_connection(),
            Poll::Ready(Some(Ok(_))) => self.return_connection_at_end(),
            // A broken connection is dropped with its lease, at once.
            Poll::Ready(Some(Err(_))) => self.lease = None,
            Poll::Pending => {}
        }
        outcome
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

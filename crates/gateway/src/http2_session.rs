//! Connections of HTTP/2 to an upstream, each of which carries many requests at once.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_http::AnnouncedTrailers;
use h2::{
    Ping, PingPong, Reason, RecvStream, SendStream,
    client::{Builder, Connection, SendRequest},
};
use http::{
    Request, Response, Uri, header,
    uri::{Authority, InvalidUriParts, Scheme},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};

use crate::{
    answer_fault::AnswerFault,
    limits::{GatewayLimits, Http2Limits},
    upstream::Upstream,
    upstream_request::{RequestBody, RequestProgress, UnansweredRequest},
    upstream_socket::UpstreamSocket,
};

/// The number of bytes of one answer that the upstream may send unread. The window of the
/// connection is as large as those of all its streams, so that a client that does not read its
/// answer holds up no other.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The number of bytes of one request that wait for the connection.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// A connection of HTTP/2. Clones are the same connection; it ends with the last of them.
#[derive(Clone)]
pub(crate) struct Http2Session {
    sender: SendRequest<Bytes>,
    origin: Arc<Origin>,
    state: Arc<SessionState>,
    streams_max: usize,
}

/// The scheme and the authority of requests.
struct Origin {
    scheme: Scheme,
    authority: Authority,
}

struct SessionState {
    /// The number of streams that requests have claimed.
    running: AtomicUsize,
    /// Whether the connection takes no further request.
    is_retired: AtomicBool,
    /// The last time at which a stream became free.
    last_use: Mutex<Instant>,
}

/// A stream that one request has claimed. It is free again when it is dropped.
pub(crate) struct Http2Stream(Http2Session);

/// The body of an answer, with its stream and the rest of the request.
pub(crate) struct Http2Answer {
    body: RecvStream,
    request: Option<OutgoingStream>,
    is_complete: bool,
    /// The number of bytes that follow, if the upstream announced it; h2 holds it to that.
    left: Option<u64>,
    stream: Http2Stream,
}

/// The rest of a request that is being sent.
struct OutgoingStream {
    sender: SendStream<Bytes>,
    body: RequestBody,
    /// The part of a piece for which the upstream has granted no room yet.
    piece: Bytes,
    announced: AnnouncedTrailers,
}

impl Http2Session {
    /// Starts HTTP/2 on a socket, and waits for the upstream's settings: they show that it speaks
    /// HTTP/2 and how many requests it accepts at once.
    ///
    /// # Errors
    /// The text of the failure if the connection ends before.
    pub(crate) async fn start(
        socket: UpstreamSocket,
        upstream: &Upstream,
        limits: &GatewayLimits,
    ) -> Result<Self, String> {
        let streams_max = limits.upstream_http2_streams;
        let streams = u32::try_from(streams_max).unwrap_or(u32::MAX);
        let window = STREAM_WINDOW_BYTES.saturating_mul(streams).min(i32::MAX as u32);
        let (sender, mut connection) = Builder::new()
            .enable_push(false)
            // None until the upstream has said how many.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(window)
            .max_header_list_size(limits.upstream_head_bytes.try_into().unwrap_or(u32::MAX))
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .handshake(socket)
            .await
            .map_err(|error| error.to_string())?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err("the connection was closed".into())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
            Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let state = Arc::new(SessionState {
            running: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
            last_use: Mutex::new(Instant::now()),
        });
        let (shared, limits) = (state.clone(), limits.http2);
        let pings = connection.ping_pong();
        tokio::spawn(async move {
            let ended = run_connection(connection, pings, limits).await;
            shared.is_retired.store(true, Ordering::Relaxed);
            tracing::debug!(%ended, "a connection of HTTP/2 to the upstream ended");
        });
        let scheme = if upstream.is_https() { Scheme::HTTPS } else { Scheme::HTTP };
        let origin = Arc::new(Origin { scheme, authority: upstream.request_authority() });
        Ok(Self { sender, origin, state, streams_max })
    }

    /// Claims a stream, if one is free and the connection takes requests.
    pub(crate) fn claim(&self) -> Option<Http2Stream> {
        if self.is_retired() {
            return None;
        }
        let most = self.sender.current_max_send_streams().min(self.streams_max);
        let one_more = |running| (running < most).then_some(running + 1);
        self.state.running.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).ok()?;
        Some(Http2Stream(self.clone()))
    }

    /// Whether the connection takes no further request.
    pub(crate) fn is_retired(&self) -> bool {
        self.state.is_retired.load(Ordering::Relaxed)
    }

    /// The time for which no request has run; zero while one runs.
    pub(crate) fn idle_time(&self, now: Instant) -> Duration {
        match self.state.running.load(Ordering::Acquire) {
            0 => now.duration_since(*self.state.lock_last_use()),
            _ => Duration::ZERO,
        }
    }
}

impl SessionState {
    /// Locks the time of the last use. A panic elsewhere leaves it valid.
    fn lock_last_use(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the bytes of a connection until it ends, and drops one whose upstream does not answer
/// pings. Returns why it ended.
async fn run_connection(
    connection: Connection<UpstreamSocket, Bytes>,
    pings: Option<PingPong>,
    limits: Http2Limits,
) -> String {
    let unanswered = async {
        let Some(mut pings) = pings else { return std::future::pending().await };
        loop {
            tokio::time::sleep(limits.ping_interval).await;
            let pong = tokio::time::timeout(limits.ping_timeout, pings.ping(Ping::opaque()));
            if !matches!(pong.await, Ok(Ok(_))) {
                return;
            }
        }
    };
    tokio::select! {
        outcome = connection => outcome.err().map_or_else(String::new, |error| error.to_string()),
        () = unanswered => "a ping was not answered".into(),
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let state = &self.0.state;
        *state.lock_last_use() = Instant::now();
        state.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Http2Stream {
    /// Sends one request and reads the head of its answer, which may come before the request is
    /// sent to its end.
    pub(crate) async fn send(
        mut self,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<Http2Answer>, UnansweredRequest> {
        let spare = copy_request(&request);
        let (body, request) =
            self.exchange_heads(*request).await.map_err(|(fault, progress)| {
                let is_reset = matches!(&fault, AnswerFault::Http2(error) if error.is_reset());
                if progress == RequestProgress::Unprocessed && !is_reset {
                    self.0.state.is_retired.store(true, Ordering::Relaxed);
                }
                UnansweredRequest { request: spare, progress, fault }
            })?;
        let length = body.headers().get(header::CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(body.map(|body| {
            let is_complete = body.is_end_stream();
            Http2Answer { body, request, is_complete, left, stream: self }
        }))
    }

    async fn exchange_heads(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<(Response<RecvStream>, Option<OutgoingStream>), (AnswerFault, RequestProgress)>
    {
        let (mut head, body) = request.into_parts();
        let announced = AnnouncedTrailers::find(&head.headers);
        head.uri =
            self.0.origin.target(head.uri).map_err(|error| {
                (AnswerFault::Http2Request(error.into()), RequestProgress::Begun)
            })?;
        for name in [header::HOST, header::CONNECTION] {
            head.headers.remove(name);
        }
        let is_bodiless = body.is_end_stream();
        let sender = &mut self.0.sender;
        let unsent = |error| (AnswerFault::Http2(error), RequestProgress::Unprocessed);
        poll_fn(|cx| sender.poll_ready(cx)).await.map_err(unsent)?;
        let request = Request::from_parts(head, ());
        let (answer, sender) = sender.send_request(request, is_bodiless).map_err(unsent)?;
        let outgoing = OutgoingStream { sender, body, piece: Bytes::new(), announced };
        let mut request = (!is_bodiless).then_some(outgoing);
        let mut answer = pin!(answer);
        let answered = poll_fn(|cx| {
            if let Poll::Ready(Err(fault)) = poll_send(&mut request, cx) {
                return Poll::Ready(Err(fault));
            }
            answer.as_mut().poll(cx).map_err(AnswerFault::Http2)
        });
        match answered.await {
            Ok(answer) => Ok((answer, request)),
            Err(AnswerFault::Http2(error)) if is_unprocessed(&error) => Err(unsent(error)),
            // Whether a frame for it has come is unknown.
            Err(fault) => Err((fault, RequestProgress::Begun)),
        }
    }
}

/// A copy of a request whose body is empty or in memory.
fn copy_request(request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
    let body = match request.body() {
        Either::Right(body) => body.clone(),
        Either::Left(body) if body.is_end_stream() => Full::default(),
        Either::Left(_) => return None,
    };
    let mut copy = Box::new(Request::new(Either::Right(body)));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Whether the upstream has certainly not processed the request (RFC 9113 section 8.7): it refused
/// its stream, or a GOAWAY does not cover it.
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

impl Origin {
    /// Names the origin in a request's target, as HTTP/2 does, in place of `Host`.
    fn target(&self, target: Uri) -> Result<Uri, InvalidUriParts> {
        let mut parts = target.into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        Uri::from_parts(parts)
    }
}

/// Sends more of a request. Once it has been sent, or the upstream wants no more of it, it is
/// `None`. Only the client's side can fail.
fn poll_send(
    request: &mut Option<OutgoingStream>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), AnswerFault>> {
    let Some(outgoing) = request else { return Poll::Ready(Ok(())) };
    let outcome = ready!(outgoing.poll_send_rest(cx));
    if outcome.is_err() {
        outgoing.sender.send_reset(Reason::CANCEL);
    }
    *request = None;
    Poll::Ready(outcome)
}

impl OutgoingStream {
    /// Sends the rest of the body. A stream that the upstream has closed ends it early: the answer
    /// says why.
    fn poll_send_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerFault>> {
        loop {
            while !self.piece.is_empty() {
                self.sender.reserve_capacity(self.piece.len());
                let Some(Ok(room)) = ready!(self.sender.poll_capacity(cx)) else {
                    return Poll::Ready(Ok(()));
                };
                let part = self.piece.split_to(room.min(self.piece.len()));
                let is_last = self.piece.is_empty() && self.body.is_end_stream();
                if self.sender.send_data(part, is_last).is_err() || is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            if let Poll::Ready(Ok(_) | Err(_)) = self.sender.poll_reset(cx) {
                return Poll::Ready(Ok(()));
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.transpose().map_err(AnswerFault::Http2Request)?.map(Frame::into_data) {
                Some(Ok(data)) => self.piece = data,
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let _ = self.sender.send_trailers(self.announced.select(trailers));
                    return Poll::Ready(Ok(()));
                }
                None => {
                    let _ = self.sender.send_data(Bytes::new(), true);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl Http2Answer {
    /// The stream, if the exchange is over, for another request on the same connection.
    pub(crate) fn into_idle_stream(self) -> Option<Http2Stream> {
        let is_over = self.is_complete && self.request.is_none();
        (is_over && !self.stream.0.is_retired()).then_some(self.stream)
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        if let Poll::Ready(Err(fault)) = poll_send(&mut self.request, cx) {
            return Poll::Ready(Some(Err(fault)));
        }
        if self.is_complete {
            return Poll::Ready(None);
        }
        if let Some(data) = ready!(self.body.poll_data(cx)) {
            let data = data.map_err(AnswerFault::Http2)?;
            // What was taken has room in the upstream's window again.
            let released = self.body.flow_control().release_capacity(data.len());
            released.map_err(AnswerFault::Http2)?;
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            self.is_complete = self.body.is_end_stream();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.body.poll_trailers(cx)).map_err(AnswerFault::Http2)?;
        self.is_complete = true;
        Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields))))
    }
}

impl Body for Http2Answer {
    type Data = Bytes;
    type Error = AnswerFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        self.get_mut().poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete
    }

    fn size_hint(&self) -> SizeHint {
        match (self.is_complete, self.left) {
            (true, _) => SizeHint::with_exact(0),
            (false, Some(left)) => SizeHint::with_exact(left),
            (false, None) => SizeHint::default(),
        }
    }
}

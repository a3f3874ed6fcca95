//! HTTP/2 towards clients: what hyper and h2 do not do themselves.
//!
//! - A connection without a running request for the idle timeout is closed.
//! - Each request at the same time as others takes a place of its own, as a connection does.
//!   Otherwise a client could run 128 requests on each of its connections.
//! - A stream whose client grants no window is reset. Nothing is written to the connection then, so
//!   the guard of its writes does not notice.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use confide_http::{
    BusyGuard, ConnectionDeadlines, ConnectionPlace, LingeringBody, UNBOUNDED, serve_connection,
};
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    rt::{Executor, Read, Write},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::TokioTimer;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    client_body::ClientBody,
    client_connection::ClientConnection,
    limits::{GatewayLimits, Http2Limits},
    ohttp_gateway,
    proxy::Proxy,
    refusal::RequestRefusal,
    sealed_answer::GatewayBody,
    websocket_relay::{RelaySink, WebSocketRelay},
};

/// The most bytes of an answer that are handed to a stream at once.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// The longest piece that is not divided: an event of a stream, or a short answer.
const UNDIVIDED_BYTES: usize = 1024;

/// Serves HTTP/2 until the connection ends, `stop` resolves and the running requests have ended, or
/// no request has run for the idle timeout.
pub(crate) async fn serve_http2<I>(
    stream: I,
    place: &ConnectionPlace,
    proxy: &Arc<Proxy>,
    limits: &GatewayLimits,
    stop: impl Future<Output = ()>,
) where
    I: Read + Write + Unpin + Send + 'static,
{
    let (relays, opened) = mpsc::channel(limits.http2.streams as usize);
    let service = service_fn(|request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let body = LingeringBody::new(body, &head.headers, limits.request_body_linger);
        let mut request = Request::from_parts(head, ClientBody::Http2(body));
        let (proxy, relays, peer) = (proxy.clone(), relays.clone(), place.peer());
        let is_connect = request.method() == Method::CONNECT;
        let is_head = request.method() == Method::HEAD;
        let busy = if is_connect { place.admit_tunnel() } else { place.admit_exchange() };
        place.run_exchange(async move {
            let Some(busy) = busy.map(Arc::new) else {
                let refused = proxy.refuse(request, RequestRefusal::Busy);
                return Ok::<_, Infallible>(
                    refused.map(|body| StreamBody::new(body, is_head, None)),
                );
            };
            if is_connect {
                request.extensions_mut().insert(busy.clone());
            }
            let relays = RelaySink::Many(&relays);
            let connection = ClientConnection { peer, relays, evidence: None };
            let response = ohttp_gateway::answer(&proxy, request, connection).await;
            Ok(response.map(|body| StreamBody::new(body, is_head, Some(busy))))
        })
    });
    let connection = http2_builder(limits).serve_connection(stream, service);
    let (announce, announced) = oneshot::channel();
    let (counting, relay_count) = watch::channel(0);
    let stop_or_idle = async {
        tokio::select! {
            () = stop => {}
            () = wait_until_unused(place, relay_count.clone(), limits.idle) => {}
        }
        // The receiver lives as long as the connection.
        let _ = announce.send(());
    };
    // A client that answers pings but does not close would otherwise keep the connection for ever.
    let unclosed = async {
        let _ = announced.await;
        tokio::time::sleep(limits.http2.goaway).await;
        wait_until_unused(place, relay_count.clone(), limits.http2.goaway).await;
    };
    let deadlines = ConnectionDeadlines {
        first_request: limits.first_head,
        // A connection that is idle for too long is told so before it is closed.
        idle: UNBOUNDED,
        grace: UNBOUNDED,
    };
    tokio::select! {
        biased;
        () = serve_connection(connection, place, deadlines, stop_or_idle) => {}
        () = unclosed => {}
        () = run_relays(opened, counting, place, limits) => {}
    }
}

fn http2_builder(limits: &GatewayLimits) -> http2::Builder<StreamExecutor> {
    let Http2Limits {
        streams,
        stream_window_bytes,
        connection_window_bytes,
        send_buffer_bytes,
        unread_resets,
        errors,
        ping_interval,
        ping_timeout,
        goaway: _,
    } = limits.http2;
    let mut builder = http2::Builder::new(StreamExecutor { write_stall: limits.write_stall });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .initial_stream_window_size(stream_window_bytes)
        .initial_connection_window_size(connection_window_bytes)
        .max_send_buf_size(send_buffer_bytes)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(unread_resets)
        .max_local_error_reset_streams(errors)
        .keep_alive_interval(ping_interval)
        .keep_alive_timeout(ping_timeout)
        .enable_connect_protocol();
    builder
}

/// Runs the relays of a connection. They belong to its task, so that they end with it.
async fn run_relays(
    mut opened: mpsc::Receiver<Box<WebSocketRelay>>,
    counting: watch::Sender<usize>,
    place: &ConnectionPlace,
    limits: &GatewayLimits,
) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            Some(relay) = opened.recv() => {
                let (place, limits) = (place.clone(), *limits);
                running.spawn(async move { relay.run(&place, &limits).await });
            }
            Some(_) = running.join_next() => {}
            else => std::future::pending().await,
        }
        counting.send_replace(running.len());
    }
}

/// Resolves once no relay is open and no request has run for `limit`.
async fn wait_until_unused(
    place: &ConnectionPlace,
    mut relay_count: watch::Receiver<usize>,
    limit: Duration,
) {
    loop {
        // The sender lives as long as the connection.
        let _ = relay_count.wait_for(|count| *count == 0).await;
        place.wait_for_idle_time(limit).await;
        if *relay_count.borrow() == 0 {
            return;
        }
    }
}

tokio::task_local! {
    /// The progress of the stream whose task this is.
    static PROGRESS: Arc<StreamProgress>;
}

/// Spawns the tasks of streams, and drops those whose client does not read for too long, which
/// resets the stream.
#[derive(Clone)]
struct StreamExecutor {
    write_stall: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let limit = self.write_stall;
        let progress = Arc::new(StreamProgress::default());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = PROGRESS.scope(progress.clone(), stream) => {}
                () = progress.wait_for_stall(limit) => {
                    tracing::debug!("stream reset: its client does not read");
                }
            }
        });
    }
}

/// When a piece of an answer was handed to the stream and has not been sent yet. hyper asks for the
/// next piece once the client's window has room for a byte beyond the last.
#[derive(Debug, Default)]
struct StreamProgress(Mutex<Option<Instant>>);

impl StreamProgress {
    fn record(&self, unsent_since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = unsent_since;
    }

    /// Resolves when one piece has been unsent for `limit`.
    async fn wait_for_stall(&self, limit: Duration) {
        loop {
            let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
            if waited >= limit {
                return;
            }
            tokio::time::sleep(limit - waited).await;
        }
    }
}

/// The body of an answer on a stream, which holds the place of its request.
///
/// hyper hands a piece to h2 once the window has room for its first byte; h2 keeps the others without
/// a deadline, and after the last piece no task is left to watch them. A long piece is therefore
/// divided, and its last byte is handed over only when the client has granted room for all others.
pub(crate) struct StreamBody {
    inner: GatewayBody,
    /// The part of a piece that was not handed over yet.
    rest: Bytes,
    /// Whether the request was a HEAD, whose answer has no content; hyper does not remove it.
    is_head: bool,
    progress: Option<Arc<StreamProgress>>,
    _busy: Option<Arc<BusyGuard>>,
}

impl StreamBody {
    /// Has to be called in the task of the stream.
    fn new(inner: GatewayBody, is_head: bool, busy: Option<Arc<BusyGuard>>) -> Self {
        let progress = PROGRESS.try_with(Arc::clone).ok();
        Self { inner, rest: Bytes::new(), is_head, progress, _busy: busy }
    }

    /// Divides a frame of content, and keeps its rest.
    fn divide(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(mut data) => {
                let length = data.len();
                let is_short = length <= UNDIVIDED_BYTES;
                let first = if is_short { length } else { PIECE_BYTES_MAX.min(length - 1) };
                let first = data.split_to(first);
                self.rest = data;
                Frame::data(first)
            }
            Err(trailers) => trailers,
        }
    }

    fn record(&self, unsent_since: Option<Instant>) {
        if let Some(progress) = &self.progress {
            progress.record(unsent_since);
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = <GatewayBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let poll = match self.rest.is_empty() {
            true => Pin::new(&mut self.inner).poll_frame(cx),
            false => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest))))),
        };
        let poll = poll.map_ok(|frame| self.divide(frame));
        self.record(matches!(poll, Poll::Ready(Some(Ok(_)))).then(Instant::now));
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || (self.rest.is_empty() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

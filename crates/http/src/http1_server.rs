//! Serves HTTP/1.1 on one client's connection: one request after another, each answered by a service.
//!
//! An idle connection holds no buffers, where hyper's holds 16 KiB, and the pieces of an answer that are
//! ready together leave together.

use std::{
    fmt::Display,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    admission::{BusyGuard, ConnectionPlace},
    announced_trailers::AnnouncedTrailers,
    client_stream::{BodyRest, ClientStream},
    connection::{ConnectionDeadlines, serve_with_deadlines},
    date_line::DateLine,
    hop::list_members,
    http1::{
        AnswerFraming, BodyEncoder, BodyFraming, HeadLimits, Http1Error, RequestHead,
        RequestHeadParser, encode_answer_head,
    },
    http1_request_body::{Http1RequestBody, lock},
    rewound_stream::RewoundStream,
};

/// The number of bytes of an answer that are collected before they are written, if more is ready.
const COLLECTED_BYTES: usize = 16 * 1024;
const CLOSE_LINE: &[u8] = b"connection: close\r\n";
const KEEP_ALIVE_LINE: &[u8] = b"connection: keep-alive\r\n";

/// Answers the requests of a connection.
pub trait Http1Service: Sync {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Display> + Unpin + Send;
    /// The body of the answer to a head that cannot be read.
    type Refusal: Body<Data = Bytes, Error: Display> + Unpin + Send;

    /// Answers one request. After an answer that changes the protocol (101), the connection is the
    /// caller's of [`serve_http1`].
    fn answer(
        &self,
        request: Request<Http1RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers a head that cannot be read. `code` is for programs.
    fn refuse_head(
        &self,
        status: StatusCode,
        code: &'static str,
        error: Http1Error,
    ) -> Response<Self::Refusal>;

    /// The line `Date` of an answer without one.
    fn date_line(&self) -> Option<DateLine>;
}

/// The limits of a connection, besides its deadlines.
#[derive(Clone, Copy, Debug)]
pub struct Http1Limits {
    /// Those of heads and trailers.
    pub head: HeadLimits,
    /// The longest time for which the rest of a request's body is read after its answer.
    pub body_linger: Duration,
}

/// Serves HTTP/1.1 on `stream` until it ends, a deadline is reached, or `stop` resolves and the running
/// exchange has ended. Returns the stream if an answer has changed its protocol.
pub async fn serve_http1<S, A>(
    stream: S,
    service: &A,
    place: &ConnectionPlace,
    limits: Http1Limits,
    deadlines: ConnectionDeadlines,
    stop: impl Future<Output = ()>,
) -> Option<RewoundStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Http1Service,
{
    let is_closing = AtomicBool::new(false);
    let server = Http1Server { service, limits, place, is_closing: &is_closing };
    // Boxed once, because every future that it is moved into would hold it again.
    let serving = Box::pin(server.serve(stream));
    let close = |_: Pin<&mut _>| is_closing.store(true, Ordering::Relaxed);
    serve_with_deadlines(serving, close, place, deadlines, stop).await.flatten()
}

/// One connection.
struct Http1Server<'a, A> {
    service: &'a A,
    limits: Http1Limits,
    place: &'a ConnectionPlace,
    /// Becomes true when no further request is to be served.
    is_closing: &'a AtomicBool,
}

/// The consequence of an exchange for its connection.
enum ExchangeEnd {
    NextRequest,
    Close,
    Upgrade,
    /// The client has left, or the answer broke off: nothing more can be said.
    Cut,
}

impl<A: Http1Service> Http1Server<'_, A> {
    /// Serves requests until the client ends the connection, or an exchange does.
    async fn serve<S>(&self, stream: S) -> Option<RewoundStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = self.limits.head;
        let stream = Arc::new(Mutex::new(ClientStream::new(stream, limits)));
        loop {
            let mut parser = RequestHeadParser::new(limits);
            let next = poll_fn(|cx| {
                let is_closing = self.is_closing.load(Ordering::Relaxed);
                lock(&stream).poll_head(&mut parser, is_closing, cx)
            });
            let end = match next.await {
                Ok(None) => ExchangeEnd::Close,
                Ok(Some(head)) => {
                    // Boxed, so that an idle connection holds no room for an exchange.
                    Box::pin(self.run_exchange(head, &stream)).await
                }
                Err(fault) => {
                    Box::pin(self.refuse_head(fault, &stream)).await;
                    ExchangeEnd::Close
                }
            };
            match end {
                ExchangeEnd::NextRequest => lock(&stream).release_buffers(),
                ExchangeEnd::Cut => return None,
                ExchangeEnd::Close => {
                    let _ = poll_fn(|cx| lock(&stream).poll_shutdown(cx)).await;
                    return None;
                }
                ExchangeEnd::Upgrade => {
                    // Nobody else holds it: the request had no body.
                    return Some(Arc::into_inner(stream)?.into_inner().ok()?.into_rewound());
                }
            }
        }
    }

    /// Answers one request.
    async fn run_exchange<S>(
        &self,
        mut head: RequestHead,
        stream: &Arc<Mutex<ClientStream<S>>>,
    ) -> ExchangeEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let framing = match head.frame_body() {
            Ok(framing) => framing,
            Err(fault) => {
                self.refuse_head(fault, stream).await;
                return ExchangeEnd::Close;
            }
        };
        let terms = ExchangeTerms {
            method: head.method.clone(),
            version: head.version,
            keeps_connection: head.keeps_connection(),
        };
        lock(stream).begin_body(framing, head.awaits_continue());
        let body = match framing {
            BodyFraming::Empty => Http1RequestBody::empty(),
            _ => Http1RequestBody::new(stream.clone()),
        };
        let busy = self.place.begin_exchange();
        let answered = {
            let request = build_request(head, body);
            let mut answering = pin!(self.service.answer(request));
            poll_fn(|cx| match answering.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => lock(stream).poll_departure(cx).map(|()| None),
            })
            .await
        };
        let Some(answer) = answered else { return ExchangeEnd::Cut };
        let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_kept = match self.write_answer(answer, &terms, stream, Some(busy)).await {
            Ok(is_kept) => is_kept,
            Err(error) => {
                tracing::debug!(%error, "an answer was cut");
                return ExchangeEnd::Cut;
            }
        };
        if is_upgrade {
            return ExchangeEnd::Upgrade;
        }
        let discard = poll_fn(|cx| lock(stream).poll_discard(cx));
        let has_rest = !lock(stream).is_at_next_head();
        let is_read = !has_rest
            || tokio::time::timeout(self.limits.body_linger, discard)
                .await
                .is_ok_and(|rest| rest == BodyRest::Read);
        if is_kept && is_read { ExchangeEnd::NextRequest } else { ExchangeEnd::Close }
    }

    /// Writes an answer. Returns whether another request may follow.
    async fn write_answer<S, B>(
        &self,
        answer: Response<B>,
        terms: &ExchangeTerms,
        stream: &Mutex<ClientStream<S>>,
        busy: Option<BusyGuard>,
    ) -> io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        let (head, body) = answer.into_parts();
        let length = body.size_hint().exact();
        let framing = AnswerFraming::of_body(&terms.method, head.status, length);
        if framing == AnswerFraming::Chunked && terms.version == Version::HTTP_10 {
            return Err(io::Error::other("HTTP/1.0 has no chunks"));
        }
        let is_kept = terms.keeps_connection
            && !lock(stream).lacks_expected_body()
            && !self.is_closing.load(Ordering::Relaxed)
            && !names_close(&head.headers);
        let announced = AnnouncedTrailers::find(&head.headers);
        let has_connection = head.headers.contains_key(header::CONNECTION);
        let connection: &[u8] = match (is_kept, terms.version == Version::HTTP_10) {
            _ if has_connection => b"",
            (false, _) => CLOSE_LINE,
            (true, true) => KEEP_ALIVE_LINE,
            (true, false) => b"",
        };
        let date = match head.headers.contains_key(header::DATE) {
            true => None,
            false => self.service.date_line(),
        };
        let date = date.as_ref().map_or(&b""[..], DateLine::as_bytes);
        {
            let mut stream = lock(stream);
            stream.begin_answer();
            let (status, more) = (head.status, [connection, date]);
            let queue = &mut stream.queue;
            encode_answer_head(terms.version, status, &head.headers, framing, &more, queue);
        }
        let encoder = match framing {
            AnswerFraming::Bodiless => BodyEncoder::new(Some(0)),
            AnswerFraming::Length(length) => BodyEncoder::new(Some(length)),
            AnswerFraming::Chunked => BodyEncoder::new(None),
        };
        // Of an answer without a body, whatever the upstream sends is not read.
        let body = (framing != AnswerFraming::Bodiless).then_some(body);
        let busy = busy.filter(|_| body.is_some());
        let mut outgoing = OutgoingAnswer { body, encoder, announced, fault: None, busy };
        poll_fn(|cx| outgoing.poll_write(stream, cx)).await?;
        Ok(is_kept)
    }

    /// Answers a head that cannot be read.
    async fn refuse_head<S>(&self, fault: Http1Error, stream: &Mutex<ClientStream<S>>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let (status, code) = match fault {
            Http1Error::HeadTooLong { .. } => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large")
            }
            Http1Error::TooManyFields { .. } => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_fields")
            }
            _ => (StatusCode::BAD_REQUEST, "malformed_request"),
        };
        let answer = self.service.refuse_head(status, code, fault);
        let terms = ExchangeTerms {
            method: Method::GET,
            version: Version::HTTP_11,
            keeps_connection: false,
        };
        if let Err(error) = self.write_answer(answer, &terms, stream, None).await {
            tracing::debug!(%error, "a refusal was not sent");
        }
    }
}

/// The properties of a request that its answer depends on.
struct ExchangeTerms {
    method: Method,
    version: Version,
    keeps_connection: bool,
}

/// The rest of an answer that is being written.
struct OutgoingAnswer<B> {
    /// The body, until its end.
    body: Option<B>,
    encoder: BodyEncoder,
    announced: AnnouncedTrailers,
    /// The reason why the body was cut. What came before is written first.
    fault: Option<io::Error>,
    /// Whether the connection counts as busy, which it does until the last piece is queued: a client
    /// that reads that slowly may be evicted.
    busy: Option<BusyGuard>,
}

impl<B> OutgoingAnswer<B>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    /// Writes the rest. A body that fails leaves an answer without its end.
    fn poll_write<S>(
        &mut self,
        stream: &Mutex<ClientStream<S>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        loop {
            let is_waiting = self.poll_collect(stream, cx).is_pending();
            let mut stream = lock(stream);
            if stream.poll_write_queue(cx)?.is_pending() || is_waiting {
                // A client that has left needs no more of it.
                ready!(stream.poll_departure(cx));
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if let Some(fault) = self.fault.take() {
                return Poll::Ready(Err(fault));
            }
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Queues what is ready of the body, up to a bound.
    fn poll_collect<S>(&mut self, stream: &Mutex<ClientStream<S>>, cx: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        while let Some(body) = &mut self.body {
            // A request's body may be read from the same connection here, so it is not locked.
            if lock(stream).queue.remaining() >= COLLECTED_BYTES {
                break;
            }
            let frame = ready!(Pin::new(body).poll_frame(cx));
            let mut stream = lock(stream);
            let queue = &mut stream.queue;
            let queued = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.encoder.encode(data, queue),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.encoder.finish(&self.announced.select(trailers), queue)
                    }
                },
                Some(Err(error)) => {
                    self.fault = Some(io::Error::other(error.to_string()));
                    Ok(())
                }
                None => self.encoder.finish(&HeaderMap::new(), queue),
            };
            if let Err(error) = queued {
                self.fault = Some(io::Error::other(error));
            }
            drop(stream);
            if self.fault.is_some() || self.encoder.is_complete() {
                // It may hold the request's body, which locks the stream to say that it is gone.
                self.body = None;
                self.busy = None;
            }
        }
        Poll::Ready(())
    }
}

fn build_request(head: RequestHead, body: Http1RequestBody) -> Request<Http1RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = head.target;
    *request.version_mut() = head.version;
    *request.headers_mut() = head.fields;
    request
}

fn names_close(fields: &HeaderMap) -> bool {
    fields.contains_key(header::CONNECTION)
        && list_members(fields, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case("close"))
}

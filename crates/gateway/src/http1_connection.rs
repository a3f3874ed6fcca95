//! A connection to the upstream that speaks HTTP/1.1. It has no task of its own: whoever sends a
//! request and reads its answer moves the bytes of both.

use std::{
    error::Error,
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use confide_http::http1::{
    AnswerHead, AnswerHeadParser, BodyDecoder, BodyEncoder, BodyPiece, HeadLimits, WriteQueue,
    encode_request_head,
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::{
    answer_fault::AnswerFault,
    limits::GatewayLimits,
    rewound_stream::RewoundStream,
    trailers::AnnouncedTrailers,
    upstream_request::{RequestBody, RequestProgress, UnansweredRequest},
    upstream_socket::UpstreamSocket,
};

/// The largest number of fields of an answer's head, and of its trailers.
const ANSWER_FIELDS_MAX: usize = 100;
/// The number of bytes that are read at once, at first and at most. A bulk transfer fills the room
/// each time and gets more.
const READ_BYTES: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;
/// The number of unsent bytes of a request beyond which no more of its body is read.
const QUEUED_BYTES_MAX: usize = 16 * 1024;

/// A connection on which no request runs.
pub(crate) struct Http1Connection {
    socket: UpstreamSocket,
    /// The bytes that were received and not yet taken.
    received: BytesMut,
    /// The number of bytes for which room is made before a read.
    read_bytes: usize,
    queue: WriteQueue,
    limits: HeadLimits,
}

/// The rest of a request that is being sent.
struct OutgoingRequest {
    body: RequestBody,
    encoder: BodyEncoder,
    announced: AnnouncedTrailers,
}

/// The reason why the rest of a request cannot be sent.
enum SendFault {
    /// The client's side is at fault.
    Body(Box<dyn Error + Send + Sync>),
    /// The upstream takes no more bytes. It may still answer.
    Stream(io::Error),
}

/// The body of an answer, with its connection and the rest of the request.
pub(crate) struct Http1Answer {
    connection: Box<Http1Connection>,
    request: Option<OutgoingRequest>,
    decoder: BodyDecoder,
    /// Whether another request may follow on the connection.
    is_kept: bool,
}

/// A stream after a change of protocols.
pub(crate) type UpgradedSocket = RewoundStream<UpstreamSocket>;

impl Http1Connection {
    pub(crate) fn new(socket: UpstreamSocket, limits: &GatewayLimits) -> Box<Self> {
        Box::new(Self {
            socket,
            received: BytesMut::new(),
            read_bytes: READ_BYTES,
            queue: WriteQueue::default(),
            limits: HeadLimits { bytes: limits.upstream_head_bytes, fields: ANSWER_FIELDS_MAX },
        })
    }

    /// Whether the upstream has neither closed the connection nor sent anything unasked.
    pub(crate) fn is_open_and_silent(&mut self) -> bool {
        self.received.is_empty() && self.socket.is_open_and_silent()
    }

    /// Waits until the upstream closes the connection or sends something unasked.
    pub(crate) async fn wait_for_bytes_or_end(&self) {
        self.socket.wait_for_bytes_or_end().await;
    }

    /// Sends one request and reads the head of its answer, which may come before the request is
    /// sent to its end.
    pub(crate) async fn send(
        mut self: Box<Self>,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<Http1Answer>, UnansweredRequest> {
        let (head, body) = request.into_parts();
        let is_bodiless = body.is_end_stream();
        let length = body.size_hint().exact();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        encode_request_head(&head.method, target, &head.headers, length, &mut self.queue);
        let announced = AnnouncedTrailers::find(&head.headers);
        let encoder = BodyEncoder::new(length);
        let mut request = Some(OutgoingRequest { body, encoder, announced });
        let mut parser = AnswerHeadParser::new(self.limits);
        let (mut has_received, mut has_failed) = (false, false);
        let answered = std::future::poll_fn(|cx| {
            match self.poll_send(&mut request, cx) {
                Poll::Ready(Err(SendFault::Body(error))) => {
                    return Poll::Ready(Err(AnswerFault::Request(error)));
                }
                // It may have answered before it closed.
                Poll::Ready(Err(SendFault::Stream(error))) => {
                    has_failed = true;
                    tracing::debug!(%error, "the upstream takes no more of a request");
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            self.poll_head(&mut parser, &mut has_received, cx)
        });
        let framed = answered.await.and_then(|mut answer| {
            let is_upgrade = answer.status == StatusCode::SWITCHING_PROTOCOLS;
            if is_upgrade && !head.headers.contains_key(header::UPGRADE) {
                return Err(AnswerFault::UnaskedUpgrade);
            }
            // With both, either could be meant (RFC 9112 section 6.3).
            let is_ambiguous = answer.fields.contains_key(header::TRANSFER_ENCODING)
                && answer.fields.contains_key(header::CONTENT_LENGTH);
            let framing = answer.frame_body(&head.method)?;
            let is_kept = answer.keeps_connection() && !is_upgrade && !is_ambiguous;
            Ok((answer, framing, is_kept && !has_failed))
        });
        let (answer, framing, is_kept) = match framed {
            Ok(framed) => framed,
            Err(fault) => {
                let whole = || Box::new(Request::from_parts(head, Either::Right(Full::default())));
                let request = is_bodiless.then(whole);
                let progress =
                    if has_received { RequestProgress::Begun } else { RequestProgress::Unknown };
                return Err(UnansweredRequest { request, progress, fault });
            }
        };
        let decoder = BodyDecoder::new(framing, self.limits);
        let mut response =
            Response::new(Http1Answer { connection: self, request, decoder, is_kept });
        *response.status_mut() = answer.status;
        *response.version_mut() = answer.version;
        *response.headers_mut() = answer.fields;
        Ok(response)
    }

    /// Gives memory back that an idle connection does not need.
    fn release_large_buffers(&mut self) {
        if self.read_bytes > READ_BYTES {
            self.read_bytes = READ_BYTES;
            self.received = BytesMut::new();
        }
        self.queue.release_large_buffers();
    }

    /// Sends more of a request. Once it has been sent, or cannot be sent further, it is `None`.
    fn poll_send(
        &mut self,
        request: &mut Option<OutgoingRequest>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        let Some(outgoing) = request else { return Poll::Ready(Ok(())) };
        let outcome = ready!(self.poll_send_rest(outgoing, cx));
        if outcome.is_err() {
            // What waits belongs to no other request.
            self.queue = WriteQueue::default();
        }
        *request = None;
        Poll::Ready(outcome)
    }

    fn poll_send_rest(
        &mut self,
        request: &mut OutgoingRequest,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        loop {
            // The head and the first piece of the body leave together if both are there. An upstream
            // that does not read must not make the queue grow.
            let has_room = self.queue.remaining() < QUEUED_BYTES_MAX;
            let is_waiting = has_room && request.poll_next_piece(&mut self.queue, cx)?.is_pending();
            while !self.queue.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = self.queue.chunks_vectored(&mut slices);
                let written = Pin::new(&mut self.socket).poll_write_vectored(cx, &slices[..count]);
                match ready!(written) {
                    Ok(0) => {
                        return Poll::Ready(Err(SendFault::Stream(
                            io::ErrorKind::WriteZero.into(),
                        )));
                    }
                    Ok(written) => self.queue.advance(written),
                    Err(error) => return Poll::Ready(Err(SendFault::Stream(error))),
                }
            }
            if request.encoder.is_complete() || is_waiting {
                let flushed = Pin::new(&mut self.socket).poll_flush(cx);
                ready!(flushed).map_err(SendFault::Stream)?;
            }
            if request.encoder.is_complete() {
                return Poll::Ready(Ok(()));
            }
            if is_waiting {
                return Poll::Pending;
            }
        }
    }

    fn poll_head(
        &mut self,
        parser: &mut AnswerHeadParser,
        has_received: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AnswerHead, AnswerFault>> {
        loop {
            if !self.received.is_empty()
                && let Some(head) = parser.parse(&mut self.received)?
            {
                // The others announce the answer that follows (RFC 9110 section 15.2).
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS
                {
                    return Poll::Ready(Ok(head));
                }
                continue;
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(AnswerFault::ConnectionClosed));
            }
            *has_received = true;
        }
    }

    /// Receives some bytes; zero at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.received.capacity() - self.received.len();
        if room < self.read_bytes / 2 {
            self.received.reserve(self.read_bytes);
        }
        let room = self.received.capacity() - self.received.len();
        let count = ready!(pin!(self.socket.read_buf(&mut self.received)).poll(cx))?;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok(count))
    }
}

impl OutgoingRequest {
    /// Queues the next piece of the body, or its end.
    fn poll_next_piece(
        &mut self,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        if self.encoder.is_complete() {
            return Poll::Ready(Ok(()));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let queued = match frame.transpose().map_err(SendFault::Body)?.map(Frame::into_data) {
            Some(Ok(data)) => self.encoder.encode(data, queue),
            Some(Err(frame)) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                self.encoder.finish(&self.announced.select(trailers), queue)
            }
            None => self.encoder.finish(&HeaderMap::new(), queue),
        };
        Poll::Ready(queued.map_err(|error| SendFault::Body(error.into())))
    }
}

impl Http1Answer {
    /// The connection, if the exchange is over and another request may follow.
    pub(crate) fn into_idle_connection(self) -> Option<Box<Http1Connection>> {
        let is_over = self.decoder.is_complete() && self.request.is_none();
        // What follows an answer belongs to no request.
        let is_kept = is_over && self.is_kept && self.connection.received.is_empty();
        is_kept.then(|| {
            let mut connection = self.connection;
            connection.release_large_buffers();
            connection
        })
    }

    /// The stream, after an answer that changes the protocol.
    pub(crate) fn into_upgraded(self) -> UpgradedSocket {
        let Http1Connection { socket, received, .. } = *self.connection;
        RewoundStream::new(socket, received)
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        let connection = &mut *self.connection;
        match connection.poll_send(&mut self.request, cx) {
            Poll::Ready(Err(SendFault::Body(error))) => {
                return Poll::Ready(Some(Err(AnswerFault::Request(error))));
            }
            Poll::Ready(Err(SendFault::Stream(_))) => self.is_kept = false,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        loop {
            match self.decoder.decode(&mut connection.received)? {
                BodyPiece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                BodyPiece::Trailers(fields) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                BodyPiece::End => return Poll::Ready(None),
                BodyPiece::Incomplete => {}
            }
            if ready!(connection.poll_receive(cx))? == 0 {
                self.is_kept = false;
                self.decoder.finish()?;
            }
        }
    }
}

impl Body for Http1Answer {
    type Data = Bytes;
    type Error = AnswerFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerFault>>> {
        self.get_mut().poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_complete()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.remaining_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

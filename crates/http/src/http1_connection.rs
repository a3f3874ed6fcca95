//! A client's connection of HTTP/1.1. It has no task of its own: whoever sends a request and reads its
//! answer moves the bytes of both.

use std::{
    error::Error,
    future::Future,
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header, request};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::{
    announced_trailers::AnnouncedTrailers,
    http1::{
        AnswerHead, AnswerHeadParser, BodyDecoder, BodyEncoder, BodyPiece, HeadLimits, Http1Error,
        WriteQueue, encode_request_head,
    },
    rewound_stream::RewoundStream,
};

/// The number of bytes that are read at once, at first and at most. A bulk transfer fills the room
/// each time and gets more.
const READ_BYTES: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;
/// The number of unsent bytes of a request beyond which no more of its body is read.
const QUEUED_BYTES_MAX: usize = 16 * 1024;

/// The error of a request's body.
type BodyError = Box<dyn Error + Send + Sync>;

/// A connection on which no request runs.
pub struct Http1Connection<S> {
    stream: S,
    /// The bytes that were received and not yet taken.
    received: BytesMut,
    /// The number of bytes for which room is made before a read.
    read_bytes: usize,
    queue: WriteQueue,
    limits: HeadLimits,
    joins_chunks: bool,
}

/// The reason why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The other end closed the connection before the head of an answer.
    #[error("the other end closed the connection")]
    ConnectionClosed,
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// The answer is not valid HTTP/1.1, or ends too early.
    #[error("invalid HTTP/1.1: {0}")]
    Malformed(#[from] Http1Error),
    /// The answer changes the protocol, which the request did not ask for.
    #[error("the other end changed the protocol unasked")]
    UnaskedUpgrade,
    /// The body of the request failed.
    #[error("the request could not be sent to its end: {0}")]
    Request(#[source] BodyError),
}

/// An exchange without an answer.
#[derive(Debug)]
pub struct UnansweredExchange {
    /// The head of the request, if it had no body.
    pub bodiless: Option<Box<request::Parts>>,
    /// Whether bytes of an answer have come.
    pub has_received: bool,
    /// The reason.
    pub error: ExchangeError,
}

/// The rest of a request that is being sent.
struct OutgoingRequest<B> {
    body: B,
    encoder: BodyEncoder,
    announced: AnnouncedTrailers,
}

/// The reason why the rest of a request cannot be sent.
enum SendFault {
    /// The body failed.
    Body(BodyError),
    /// The other end takes no more bytes. It may still answer.
    Stream(io::Error),
}

/// The body of an answer, with its connection and the rest of the request.
pub struct Http1Answer<S, B> {
    connection: Box<Http1Connection<S>>,
    request: Option<OutgoingRequest<B>>,
    decoder: BodyDecoder,
    /// Whether another request may follow on the connection.
    is_kept: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1Connection<S> {
    /// A connection over `stream`. `limits` hold for the heads and trailers of answers.
    pub fn new(stream: S, limits: HeadLimits) -> Box<Self> {
        Box::new(Self {
            stream,
            received: BytesMut::new(),
            read_bytes: READ_BYTES,
            queue: WriteQueue::default(),
            limits,
            joins_chunks: false,
        })
    }

    /// The connection, whose answers now have one piece where small chunks have come together
    /// ([`BodyDecoder::joining_small_chunks`]).
    pub fn joining_small_chunks(mut self: Box<Self>) -> Box<Self> {
        self.joins_chunks = true;
        self
    }

    /// The stream, if no bytes were received that belong to no answer.
    pub fn silent_stream(&mut self) -> Option<&mut S> {
        self.received.is_empty().then_some(&mut self.stream)
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Resolves when the other end closes the connection or sends something unasked.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.received.is_empty() {
            return Poll::Ready(());
        }
        // No room is kept for bytes that do not come.
        let mut room = [MaybeUninit::uninit(); 1];
        let mut room = ReadBuf::uninit(&mut room);
        let _ = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room));
        self.received.extend_from_slice(room.filled());
        Poll::Ready(())
    }

    /// Sends one request and reads the head of its answer, which may come before the request is
    /// sent to its end.
    ///
    /// # Errors
    /// [`UnansweredExchange`] if no answer comes. The connection is closed then.
    pub async fn send<B>(
        mut self: Box<Self>,
        request: Box<Request<B>>,
    ) -> Result<Response<Http1Answer<S, B>>, UnansweredExchange>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
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
                    return Poll::Ready(Err(ExchangeError::Request(error)));
                }
                // It may have answered before it closed.
                Poll::Ready(Err(SendFault::Stream(error))) => {
                    has_failed = true;
                    tracing::debug!(%error, "the other end takes no more of a request");
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            self.poll_head(&mut parser, &mut has_received, cx)
        });
        let framed = answered.await.and_then(|mut answer| {
            let is_upgrade = answer.status == StatusCode::SWITCHING_PROTOCOLS;
            if is_upgrade && !head.headers.contains_key(header::UPGRADE) {
                return Err(ExchangeError::UnaskedUpgrade);
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
            Err(error) => {
                let bodiless = is_bodiless.then(|| Box::new(head));
                return Err(UnansweredExchange { bodiless, has_received, error });
            }
        };
        let mut decoder = BodyDecoder::new(framing, self.limits);
        if self.joins_chunks {
            decoder = decoder.joining_small_chunks();
        }
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
    fn poll_send<B>(
        &mut self,
        request: &mut Option<OutgoingRequest<B>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let Some(outgoing) = request else { return Poll::Ready(Ok(())) };
        let outcome = ready!(self.poll_send_rest(outgoing, cx));
        if outcome.is_err() {
            // What waits belongs to no other request.
            self.queue = WriteQueue::default();
        }
        *request = None;
        Poll::Ready(outcome)
    }

    fn poll_send_rest<B>(
        &mut self,
        request: &mut OutgoingRequest<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        loop {
            // The head and the first piece of the body leave together if both are there. An end
            // that does not read must not make the queue grow.
            let has_room = self.queue.remaining() < QUEUED_BYTES_MAX;
            let is_waiting = has_room && request.poll_next_piece(&mut self.queue, cx)?.is_pending();
            while !self.queue.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = self.queue.chunks_vectored(&mut slices);
                let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]);
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
                let flushed = Pin::new(&mut self.stream).poll_flush(cx);
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
    ) -> Poll<Result<AnswerHead, ExchangeError>> {
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
                return Poll::Ready(Err(ExchangeError::ConnectionClosed));
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
        let count = ready!(pin!(self.stream.read_buf(&mut self.received)).poll(cx))?;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok(count))
    }
}

impl<B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> OutgoingRequest<B> {
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
        let frame = frame.transpose();
        let frame = frame.map_err(|error| SendFault::Body(error.into()))?;
        let queued = match frame.map(Frame::into_data) {
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

impl<S, B> Http1Answer<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    /// The connection, if the exchange is over and another request may follow.
    pub fn into_idle_connection(self) -> Option<Box<Http1Connection<S>>> {
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
    pub fn into_upgraded(self) -> RewoundStream<S> {
        let Http1Connection { stream, received, .. } = *self.connection;
        RewoundStream::new(stream, received)
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let connection = &mut *self.connection;
        match connection.poll_send(&mut self.request, cx) {
            Poll::Ready(Err(SendFault::Body(error))) => {
                return Poll::Ready(Some(Err(ExchangeError::Request(error))));
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

impl<S, B> Body for Http1Answer<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        self.get_mut().poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_complete()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.remaining_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 1024, fields: 10 };

    /// A body of no bytes.
    struct NoBody;

    impl Body for NoBody {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            Poll::Ready(None)
        }

        fn is_end_stream(&self) -> bool {
            true
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(0)
        }
    }

    type Answer = Http1Answer<DuplexStream, NoBody>;

    /// Sends a GET to an end that gives this answer.
    async fn ask(answer: &str) -> (Result<Answer, UnansweredExchange>, DuplexStream) {
        let (near, mut far) = duplex(4096);
        far.write_all(answer.as_bytes()).await.unwrap();
        let request = Request::get("/").header("host", "h").body(NoBody).unwrap();
        let answered = Http1Connection::new(near, LIMITS).send(Box::new(request)).await;
        (answered.map(Response::into_body), far)
    }

    async fn read_to_end(answer: &mut Answer) -> Result<Vec<u8>, ExchangeError> {
        let mut data = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *answer).poll_frame(cx)).await {
            data.extend_from_slice(&frame?.into_data().unwrap_or_default());
        }
        Ok(data)
    }

    #[tokio::test]
    async fn an_answer_that_was_read_to_its_end_gives_its_connection_back_unless_more_came() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        for (more, is_kept) in [("", true), ("H", false)] {
            let (answered, _far) = ask(&format!("{answer}{more}")).await;
            let mut answer = answered.unwrap();
            assert_eq!(read_to_end(&mut answer).await.unwrap(), b"ok");
            assert_eq!(answer.into_idle_connection().is_some(), is_kept, "{more}");
        }
        let (answered, _far) = ask(answer).await;
        assert!(answered.unwrap().into_idle_connection().is_none(), "it was not read");
    }

    #[tokio::test]
    async fn an_idle_connection_ends_when_the_other_end_closes_it_or_speaks_unasked() {
        for spoken in ["", "H"] {
            let (answered, mut far) = ask("HTTP/1.1 204 No Content\r\n\r\n").await;
            let mut idle = answered.unwrap().into_idle_connection().unwrap();
            let is_ended = poll_fn(|cx| Poll::Ready(idle.poll_end(cx).is_ready())).await;
            assert!(!is_ended, "{spoken}");
            far.write_all(spoken.as_bytes()).await.unwrap();
            drop(far);
            poll_fn(|cx| idle.poll_end(cx)).await;
            assert_eq!(idle.silent_stream().is_some(), spoken.is_empty());
        }
    }

    #[tokio::test]
    async fn an_exchange_without_an_answer_says_how_far_it_came() {
        for (answer, has_received) in [("", false), ("HTTP/1.1 2", true)] {
            let (near, mut far) = duplex(4096);
            far.write_all(answer.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
            let request = Request::get("/").header("host", "h").body(NoBody).unwrap();
            let answered = Http1Connection::new(near, LIMITS).send(Box::new(request)).await;
            let Err(unanswered) = answered else { panic!("an answer") };
            assert_eq!(unanswered.has_received, has_received);
            assert!(matches!(unanswered.error, ExchangeError::ConnectionClosed));
            assert_eq!(unanswered.bodiless.unwrap().uri, "/");
        }
    }

    #[tokio::test]
    async fn a_protocol_is_not_changed_unasked() {
        let (answered, _far) = ask("HTTP/1.1 101 Switching Protocols\r\n\r\n").await;
        let Err(unanswered) = answered else { panic!("an answer") };
        assert!(matches!(unanswered.error, ExchangeError::UnaskedUpgrade));
    }
}

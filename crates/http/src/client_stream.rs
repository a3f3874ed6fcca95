//! A client's connection of HTTP/1.1: what was received and not read yet, and what waits to be
//! written. It needs little memory while it is idle.

use std::{
    future::Future,
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::{
    http1::{
        BodyDecoder, BodyFraming, BodyPiece, HeadLimits, Http1Error, RequestHead,
        RequestHeadParser, WriteQueue,
    },
    http1_request_body::{BodySource, RequestBodyFault},
    rewound_stream::RewoundStream,
};

/// The number of bytes of heads that are read at once: most have a few hundred.
const HEAD_READ_BYTES: usize = 2048;
/// The number of bytes of a body that are read at once: those of a TLS record.
const BODY_READ_BYTES: usize = 16 * 1024;
/// The largest number of bytes of a body that are read and discarded; the same as the limit of a
/// proxied body.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024 * 1024;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The end of reading the rest of a body that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRest {
    /// It was read and discarded.
    Read,
    /// It does not come or cannot be read: the client waits for 100, or sent chunks that are malformed
    /// or too many.
    Unreadable,
    /// The client has left.
    Disconnected,
}

pub(crate) struct ClientStream<S> {
    stream: S,
    received: BytesMut,
    pub(crate) queue: WriteQueue,
    limits: HeadLimits,
    /// The decoder of the current request's body.
    decoder: BodyDecoder,
    /// Whether the client waits for 100 before it sends the body.
    awaits_continue: bool,
    /// Whether somebody may still read the body.
    is_body_wanted: bool,
    /// Whether the answer has begun, so that it is too late for 100.
    is_answered: bool,
    /// Whether 100 is on its way and may not have left yet.
    owes_flush: bool,
    discarded_bytes: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ClientStream<S> {
    pub(crate) fn new(stream: S, limits: HeadLimits) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            queue: WriteQueue::default(),
            limits,
            decoder: BodyDecoder::new(BodyFraming::Empty, limits),
            awaits_continue: false,
            is_body_wanted: false,
            is_answered: false,
            owes_flush: false,
            discarded_bytes: 0,
        }
    }

    /// The stream, which still returns the bytes that were received and not read.
    pub(crate) fn into_rewound(self) -> RewoundStream<S> {
        RewoundStream::new(self.stream, self.received)
    }

    /// Reads the head of the next request; `None` at the end of the connection, or once it
    /// `is_closing` and no request has begun to arrive.
    ///
    /// # Errors
    /// [`Http1Error`] for a malformed head, after which nothing more can be read.
    pub(crate) fn poll_head(
        &mut self,
        parser: &mut RequestHeadParser,
        is_closing: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<RequestHead>, Http1Error>> {
        loop {
            if !self.received.is_empty()
                && let Some(head) = parser.parse(&mut self.received)?
            {
                return Poll::Ready(Ok(Some(head)));
            }
            if is_closing && self.received.is_empty() {
                return Poll::Ready(Ok(None));
            }
            match ready!(self.poll_receive_little(cx)) {
                Ok(1..) => {}
                // A connection that fails has ended.
                Ok(0) | Err(_) => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Begins to read the body of a request.
    pub(crate) fn begin_body(&mut self, framing: BodyFraming, awaits_continue: bool) {
        self.decoder = BodyDecoder::new(framing, self.limits);
        self.is_body_wanted = !self.decoder.is_complete();
        self.awaits_continue = awaits_continue && self.is_body_wanted;
        self.is_answered = false;
        self.discarded_bytes = 0;
    }

    /// Notes that the head of the answer is queued, before which 100 would have had to come.
    pub(crate) fn begin_answer(&mut self) {
        self.is_answered = true;
    }

    /// Whether another request may follow, as far as the body of this one is concerned.
    pub(crate) fn is_at_next_head(&self) -> bool {
        self.decoder.is_complete()
    }

    /// Reads and discards the rest of a body that nobody wants.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<BodyRest> {
        loop {
            if let Some(rest) = self.discard_received() {
                return Poll::Ready(rest);
            }
            match ready!(self.poll_receive(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(BodyRest::Disconnected),
            }
        }
    }

    /// Discards what has come of a body; `None` if more of it has to be received.
    fn discard_received(&mut self) -> Option<BodyRest> {
        loop {
            match self.decoder.decode(&mut self.received) {
                Ok(BodyPiece::Data(data)) => {
                    self.discarded_bytes += data.len() as u64;
                    if self.discarded_bytes > DISCARDED_BYTES_MAX {
                        return Some(BodyRest::Unreadable);
                    }
                }
                Ok(BodyPiece::Trailers(_) | BodyPiece::End) => return Some(BodyRest::Read),
                // Unless it has come at once, it does not come.
                Ok(BodyPiece::Incomplete) if self.awaits_continue => {
                    return Some(BodyRest::Unreadable);
                }
                Ok(BodyPiece::Incomplete) => return None,
                Err(_) => return Some(BodyRest::Unreadable),
            }
        }
    }

    /// Whether the client still waits for 100 and has not sent the body at once, so that nobody knows
    /// what it sends next. Once the answer begins, the body is not wanted any more.
    pub(crate) fn lacks_expected_body(&mut self) -> bool {
        self.awaits_continue && self.discard_received() != Some(BodyRest::Read)
    }

    /// Resolves when the client has left. While an answer is made, the rest of an unwanted body and
    /// the beginning of a next request are read.
    pub(crate) fn poll_departure(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_unwanted = !self.is_body_wanted && !self.awaits_continue;
        if is_unwanted && !self.decoder.is_complete() {
            match ready!(self.poll_discard(cx)) {
                BodyRest::Read => {}
                // The answer goes on, and no more is read.
                BodyRest::Unreadable => return Poll::Pending,
                BodyRest::Disconnected => return Poll::Ready(()),
            }
        }
        if !self.received.is_empty() {
            // More is not read before it is wanted.
            return Poll::Pending;
        }
        match ready!(self.poll_receive_little(cx)) {
            Ok(1..) => Poll::Pending,
            Ok(0) | Err(_) => Poll::Ready(()),
        }
    }

    /// Writes what waits.
    pub(crate) fn poll_write_queue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = self.queue.chunks_vectored(&mut slices);
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.queue.advance(written),
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Ends this side of the connection.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Gives memory back that an idle connection does not need.
    pub(crate) fn release_buffers(&mut self) {
        self.queue = WriteQueue::default();
        if self.received.is_empty() {
            self.received = BytesMut::new();
        }
    }

    /// Receives a few bytes, for which no room is kept while they are waited for; zero at the end.
    fn poll_receive_little(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); HEAD_READ_BYTES];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.received.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Receives a part of a body; zero at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.received.capacity() - self.received.len();
        if room < BODY_READ_BYTES / 2 {
            self.received.reserve(BODY_READ_BYTES);
        }
        pin!(self.stream.read_buf(&mut self.received)).poll(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> BodySource for ClientStream<S> {
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyFault>>> {
        if self.awaits_continue {
            if self.is_answered {
                // The body does not come.
                return Poll::Pending;
            }
            self.awaits_continue = false;
            self.queue.push(CONTINUE);
            self.owes_flush = true;
        }
        loop {
            match self.decoder.decode(&mut self.received)? {
                BodyPiece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                BodyPiece::Trailers(fields) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                BodyPiece::End => return Poll::Ready(None),
                BodyPiece::Incomplete => {}
            }
            if self.owes_flush {
                // The client has to be told to go on first.
                ready!(self.poll_write_queue(cx))?;
                self.owes_flush = false;
            }
            if ready!(self.poll_receive(cx))? == 0 {
                self.decoder.finish()?;
            }
        }
    }

    fn is_body_complete(&self) -> bool {
        self.decoder.is_complete()
    }

    fn remaining_body_bytes(&self) -> Option<u64> {
        self.decoder.remaining_bytes()
    }

    fn abandon_body(&mut self) {
        self.is_body_wanted = false;
    }
}

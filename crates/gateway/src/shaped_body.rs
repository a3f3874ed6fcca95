//! The body of an answer in the listener's shape.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    answer_shape::AnswerShape,
    body::BodyFault,
    fault::{UpstreamFailure, UpstreamFault},
    fields_of_bytes::remove_fields_of_bytes,
    hold_bytes::HoldBytes,
    media_type::{EVENT_STREAM, JSON, is_uncoded, media_type},
    slot_queue::{SlotQueue, WAITING_BYTES_MAX},
};

/// The body of an answer: as it comes, in slots, or filled up.
pub(crate) enum ShapedBody<B> {
    Unshaped(B),
    Stream(Box<SlottedStream<B>>),
    Document(Box<FilledDocument<B>>),
}

/// Marks an answer that has a shape.
#[derive(Clone, Copy)]
pub(crate) struct ShapeMark;

impl<B: Body<Data = Bytes, Error = BodyFault> + Unpin> ShapedBody<B> {
    /// Waits until the head of the answer may leave. `arrived` is the time of its request.
    ///
    /// Meanwhile a document is read, so that the model server's place is free once it has answered.
    /// Returns the length of the document with what fills it up, if it is known.
    pub(crate) async fn hold_head(&mut self, arrived: Instant) -> Option<u64> {
        match self {
            Self::Unshaped(_) => None,
            Self::Stream(stream) => {
                sleep_until(next_multiple(arrived, stream.shape.interval())).await;
                None
            }
            Self::Document(document) => {
                poll_fn(|cx| document.poll_read(WAITING_BYTES_MAX, cx)).await;
                sleep_until(next_multiple(arrived, document.step)).await;
                document.arrived = Some(arrived);
                document.size_hint().exact()
            }
        }
    }
}

/// The next time that is a multiple of `interval` after `arrived`.
fn next_multiple(arrived: Instant, interval: Duration) -> Instant {
    let intervals = arrived.elapsed().as_nanos() / interval.as_nanos().max(1) + 1;
    let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
    arrived + interval.saturating_mul(intervals)
}

/// Gives an answer its shape. An answer without a body has none, but the fields that the one with a
/// body would have.
///
/// # Errors
/// [`UpstreamFault::Unshapeable`] for an answer that cannot be filled up.
pub(crate) fn shape_answer<B: Body<Data = Bytes, Error = BodyFault> + Unpin>(
    shape: &AnswerShape,
    head: &mut response::Parts,
    method: &Method,
    body: B,
) -> Result<ShapedBody<B>, UpstreamFailure> {
    if method == Method::HEAD || head.status == StatusCode::NOT_MODIFIED {
        shape_bodiless_head(shape, &mut head.headers);
        return Ok(ShapedBody::Unshaped(body));
    }
    if head.status == StatusCode::NO_CONTENT || body.is_end_stream() {
        return Ok(ShapedBody::Unshaped(body));
    }
    let refuse = |reason: String| Err(UpstreamFailure::new(UpstreamFault::Unshapeable, reason));
    if !is_uncoded(&head.headers) {
        return refuse("its answer has a content coding".into());
    }
    let kind = media_type(&head.headers).unwrap_or_default().to_ascii_lowercase();
    let body = match kind.as_str() {
        EVENT_STREAM => ShapedBody::Stream(Box::new(SlottedStream::new(*shape, body))),
        kind if is_json(kind) => {
            let length = body.size_hint().exact().unwrap_or_default();
            if length.checked_next_multiple_of(shape.step_bytes()).is_none() {
                return refuse(format!("its answer of {length} bytes has no room to be filled up"));
            }
            ShapedBody::Document(Box::new(FilledDocument::new(*shape, body)))
        }
        kind => return refuse(format!("its answer is of type {kind:?}")),
    };
    remove_fields_of_bytes(&mut head.headers);
    set_length(&mut head.headers, body.size_hint().exact());
    head.extensions.insert(ShapeMark);
    Ok(body)
}

/// Gives a head without a body the fields that it would have with one (RFC 9110 section 9.3.2).
fn shape_bodiless_head(shape: &AnswerShape, headers: &mut HeaderMap) {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    // An empty body is not filled up.
    if length == Some(0) {
        return;
    }
    let kind = media_type(headers).unwrap_or_default().to_ascii_lowercase();
    let filled = length.filter(|_| is_json(&kind) && is_uncoded(headers));
    let filled = filled.and_then(|length| length.checked_next_multiple_of(shape.step_bytes()));
    remove_fields_of_bytes(headers);
    set_length(headers, filled);
}

fn is_json(media_type: &str) -> bool {
    media_type == JSON || media_type.ends_with("+json")
}

fn set_length(headers: &mut HeaderMap, length: Option<u64>) {
    match length {
        Some(length) => headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(header::CONTENT_LENGTH),
    };
}

/// A stream of events in slots: a piece of one size at the end of each interval, until the number of
/// slots comes out even. Trailers are dropped.
pub(crate) struct SlottedStream<B> {
    /// The engine's stream, until it ends or breaks.
    inner: Option<B>,
    fault: Option<BodyFault>,
    queue: SlotQueue,
    shape: AnswerShape,
    /// The time of the next slot. The first one leaves with the head.
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl<B: Body<Data = Bytes, Error = BodyFault> + Unpin> SlottedStream<B> {
    fn new(shape: AnswerShape, inner: B) -> Self {
        let queue = SlotQueue::new(shape.record_bytes(), shape.slots_step());
        Self { inner: Some(inner), fault: None, queue, shape, timer: None, is_over: false }
    }

    /// Reads what the engine has made, as far as there is room.
    fn read_events(&mut self, cx: &mut Context<'_>) {
        while let Some(inner) = self.inner.as_mut().filter(|_| self.queue.has_room()) {
            let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) else { return };
            let fault = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.queue.push(&data).map_err(BodyFault::Event).err(),
                    Err(_trailers) => None,
                },
                Some(Err(fault)) => Some(fault),
                None => {
                    self.queue.end();
                    self.inner = None;
                    return;
                }
            };
            if fault.is_some() {
                // What is complete leaves before the fault: no later slot could bring it.
                self.queue.release_last_event();
                self.fault = fault;
                self.inner = None;
            }
        }
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.read_events(cx);
        let now = Instant::now();
        let mut due = now;
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            due = timer.deadline();
        }
        // What came before a fault leaves first.
        if self.fault.is_some() && !self.queue.has_complete_event() {
            self.is_over = true;
            return Poll::Ready(self.fault.take().map(Err));
        }
        let slot = self.queue.next_slot();
        self.is_over = slot.is_none() || self.queue.is_over();
        // Slots have times of their own, `interval` apart. One that is late by as much or more moves
        // the times of those after it: it is not made up for.
        let interval = self.shape.interval();
        let next = if due + interval > now { due + interval } else { now + interval };
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(next),
            None => self.timer = Some(Box::pin(sleep_until(next))),
        }
        Poll::Ready(slot.map(|slot| Ok(Frame::data(slot))))
    }
}

/// A document that is followed by white space, up to a multiple of the bytes of one step. JSON allows
/// white space after a value (RFC 8259 section 2). Trailers are dropped.
///
/// A document that was whole when its head left follows it at once. The rest of a longer one leaves as
/// it comes, and its end at a multiple of the time of one step.
pub(crate) struct FilledDocument<B> {
    /// The model server's document, until it ends or breaks.
    inner: Option<B>,
    fault: Option<BodyFault>,
    record_bytes: usize,
    step_bytes: u64,
    step: Duration,
    waiting: BytesMut,
    sent: u64,
    /// The time of the request, from which the time of the end is counted, once the head has left.
    arrived: Option<Instant>,
    /// The time of the end, if the document was not whole when its head left.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B: Body<Data = Bytes, Error = BodyFault> + Unpin> FilledDocument<B> {
    fn new(shape: AnswerShape, inner: B) -> Self {
        Self {
            inner: Some(inner),
            fault: None,
            record_bytes: shape.record_bytes().into(),
            step_bytes: shape.step_bytes(),
            step: shape.step_duration(),
            waiting: BytesMut::new(),
            sent: 0,
            arrived: None,
            end: None,
        }
    }

    fn is_over(&self) -> bool {
        self.inner.is_none()
            && self.fault.is_none()
            && self.end.is_none()
            && self.waiting.is_empty()
            && self.sent.is_multiple_of(self.step_bytes)
    }

    /// Reads until the document has ended or broken off, or `wanted` bytes of it wait.
    fn poll_read(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(inner) = &mut self.inner
            && self.waiting.len() < wanted
        {
            match ready!(Pin::new(inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.waiting.extend_from_slice(&data);
                    }
                    // A body whose length is known is not polled again at its end.
                    self.inner.take_if(|inner| inner.is_end_stream());
                }
                Some(Err(fault)) => {
                    self.fault = Some(fault);
                    self.inner = None;
                }
                None => self.inner = None,
            }
            // Its head has left already, so that the end has to wait for its own time.
            if let (None, Some(arrived)) = (&self.inner, self.arrived) {
                self.end = Some(Box::pin(sleep_until(next_multiple(arrived, self.step))));
            }
        }
        Poll::Ready(())
    }

    fn poll_record(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        // The last record leaves with the end, so that none leaves before it is known not to be it.
        ready!(self.poll_read(self.record_bytes + 1, cx));
        if self.waiting.len() <= self.record_bytes {
            if let Some(fault) = self.fault.take() {
                self.waiting.clear();
                return Poll::Ready(Some(Err(fault)));
            }
            if let Some(end) = &mut self.end {
                ready!(end.as_mut().poll(cx));
                self.end = None;
            }
        }
        if self.is_over() {
            return Poll::Ready(None);
        }
        if self.waiting.len() < self.record_bytes {
            let gap = self.record_bytes - self.waiting.len();
            self.waiting.put_bytes(b' ', gap);
        }
        let record = self.waiting.split_to(self.record_bytes).freeze();
        self.sent += record.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(record))))
    }

    /// The number of bytes that are still to come, if it is known.
    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.as_ref().map_or(Some(0), |inner| inner.size_hint().exact());
        let filled = rest.filter(|_| self.fault.is_none()).and_then(|rest| {
            let document = (self.sent + self.waiting.len() as u64).checked_add(rest)?;
            Some(document.checked_next_multiple_of(self.step_bytes)? - self.sent)
        });
        filled.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<B> HoldBytes for ShapedBody<B> {
    fn held_bytes(&self) -> [&[u8]; 2] {
        match self {
            Self::Unshaped(_) => [&[], &[]],
            Self::Stream(stream) => stream.queue.untaken_bytes(),
            Self::Document(document) => [&[], &document.waiting],
        }
    }
}

impl<B: Body<Data = Bytes, Error = BodyFault> + Unpin> Body for ShapedBody<B> {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Unshaped(body) => Pin::new(body).poll_frame(cx),
            Self::Stream(stream) => stream.poll_slot(cx),
            Self::Document(document) => document.poll_record(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Unshaped(body) => body.is_end_stream(),
            Self::Stream(stream) => stream.is_over && stream.fault.is_none(),
            Self::Document(document) => document.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Unshaped(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
            Self::Document(document) => document.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt;

    use super::*;

    /// A document whose pieces come at these times after its request.
    struct TimedDocument {
        began: Instant,
        pieces: VecDeque<(Duration, Bytes)>,
        timer: Pin<Box<Sleep>>,
    }

    impl TimedDocument {
        fn new(began: Instant, pieces: &[(u64, usize)]) -> Self {
            let pieces = pieces.iter().map(|&(time_ms, length)| {
                (Duration::from_millis(time_ms), Bytes::from(vec![b'7'; length]))
            });
            Self { began, pieces: pieces.collect(), timer: Box::pin(sleep_until(began)) }
        }
    }

    impl Body for TimedDocument {
        type Data = Bytes;
        type Error = BodyFault;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
            let Some((time, _)) = self.pieces.front() else { return Poll::Ready(None) };
            let due = self.began + *time;
            if Instant::now() < due {
                self.timer.as_mut().reset(due);
                ready!(self.timer.as_mut().poll(cx));
            }
            Poll::Ready(self.pieces.pop_front().map(|(_, piece)| Ok(Frame::data(piece))))
        }
    }

    /// The time of the head and that of the end in milliseconds, and the number of bytes.
    async fn pass_document(pieces: &[(u64, usize)]) -> (u128, u128, u64) {
        let shape: AnswerShape = "128/10/8".parse().unwrap();
        let arrived = Instant::now();
        let inner = TimedDocument::new(arrived, pieces);
        let mut body = ShapedBody::Document(Box::new(FilledDocument::new(shape, inner)));
        let length = body.hold_head(arrived).await;
        let head_ms = arrived.elapsed().as_millis();
        let (mut sent, mut end_ms) = (0, head_ms);
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert_eq!(data.len(), 128);
            sent += data.len() as u64;
            end_ms = arrived.elapsed().as_millis();
        }
        assert!(body.is_end_stream() && length.is_none_or(|length| length == sent));
        (head_ms, end_ms, sent)
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_begins_and_ends_at_multiples_of_the_time_of_a_step() {
        let long = WAITING_BYTES_MAX + 1000;
        let filled = |bytes: usize| (bytes as u64).next_multiple_of(1024);
        for (pieces, wanted) in [
            (&[(5, 100)][..], (80, 80, 1024)),
            // The head of the model server's answer came before its document.
            (&[(5, 100), (95, 1000)], (160, 160, 2048)),
            // More than can wait: what is there leaves, and the end has a time of its own.
            (&[(5, long), (200, 10)], (80, 240, filled(long + 10))),
            (&[(5, WAITING_BYTES_MAX), (200, 0)], (80, 240, filled(WAITING_BYTES_MAX))),
        ] {
            assert_eq!(pass_document(pieces).await, wanted, "{pieces:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_that_breaks_off_has_no_length_and_ends_in_its_fault() {
        let shape: AnswerShape = "128/10/8".parse().unwrap();
        let arrived = Instant::now();
        let inner = TimedDocument::new(arrived, &[(5, 1000)]);
        let mut document = FilledDocument::new(shape, inner);
        document.fault = Some(BodyFault::Trailers);
        document.inner = None;
        let mut body = ShapedBody::Document(Box::new(document));
        assert_eq!(body.hold_head(arrived).await, None);
        assert!(!body.is_end_stream());
        assert!(matches!(body.frame().await, Some(Err(BodyFault::Trailers))));
    }
}

//! The body of an answer in the listener's shape.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use confide_http::remove_fields;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    answer_shape::AnswerShape,
    body::BodyFault,
    fault::{UpstreamFailure, UpstreamFault},
    media_type::{EVENT_STREAM, JSON, is_uncoded, media_type},
    slot_queue::SlotQueue,
};

/// Fields about the bytes of a body, which are no longer true of a filled one.
static FIELDS_OF_BYTES: [HeaderName; 7] = [
    header::ETAG,
    header::ACCEPT_RANGES,
    header::CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The body of an answer: as it comes, in slots, or filled up.
pub(crate) enum ShapedBody<B> {
    Unshaped(B),
    Stream(Box<SlottedStream<B>>),
    Document(Box<FilledDocument<B>>),
}

/// Marks an answer whose head leaves at a multiple of this time after its request.
#[derive(Clone, Copy)]
pub(crate) struct HeadGrid {
    interval: Duration,
}

/// Waits until the head of an answer may leave. `arrived` is the time of its request, if answers have
/// a shape.
pub(crate) fn hold_head<B>(
    arrived: Option<Instant>,
    answer: &Response<B>,
) -> impl Future<Output = ()> + Send + use<B> {
    let held = arrived.zip(answer.extensions().get::<HeadGrid>().copied());
    async move {
        if let Some((arrived, grid)) = held {
            // Boxed, because other requests do not need the space.
            Box::pin(grid.wait(arrived)).await;
        }
    }
}

impl HeadGrid {
    async fn wait(self, arrived: Instant) {
        let passed = arrived.elapsed().as_nanos();
        let intervals = passed / self.interval.as_nanos().max(1) + 1;
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        sleep_until(arrived + self.interval.saturating_mul(intervals)).await;
    }
}

/// Gives an answer its shape. An answer without a body has none.
///
/// # Errors
/// [`UpstreamFault::Unshapeable`] for an answer that cannot be filled up.
pub(crate) fn shape_answer<B: Body<Data = Bytes, Error = BodyFault> + Unpin>(
    shape: &AnswerShape,
    head: &mut response::Parts,
    method: &Method,
    body: B,
) -> Result<ShapedBody<B>, UpstreamFailure> {
    let is_bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status);
    if method == Method::HEAD || is_bodiless || body.is_end_stream() {
        return Ok(ShapedBody::Unshaped(body));
    }
    let refuse = |reason: String| Err(UpstreamFailure::new(UpstreamFault::Unshapeable, reason));
    if !is_uncoded(&head.headers) {
        return refuse("its answer has a content coding".into());
    }
    let kind = media_type(&head.headers).unwrap_or_default().to_ascii_lowercase();
    let (interval, body) = match kind.as_str() {
        EVENT_STREAM => {
            (shape.interval(), ShapedBody::Stream(Box::new(SlottedStream::new(*shape, body))))
        }
        kind if kind == JSON || kind.ends_with("+json") => {
            let document = FilledDocument::new(*shape, body);
            (shape.step_duration(), ShapedBody::Document(Box::new(document)))
        }
        kind => return refuse(format!("its answer is of type {kind:?}")),
    };
    remove_fields(&mut head.headers, &FIELDS_OF_BYTES);
    set_length(&mut head.headers, body.size_hint().exact());
    head.extensions.insert(HeadGrid { interval });
    Ok(body)
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
        // A slot that could not leave in time is not made up for, so that slots never come closer.
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
pub(crate) struct FilledDocument<B> {
    inner: Option<B>,
    record_bytes: usize,
    step_bytes: u64,
    waiting: BytesMut,
    sent: u64,
}

impl<B: Body<Data = Bytes, Error = BodyFault> + Unpin> FilledDocument<B> {
    fn new(shape: AnswerShape, inner: B) -> Self {
        Self {
            inner: Some(inner),
            record_bytes: shape.record_bytes().into(),
            step_bytes: shape.step_bytes(),
            waiting: BytesMut::new(),
            sent: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.inner.is_none() && self.waiting.is_empty() && self.sent.is_multiple_of(self.step_bytes)
    }

    fn poll_record(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        while let Some(inner) = &mut self.inner
            && self.waiting.len() < self.record_bytes
        {
            match ready!(Pin::new(inner).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => {
                    self.waiting.extend_from_slice(&data);
                    // A body whose length is known is not polled again at its end.
                    self.inner.take_if(|inner| inner.is_end_stream());
                }
                Some(Err(_trailers)) => {}
                None => self.inner = None,
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

    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.as_ref().map_or(Some(0), |inner| inner.size_hint().exact());
        rest.map_or_else(SizeHint::default, |rest| {
            let document = self.sent + self.waiting.len() as u64 + rest;
            SizeHint::with_exact(document.next_multiple_of(self.step_bytes) - self.sent)
        })
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

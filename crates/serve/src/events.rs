//! The body of a streamed answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use confide_engine::{EngineError, Generation, GenerationEvent};
use futures_util::Stream;
use http_body::Frame;
use tokio::time::Sleep;

use crate::{
    chunk::{self, AnswerEnding, ChunkWriter},
    counters::AnswerMeter,
    error::ApiError,
    gate::Slot,
};

/// The body of a streamed answer.
///
/// Tokens are sent at once: the first alone, later ones together if several wait. When the client
/// disconnects, the body is dropped, which cancels the generation.
pub(crate) struct AnswerStream {
    generation: Generation,
    chunks: ChunkWriter,
    deadline: Pin<Box<Sleep>>,
    limit: Duration,
    state: StreamState,
    /// Whether the connection should write its data before it polls the body again.
    flush: bool,
    meter: AnswerMeter,
    _slot: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Opening,
    Running,
    Breaking,
    Finished,
}

/// The size in bytes at which a frame is full: that of a TLS record.
const FRAME_BYTES: usize = 16 << 10;

impl AnswerStream {
    pub(crate) fn new(
        generation: Generation,
        chunks: ChunkWriter,
        limit: Duration,
        meter: AnswerMeter,
        slot: Slot,
    ) -> Self {
        let deadline = Box::pin(tokio::time::sleep(limit));
        let state = StreamState::Opening;
        Self { generation, chunks, deadline, limit, state, flush: false, meter, _slot: slot }
    }

    /// Writes events to a frame until none is ready, the frame is full, or the answer has ended.
    fn fill_frame(&mut self, context: &mut Context<'_>) -> Vec<u8> {
        let mut frame = Vec::new();
        while frame.len() < FRAME_BYTES {
            match Pin::new(&mut self.generation).poll_next(context) {
                Poll::Pending => {
                    if frame.is_empty() && self.deadline.as_mut().poll(context).is_ready() {
                        self.end_with_error(&mut frame, &ApiError::Deadline { limit: self.limit });
                    }
                    return frame;
                }
                Poll::Ready(Some(GenerationEvent::Token(token))) => {
                    let first = self.state == StreamState::Opening;
                    self.write_opening(&mut frame);
                    self.chunks.write_text(&mut frame, &token.text);
                    self.meter.count_token();
                    if first {
                        break;
                    }
                }
                Poll::Ready(Some(GenerationEvent::Finished { reason, tail, usage, adapter })) => {
                    self.write_opening(&mut frame);
                    if !tail.is_empty() {
                        self.chunks.write_text(&mut frame, &tail);
                    }
                    self.meter.finish(adapter.as_ref());
                    self.chunks.write_end(&mut frame, &AnswerEnding { reason, usage, adapter });
                    self.state = StreamState::Finished;
                    return frame;
                }
                Poll::Ready(Some(GenerationEvent::AdapterLost { reason })) => {
                    self.write_opening(&mut frame);
                    self.chunks.write_adapter_loss(&mut frame, &reason);
                }
                Poll::Ready(Some(GenerationEvent::Failed(error))) => {
                    self.end_with_error(&mut frame, &error.into());
                    return frame;
                }
                Poll::Ready(None) => {
                    self.end_with_error(&mut frame, &EngineError::Stopped.into());
                    return frame;
                }
            }
        }
        self.flush = true;
        frame
    }

    /// Writes the role together with the first token, so that a client that takes the first chunk
    /// for the first token measures correctly.
    fn write_opening(&mut self, frame: &mut Vec<u8>) {
        if self.state == StreamState::Opening {
            self.chunks.write_role(frame);
            self.state = StreamState::Running;
        }
    }

    fn end_with_error(&mut self, frame: &mut Vec<u8>, error: &ApiError) {
        tracing::warn!(%error, "a streamed answer failed");
        chunk::write_error(frame, error);
        self.state = StreamState::Breaking;
        self.flush = true;
    }
}

impl http_body::Body for AnswerStream {
    type Data = Bytes;
    type Error = ApiError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiError>>> {
        if std::mem::take(&mut self.flush) {
            // hyper writes to the connection only when the body is pending.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.state {
            StreamState::Finished => Poll::Ready(None),
            StreamState::Breaking => {
                self.state = StreamState::Finished;
                // An error here makes hyper drop the connection without the last chunk.
                Poll::Ready(Some(Err(EngineError::Stopped.into())))
            }
            StreamState::Opening | StreamState::Running => {
                let frame = self.fill_frame(context);
                if frame.is_empty() {
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(Frame::data(frame.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == StreamState::Finished
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use confide_engine::{AdapterReport, FinishReason, Token, Usage};
    use confide_http::{AdmissionQueue, QueueLimits};
    use confide_lora::{AdaptError, DeltaReport, Guarantee};
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;
    use crate::chunk::{AnswerHeading, CompletionRoute};
    use crate::counters::ServerCounters;

    async fn events(list: Vec<GenerationEvent>, limit: Duration) -> AnswerStream {
        let limits = QueueLimits { concurrent: 1, queued: 0, wait: Duration::ZERO };
        let slot = AdmissionQueue::new(limits).enter().await.expect("a slot");
        let (id, model) = ("i".into(), "m".into());
        let heading =
            AnswerHeading { route: CompletionRoute::Chat, id, created: 1, model, parent: None };
        let stalled = list.is_empty();
        let generation = if stalled {
            Generation::new(1, stream::pending())
        } else {
            Generation::new(1, stream::iter(list))
        };
        let meter = Arc::new(ServerCounters::default()).start_answer_meter();
        AnswerStream::new(generation, ChunkWriter::new(heading, false), limit, meter, slot)
    }

    /// The text that arrived, and whether the body was complete.
    async fn read(mut body: AnswerStream) -> (String, bool) {
        let mut text = String::new();
        loop {
            match body.frame().await {
                None => return (text, true),
                Some(Err(_)) => return (text, false),
                Some(Ok(frame)) => {
                    let data = frame.into_data().expect("a data frame");
                    text.push_str(std::str::from_utf8(&data).expect("text"));
                }
            }
        }
    }

    fn token(text: &'static str) -> GenerationEvent {
        GenerationEvent::Token(Token { id: 0, text: text.into() })
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn every_token_is_one_event_and_the_end_is_marked() {
        let usage = Usage::default();
        let mut list: Vec<GenerationEvent> = (0..500).map(|_| token("x")).collect();
        list.push(GenerationEvent::Finished {
            reason: FinishReason::Stop,
            tail: "rest".into(),
            usage,
            adapter: None,
        });
        let (text, whole) = read(events(list, HOUR).await).await;
        assert!(whole && text.ends_with("data: [DONE]\n\n"));
        assert_eq!(text.matches("\"content\":\"x\"").count(), 500);
        assert_eq!(text.matches("\"content\":\"rest\"").count(), 1);
        assert_eq!(text.matches("\"role\"").count(), 1);
    }

    #[tokio::test]
    async fn a_failure_in_mid_stream_is_an_error_event_and_a_broken_body() {
        let failed = GenerationEvent::Failed(EngineError::Failed { reason: "boom".into() });
        for list in [vec![token("x"), failed], vec![token("x")]] {
            let (text, whole) = read(events(list, HOUR).await).await;
            assert!(!whole);
            assert!(text.contains("\"error\"") && !text.contains("[DONE]"));
        }
    }

    #[tokio::test]
    async fn a_lost_adapter_is_said_before_the_first_token_of_the_base_model() {
        let reason = AdaptError::HostLost { reason: "gone".into() };
        let report = AdapterReport {
            report: DeltaReport::default(),
            guarantee: Guarantee::NONE,
            lost: Some(reason.clone()),
        };
        let finished = GenerationEvent::Finished {
            reason: FinishReason::Stop,
            tail: String::new(),
            usage: Usage::default(),
            adapter: Some(report),
        };
        for lost_at_once in [true, false] {
            let mut list =
                vec![token("own"), GenerationEvent::AdapterLost { reason: reason.clone() }];
            if lost_at_once {
                list.remove(0);
            }
            list.extend([token("foreign"), finished.clone()]);
            let (text, whole) = read(events(list, HOUR).await).await;
            let at = |what| text.find(what).expect("it is said");
            assert!(whole && at("adapter_lost") < at("foreign"));
            assert!(lost_at_once || at("own") < at("adapter_lost"));
            assert!(text.contains("\"finish_reason\":\"adapter_lost\""));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_generation_that_stalls_is_broken_off_at_its_deadline() {
        let (text, whole) = read(events(Vec::new(), HOUR).await).await;
        assert!(!whole && text.contains("deadline_exceeded"));
    }
}

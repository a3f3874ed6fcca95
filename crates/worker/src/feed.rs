//! Passes the events of one generation from the thread that reads from the worker to the reader of
//! the answer.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use confide_engine::text::{AnswerDecoder, ModelText};
use confide_engine::{AdapterReport, EngineError, FinishReason, GenerationEvent};
use confide_lora::AdaptError;
use futures_util::Stream;

/// The largest number of tokens that a generation may be ahead of its reader: some 128 KiB of token
/// numbers, or half a minute of a fast model.
pub(crate) const TOKENS_QUEUED_MAX: usize = 16_384;

/// The events of a generation that its reader has not read yet.
#[derive(Debug, Default)]
pub(crate) struct EventFeed(Mutex<EventQueue>);

#[derive(Debug, Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    end: Option<FeedEnd>,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum QueuedEvent {
    Token(u32),
    AdapterLost(AdaptError),
}

/// The end of a generation.
#[derive(Clone, Debug)]
pub(crate) enum FeedEnd {
    /// The generation ended without an error.
    Completed {
        /// The reason for the end.
        reason: FinishReason,
        /// The report of the adapter, if the model was one.
        adapter: Option<AdapterReport>,
    },
    /// The generation failed.
    Failed(EngineError),
}

impl EventFeed {
    /// Adds a token; `false` if the reader is too far behind.
    pub(crate) fn push_token(&self, id: u32) -> bool {
        let mut queue = self.lock_queue();
        if queue.events.len() >= TOKENS_QUEUED_MAX {
            return false;
        }
        queue.events.push_back(QueuedEvent::Token(id));
        wake_reader(queue);
        true
    }

    pub(crate) fn push_adapter_lost(&self, reason: AdaptError) {
        let mut queue = self.lock_queue();
        queue.events.push_back(QueuedEvent::AdapterLost(reason));
        wake_reader(queue);
    }

    /// Ends the feed, unless it has ended already.
    pub(crate) fn end(&self, end: FeedEnd) {
        let mut queue = self.lock_queue();
        queue.end.get_or_insert(end);
        wake_reader(queue);
    }

    fn lock_queue(&self) -> MutexGuard<'_, EventQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake_reader(mut queue: MutexGuard<'_, EventQueue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The events in the form that their reader gets. Token numbers are decoded here, so that a slow
/// reader delays only itself.
pub(crate) struct EventStream {
    feed: Arc<EventFeed>,
    answer: AnswerDecoder<Arc<ModelText>>,
    /// Whether to wait for the worker's end message after a stop string, because it contains the
    /// adapter's report.
    adapted: bool,
    /// Cancels the generation in the worker; `None` once it was cancelled or has ended.
    cancel: Option<Box<dyn FnOnce() + Send>>,
    done: bool,
}

impl EventStream {
    pub(crate) fn new(
        feed: Arc<EventFeed>,
        answer: AnswerDecoder<Arc<ModelText>>,
        adapted: bool,
        cancel: Box<dyn FnOnce() + Send>,
    ) -> Self {
        Self { feed, answer, adapted, cancel: Some(cancel), done: false }
    }

    fn cancel(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel();
        }
    }

    fn finish(&mut self, reason: FinishReason, adapter: Option<AdapterReport>) -> GenerationEvent {
        match self.answer.finish(reason) {
            Ok((reason, tail, usage)) => GenerationEvent::Finished { reason, tail, usage, adapter },
            Err(error) => GenerationEvent::Failed(error),
        }
    }

    /// Returns the next event; `None` if there is none yet.
    fn next_event(&mut self, waker: &Waker) -> Option<GenerationEvent> {
        let stopped = self.answer.finish_reason() == Some(FinishReason::Stop);
        if stopped {
            self.cancel();
            if !self.adapted {
                return Some(self.finish(FinishReason::Stop, None));
            }
        }
        let mut queue = self.feed.lock_queue();
        loop {
            match queue.events.pop_front() {
                // Tokens after a stop string are not part of the answer.
                Some(QueuedEvent::Token(_)) if stopped => {}
                Some(QueuedEvent::Token(id)) => {
                    drop(queue);
                    return Some(
                        self.answer
                            .push(id)
                            .map_or_else(GenerationEvent::Failed, GenerationEvent::Token),
                    );
                }
                Some(QueuedEvent::AdapterLost(reason)) => {
                    return Some(GenerationEvent::AdapterLost { reason });
                }
                None => break,
            }
        }
        let Some(end) = queue.end.clone() else {
            queue.waker = Some(waker.clone());
            return None;
        };
        drop(queue);
        self.cancel = None;
        Some(match end {
            FeedEnd::Completed { reason, adapter } => self.finish(reason, adapter),
            // The text was complete before the failure.
            FeedEnd::Failed(_) if stopped => self.finish(FinishReason::Stop, None),
            FeedEnd::Failed(error) => GenerationEvent::Failed(error),
        })
    }
}

impl Stream for EventStream {
    type Item = GenerationEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<GenerationEvent>> {
        if self.done {
            return Poll::Ready(None);
        }
        let Some(event) = self.next_event(context.waker()) else { return Poll::Pending };
        self.done = matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_));
        Poll::Ready(Some(event))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.cancel();
    }
}

//! The events of one generation, from the thread that reads the worker to whoever reads the answer.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use confide_engine::text::{Answer, Text};
use confide_engine::{AdapterReport, EngineError, Event, FinishReason};
use confide_lora::AdaptError;
use futures_util::Stream;

/// Tokens that a generation may be ahead of its reader: some 128 KiB of token numbers, and half a
/// minute of a fast model.
pub(crate) const TOKENS_QUEUED_MAX: usize = 16_384;

/// The events of a generation that its reader has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Feed(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<QueuedEvent>,
    end: Option<End>,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum QueuedEvent {
    Token(u32),
    AdapterLost(AdaptError),
}

/// The end of a generation.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The generation ended without an error.
    Completed {
        /// Why it ended.
        reason: FinishReason,
        /// The report of the adapter, if the model was one.
        adapter: Option<AdapterReport>,
    },
    /// The generation failed.
    Failed(EngineError),
}

impl Feed {
    /// Adds a token; `false` if the reader is too far behind.
    pub(crate) fn token(&self, id: u32) -> bool {
        let mut queue = self.queue();
        if queue.events.len() >= TOKENS_QUEUED_MAX {
            return false;
        }
        queue.events.push_back(QueuedEvent::Token(id));
        wake(queue);
        true
    }

    pub(crate) fn adapter_lost(&self, reason: AdaptError) {
        let mut queue = self.queue();
        queue.events.push_back(QueuedEvent::AdapterLost(reason));
        wake(queue);
    }

    /// Ends the feed, unless it has ended already.
    pub(crate) fn end(&self, end: End) {
        let mut queue = self.queue();
        queue.end.get_or_insert(end);
        wake(queue);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The events as their reader gets them: token numbers become text here, so that a slow reader
/// delays nobody else.
pub(crate) struct EventStream {
    feed: Arc<Feed>,
    answer: Answer<Arc<Text>>,
    /// Whether the worker's end has to be awaited after a stop string, because it brings the
    /// adapter's report.
    adapted: bool,
    /// Tells the worker that no further token is wanted; `None` once it was told, or the generation
    /// has ended.
    cancel: Option<Box<dyn FnOnce() + Send>>,
    done: bool,
}

impl EventStream {
    pub(crate) fn new(
        feed: Arc<Feed>,
        answer: Answer<Arc<Text>>,
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

    fn finish(&mut self, reason: FinishReason, adapter: Option<AdapterReport>) -> Event {
        match self.answer.finish(reason) {
            Ok((reason, tail, usage)) => Event::Finished { reason, tail, usage, adapter },
            Err(error) => Event::Failed(error),
        }
    }

    /// The next event, if there is one.
    fn next_event(&mut self, waker: &Waker) -> Option<Event> {
        let stopped = self.answer.finish_reason() == Some(FinishReason::Stop);
        if stopped {
            self.cancel();
            if !self.adapted {
                return Some(self.finish(FinishReason::Stop, None));
            }
        }
        let mut queue = self.feed.queue();
        loop {
            match queue.events.pop_front() {
                // Tokens after a stop string are not part of the answer.
                Some(QueuedEvent::Token(_)) if stopped => {}
                Some(QueuedEvent::Token(id)) => {
                    drop(queue);
                    return Some(self.answer.push(id).map_or_else(Event::Failed, Event::Token));
                }
                Some(QueuedEvent::AdapterLost(reason)) => {
                    return Some(Event::AdapterLost { reason });
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
            End::Completed { reason, adapter } => self.finish(reason, adapter),
            // The text was complete before the failure.
            End::Failed(_) if stopped => self.finish(FinishReason::Stop, None),
            End::Failed(error) => Event::Failed(error),
        })
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.done {
            return Poll::Ready(None);
        }
        let Some(event) = self.next_event(context.waker()) else { return Poll::Pending };
        self.done = matches!(event, Event::Finished { .. } | Event::Failed(_));
        Poll::Ready(Some(event))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.cancel();
    }
}

//! A running generation: its events, their bounded channel, and how it ends.

use std::{
    borrow::Cow,
    pin::Pin,
    task::{Context, Poll},
};

use confide_lora::AdaptError;
use futures_util::Stream;
use tokio::sync::mpsc;

use crate::{adapter::AdapterReport, error::EngineError};

/// An event of a running generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The next token of the completion.
    Token(Token),
    /// The adapter gives no further delta, and the base model goes on alone. The event comes once,
    /// before the first token that is not the adapter's, and only under
    /// [`OnLoss::Base`](crate::OnLoss::Base).
    AdapterLost {
        /// Why the adapter was lost.
        reason: AdaptError,
    },
    /// The generation ended as it should. Nothing follows.
    Finished {
        /// Why the completion ended.
        reason: FinishReason,
        /// The text that was held back until now: it might have become a stop string or half a
        /// character.
        tail: String,
        /// Numbers of tokens.
        usage: Usage,
        /// The report of the adapter, if the model was one.
        adapter: Option<AdapterReport>,
    },
    /// The generation failed. Nothing follows.
    Failed(EngineError),
}

/// A token of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Number of the token in the vocabulary.
    pub id: u32,
    /// The text that became certain with this token: always complete characters, often empty.
    pub text: Cow<'static, str>,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// `max_tokens` or the model's context was used up.
    Length,
    /// The model ended the answer, or a stop string was found.
    Stop,
}

/// The numbers of tokens of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens sent as events, without the end-of-text token.
    pub completion_tokens: u32,
}

/// A running generation. Dropping it cancels the work.
pub struct Generation {
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    prompt_tokens: u32,
}

impl Generation {
    /// A generation over a stream that obeys the crate's rules.
    pub fn new(prompt_tokens: u32, events: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self { events: Box::pin(events), prompt_tokens }
    }

    /// Tokens of the prompt, which are known before the first event.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens
    }
}

impl Stream for Generation {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.as_mut().poll_next(context)
    }
}

/// The engine's end of a generation that runs on a thread of its own.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::Sender<Event>);

impl Sender {
    /// Hands an event over, waiting while the reader is `EVENTS_QUEUED_MAX` events behind.
    /// `false` once the reader has gone: stop working. Must not be called from async code.
    #[must_use]
    pub fn send(&self, event: Event) -> bool {
        self.0.blocking_send(event).is_ok()
    }

    /// Whether the reader has dropped the generation.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }
}

/// A generation fed from another thread. A sender that is dropped without an end shows as
/// [`EngineError::Stopped`], never as a completion.
pub fn channel(prompt_tokens: u32) -> (Sender, Generation) {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
    (Sender(sender), Generation::new(prompt_tokens, EventReceiver { receiver, ended: false }))
}

/// Events that an engine may be ahead of a slow reader: some seconds of text, some KiB of memory.
const EVENTS_QUEUED_MAX: usize = 256;

struct EventReceiver {
    receiver: mpsc::Receiver<Event>,
    ended: bool,
}

impl Stream for EventReceiver {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = match self.receiver.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(event) => event.unwrap_or(Event::Failed(EngineError::Stopped)),
        };
        self.ended = matches!(event, Event::Finished { .. } | Event::Failed(_));
        Poll::Ready(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    fn token(id: u32) -> Event {
        Event::Token(Token { id, text: "x".into() })
    }

    #[tokio::test]
    async fn an_engine_that_goes_away_is_a_failure_and_not_an_end() {
        let (sender, generation) = channel(3);
        let worker = std::thread::spawn(move || sender.send(token(1)));
        let events: Vec<_> = generation.collect().await;
        assert!(worker.join().expect("the worker ends"));
        assert_eq!(events, [token(1), Event::Failed(EngineError::Stopped)]);
    }

    #[test]
    fn a_reader_that_goes_away_cancels_the_engine() {
        let (sender, generation) = channel(3);
        assert!(sender.send(token(1)));
        drop(generation);
        assert!(sender.is_cancelled());
        assert!(!sender.send(token(2)));
    }

    #[test]
    fn a_reader_that_does_not_read_stalls_the_engine_at_the_bound() {
        let (sender, generation) = channel(0);
        let (done, sent) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            let mut count = 0;
            while sender.send(token(count)) {
                count += 1;
                let _ = done.send(count);
            }
            count
        });
        let full = EVENTS_QUEUED_MAX as u32;
        while sent.recv().expect("the worker sends") < full {}
        drop(generation);
        assert_eq!(worker.join().expect("the worker ends"), full);
    }
}

//! A running generation: its events, their bounded channel, and its end.

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
pub enum GenerationEvent {
    /// The next token of the completion.
    Token(Token),
    /// The adapter is lost, and the base model continues alone. The event comes once, before the
    /// first token without the adapter, and only with
    /// [`AdapterLossPolicy::Base`](crate::AdapterLossPolicy::Base).
    AdapterLost {
        /// Why the adapter was lost.
        reason: AdaptError,
    },
    /// The generation is complete. Nothing follows.
    Finished {
        /// Why the completion ended.
        reason: FinishReason,
        /// The text that was held back because it could have become a stop string, or was an
        /// incomplete character.
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
    /// The number of the token in the vocabulary.
    pub id: u32,
    /// The text that is certain after this token: complete characters, often none.
    pub text: Cow<'static, str>,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// `max_tokens` or the end of the model's context was reached.
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
    events: Pin<Box<dyn Stream<Item = GenerationEvent> + Send>>,
    prompt_tokens: u32,
}

impl Generation {
    /// Wraps a stream of events that follows the rules of this crate.
    pub fn new(
        prompt_tokens: u32,
        events: impl Stream<Item = GenerationEvent> + Send + 'static,
    ) -> Self {
        Self { events: Box::pin(events), prompt_tokens }
    }

    /// Tokens of the prompt, which are known before the first event.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens
    }
}

impl Stream for Generation {
    type Item = GenerationEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<GenerationEvent>> {
        self.events.as_mut().poll_next(context)
    }
}

/// The sending end of a generation's events, for an engine's thread.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::Sender<GenerationEvent>);

impl EventSender {
    /// Sends an event; blocks while the reader is `EVENTS_QUEUED_MAX` events behind. Returns
    /// `false` once the reader has dropped the generation. Must not be called from async code.
    #[must_use]
    pub fn send(&self, event: GenerationEvent) -> bool {
        self.0.blocking_send(event).is_ok()
    }

    /// Whether the reader has dropped the generation.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }
}

/// Makes a generation whose events come from another thread. If the sender is dropped before an end
/// event, the generation fails with [`EngineError::Stopped`].
pub fn generation_channel(prompt_tokens: u32) -> (EventSender, Generation) {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
    (EventSender(sender), Generation::new(prompt_tokens, EventReceiver { receiver, ended: false }))
}

/// The number of events that an engine may be ahead of a slow reader: some seconds of text, some
/// KiB of memory.
const EVENTS_QUEUED_MAX: usize = 256;

struct EventReceiver {
    receiver: mpsc::Receiver<GenerationEvent>,
    ended: bool,
}

impl Stream for EventReceiver {
    type Item = GenerationEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<GenerationEvent>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = match self.receiver.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(event) => event.unwrap_or(GenerationEvent::Failed(EngineError::Stopped)),
        };
        self.ended = matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_));
        Poll::Ready(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    fn token(id: u32) -> GenerationEvent {
        GenerationEvent::Token(Token { id, text: "x".into() })
    }

    #[tokio::test]
    async fn an_engine_that_goes_away_is_a_failure_and_not_an_end() {
        let (sender, generation) = generation_channel(3);
        let worker = std::thread::spawn(move || sender.send(token(1)));
        let events: Vec<_> = generation.collect().await;
        assert!(worker.join().expect("the worker ends"));
        assert_eq!(events, [token(1), GenerationEvent::Failed(EngineError::Stopped)]);
    }

    #[test]
    fn a_reader_that_goes_away_cancels_the_engine() {
        let (sender, generation) = generation_channel(3);
        assert!(sender.send(token(1)));
        drop(generation);
        assert!(sender.is_cancelled());
        assert!(!sender.send(token(2)));
    }

    #[test]
    fn a_reader_that_does_not_read_stalls_the_engine_at_the_bound() {
        let (sender, generation) = generation_channel(0);
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

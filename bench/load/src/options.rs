//! The client's options: its threads, its connections, its limits.

use std::{fmt, sync::Arc, time::Duration};

use crate::ceiling::Ceiling;

/// Configuration of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// The number of threads that hold streams.
    pub threads: u32,
    /// Whether a connection is used again.
    pub sessions: ConnectionReuse,
    /// The longest time of a request, from its dispatch to its last byte.
    pub deadline: Duration,
    /// The most streams at once; a request beyond them fails, because an open loop does not wait.
    pub streams_max: usize,
    /// Counts the tokens of answers for which the server names no plausible number.
    pub token_counter: Option<TokenCounter>,
    /// What the client can do, by which the run is judged.
    pub ceiling: Ceiling,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            sessions: ConnectionReuse::New,
            deadline: Duration::from_secs(300),
            streams_max: 16_384,
            token_counter: None,
            ceiling: Ceiling::STATED,
        }
    }
}

/// Whether a connection is used again after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// Every request opens a new connection.
    New,
    /// A connection is kept for a later request.
    Reused {
        /// Connections that are opened before the clock starts.
        first: u32,
    },
}

impl ConnectionReuse {
    /// Its name in event logs: `new` or `kept`.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Reused { .. } => "kept",
        }
    }
}

/// Counts the tokens of a text: a tokenizer, given from outside.
///
/// It is called on the thread that called [`crate::run`], next to the client's threads and not on
/// them.
#[derive(Clone)]
pub struct TokenCounter(Arc<CountTokens>);

type CountTokens = dyn Fn(&str) -> Option<u32> + Send + Sync;

impl TokenCounter {
    /// A counter by this function, which returns `None` for a text that it cannot count.
    pub fn new(count: impl Fn(&str) -> Option<u32> + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }

    /// The number of tokens in `text`.
    pub fn count(&self, text: &str) -> Option<u32> {
        (self.0)(text)
    }
}

impl PartialEq for TokenCounter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for TokenCounter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TokenCounter").finish_non_exhaustive()
    }
}

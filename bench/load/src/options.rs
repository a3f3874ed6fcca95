//! The client's options: its threads, its connections, its limits.

use std::time::Duration;

/// Configuration of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The number of threads that hold streams.
    pub threads: u32,
    /// Whether a connection is used again.
    pub sessions: Sessions,
    /// The longest time of a request, from its dispatch to its last byte.
    pub deadline: Duration,
    /// The most streams at once; a request beyond them fails, because an open loop does not wait.
    pub streams_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            sessions: Sessions::New,
            deadline: Duration::from_secs(300),
            streams_max: 16_384,
        }
    }
}

/// Whether a connection is used again after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Every request opens a new connection.
    New,
    /// A connection is kept for a later request.
    Reused {
        /// Connections that are opened before the clock starts.
        first: u32,
    },
}

impl Sessions {
    /// Its name in event logs: `new` or `kept`.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Reused { .. } => "kept",
        }
    }
}

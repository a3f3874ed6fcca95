//! The errors of a session that gets no quote.

use std::{sync::Arc, time::Duration};

use confide_evidence::AttestError;

/// The reason why a session got no quote.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The queue already holds the largest number of waiting sessions.
    #[error("quote queue is full: wanted at most {wanted} waiting sessions")]
    Full {
        /// The largest number of sessions that may wait.
        wanted: usize,
    },
    /// There was no quote within [`BatchLimits::wait`](crate::BatchLimits::wait).
    #[error("no quote within {} ms", wanted.as_millis())]
    Late {
        /// The longest wait for a quote.
        wanted: Duration,
    },
    /// The attester failed, and with it every session of the batch.
    #[error("attester returned no quote for the batch")]
    Attester(#[source] Arc<AttestError>),
    /// The attester panicked, or the runtime is shutting down.
    #[error("the task that obtains quotes ended without an answer")]
    WorkerEnded,
    /// The attester returned something that no peer would read.
    #[error("own {part} is {got} bytes, wanted 1 to {wanted}")]
    OwnEvidence {
        /// `quote`, `collateral` or `GPU evidence`.
        part: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length in bytes.
        got: usize,
    },
    /// The operating system returned no random bytes for the salts.
    #[error("operating system returned no random bytes for a batch")]
    Randomness,
}

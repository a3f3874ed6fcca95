//! The limits of the server.

use std::time::Duration;

/// The limits of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// The longest request body, in bytes. A prompt of 128 Ki tokens is about half a MiB of
    /// English.
    pub body_bytes: usize,
    /// The number of bytes of a too long body that are read and discarded, so that its sender
    /// receives the answer instead of a reset. The default is the gateway's limit.
    pub discarded_bytes: usize,
    /// The longest wait for a request's head, and for the next request of a kept connection.
    pub head_wait: Duration,
    /// The longest wait for a request's body.
    pub body_wait: Duration,
    /// The largest number of open connections; an eighth of them is reserved for addresses without
    /// a connection.
    pub connections: usize,
    /// The largest number of generations that run at once; the engine's slots are a further limit.
    pub concurrent: usize,
    /// The largest number of requests that wait for a slot; further ones get status 429.
    pub queued: usize,
    /// The longest wait for a slot, after which the request gets status 503.
    pub queue_wait: Duration,
    /// The longest generation, from its start to its last token.
    pub generation: Duration,
    /// The longest time for which a client may not read from an answer.
    pub write_wait: Duration,
    /// The longest drain after the signal to stop.
    pub drain: Duration,
    /// The longest prompt in tokens; the model's context is a further limit.
    pub prompt_tokens: u32,
    /// The longest load of an adapter, including its host's handshake.
    pub load_wait: Duration,
    /// The largest number of loads and unloads at once; each holds a thread.
    pub loads: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            body_bytes: 4 << 20,
            discarded_bytes: 64 << 20,
            head_wait: Duration::from_secs(75),
            body_wait: Duration::from_secs(30),
            connections: 4096,
            concurrent: 1024,
            queued: 1024,
            queue_wait: Duration::from_secs(60),
            generation: Duration::from_secs(600),
            write_wait: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            prompt_tokens: 131_072,
            load_wait: Duration::from_secs(60),
            loads: 4,
        }
    }
}

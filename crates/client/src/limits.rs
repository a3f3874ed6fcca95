//! The limit at every door of the client, with its reason.

use std::time::Duration;

use confide_http::{BodyPace, QueueLimits};

/// Lengths, counts and deadlines. `Limits::default()` is what the program uses.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// TCP, and with a tunnel its upgrade.
    pub dial: Duration,
    /// TLS handshake, evidence and its appraisal together.
    pub channel: Duration,
    /// Connections to the attested end at once: requests that run.
    pub connections: usize,
    /// Requests that wait for one of them; further ones are refused at once.
    pub requests_waiting: usize,
    /// How long a request waits.
    pub queue: Duration,
    /// From sending a request to the head of its answer. An answer that is not streamed starts
    /// when its last token is made, so this covers a whole long generation.
    pub response_start: Duration,
    /// The longest pause between two pieces of an answer. A model may think between tokens.
    pub response_pause: Duration,
    /// How long an unused connection is kept: less than the gateway keeps it, so that a request
    /// rarely meets a connection that is just being closed.
    pub idle: Duration,
    /// How long a connection is used before its successor is appraised anew: the longest time
    /// for which a revocation or a TCB recovery goes unseen.
    pub age_max: Duration,
    /// Connections that the loopback proxy holds at once: more than requests run and wait, so
    /// that a client too many is told so, and does not only see its connection close.
    pub local_connections: usize,
    /// The longest pause of a local request's body and its least rate: it holds an attested
    /// connection meanwhile.
    pub request_body_pace: BodyPace,
    /// From accepting a local connection, or its last answer, to the head of a request.
    pub local_idle: Duration,
    /// How long the rest of a local request's body is read on after it was answered.
    pub local_body_linger: Duration,
    /// The longest time a local client may refuse to read before its connection is given up: it
    /// holds an attested connection meanwhile.
    pub write_stall: Duration,
    /// Request line and header fields together, in bytes.
    pub head_bytes: usize,
    /// After the signal to stop: how long running answers may take.
    pub drain: Duration,
}

impl ClientLimits {
    /// The bounds of the queue before the connections to the attested end.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        let Self { connections: concurrent, requests_waiting: queued, queue: wait, .. } = *self;
        QueueLimits { concurrent, queued, wait }
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            channel: Duration::from_secs(10),
            connections: 64,
            requests_waiting: 256,
            queue: Duration::from_secs(30),
            response_start: Duration::from_secs(600),
            response_pause: Duration::from_secs(300),
            idle: Duration::from_secs(240),
            age_max: Duration::from_secs(900),
            local_connections: 1024,
            request_body_pace: BodyPace {
                pause: Duration::from_secs(60),
                grace: Duration::from_secs(30),
                bytes_per_s: 1024,
            },
            local_idle: Duration::from_secs(300),
            local_body_linger: Duration::from_secs(5),
            write_stall: Duration::from_secs(60),
            head_bytes: 64 * 1024,
            drain: Duration::from_secs(20),
        }
    }
}

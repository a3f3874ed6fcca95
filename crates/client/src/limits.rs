//! Every limit of the client, with its reason.

use std::time::Duration;

use confide_http::{BodyPace, QueueLimits};

/// Lengths, counts and deadlines of the client. The program uses `ClientLimits::default()`.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// The deadline of the TCP connection and, with a tunnel, of its upgrade.
    pub dial: Duration,
    /// The deadline of the TLS handshake, the evidence and its appraisal together.
    pub channel: Duration,
    /// The largest number of connections to the attested end, and so the largest number of requests
    /// and WebSockets that run at once.
    pub connections: usize,
    /// The largest number of requests that wait for one of the connections; further ones are
    /// refused at once.
    pub requests_waiting: usize,
    /// The longest wait of a request for a connection.
    pub queue: Duration,
    /// The longest time from sending a request to the head of its answer. An answer that is not
    /// streamed starts when its last token is made, so this covers a whole long generation.
    pub response_start: Duration,
    /// The longest pause between two pieces of an answer. A model may think between tokens.
    pub response_pause: Duration,
    /// The time for which an idle connection is kept. It is shorter than the gateway's, so that a
    /// request rarely meets a connection that is just being closed.
    pub idle: Duration,
    /// The age of evidence at which fresh evidence is demanded, on the same connection (session
    /// binding) or on a new one, before the next request: the longest time for which a revocation or
    /// a TCB recovery goes unseen.
    pub age_max: Duration,
    /// The largest number of connections that the loopback proxy holds: more than run and wait, so
    /// that one client too many gets an error instead of a closed connection.
    pub local_connections: usize,
    /// The longest pause of a local request's body, and its lowest rate. The request holds an
    /// attested connection meanwhile.
    pub request_body_pace: BodyPace,
    /// The longest time from accepting a local connection, or from its last answer, to the head of
    /// a request.
    pub local_idle: Duration,
    /// The longest time for which the rest of a local request's body is read after its answer.
    pub local_body_linger: Duration,
    /// The longest time for which a local client may not read before its connection is closed. It
    /// holds an attested connection meanwhile.
    pub write_stall: Duration,
    /// The largest number of bytes of request line and header fields together.
    pub head_bytes: usize,
    /// The deadline of a WebSocket's handshake with the attested end. No token is made for it, but a
    /// gateway may let it wait for a model server (30 s), which then has 30 s to answer.
    pub websocket_open: Duration,
    /// The longest time in which nothing moves through a WebSocket. It is open no longer than
    /// [`ClientLimits::age_max`] from its evidence.
    pub websocket_idle: Duration,
    /// The time that running answers and WebSockets may take after the signal to stop.
    pub drain: Duration,
}

impl ClientLimits {
    /// The bounds of the queue of requests that wait for a connection.
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
            websocket_open: Duration::from_secs(90),
            websocket_idle: Duration::from_secs(300),
            drain: Duration::from_secs(20),
        }
    }
}

//! The limits of the service, each with its reason.

use std::time::Duration;

use confide_http::QueueLimits;

/// No result holds for longer: it speaks of a machine as it was when the evidence was appraised.
pub const RESULT_LIFETIME_MAX: Duration = Duration::from_secs(300);

/// The limits of the service and of its callers.
#[derive(Clone, Debug)]
pub struct ServiceLimits {
    /// Bytes of a request's body: evidence, GPU evidence and endorsements in base64 and JSON.
    pub body_bytes: usize,
    /// Bytes of all bodies that are held at once: connections times streams times one body would be
    /// more than any machine has.
    pub bodies_bytes: usize,
    /// The longest time that a body may take to arrive.
    pub body_wait: Duration,
    /// Appraisals that run at once; more than the cores would only wait for each other.
    pub concurrent: usize,
    /// The longest life of a connection; after it, what runs ends and the caller dials again. Without it
    /// a caller who sends a byte now and then would hold its place for ever.
    pub connection_age: Duration,
    /// Connections at once; a quarter of them for one address, an eighth for addresses without any.
    pub connections: usize,
    /// The longest time that running requests may go on after a stop.
    pub drain: Duration,
    /// The longest time that the head of a request, or the first request of a connection, may take to arrive.
    pub head_wait: Duration,
    /// The longest silence of a connection; longer than an answer takes.
    pub idle: Duration,
    /// Requests that wait for a place; the next one is told to come again.
    pub queued: usize,
    /// The longest wait of one of them.
    pub queue_wait: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// The longest time that a peer may leave an answer unread.
    pub write_wait: Duration,
}

impl ServiceLimits {
    /// The bounds of the queue before the cores.
    pub(crate) fn queue(&self) -> QueueLimits {
        QueueLimits { concurrent: self.concurrent, queued: self.queued, wait: self.queue_wait }
    }
}

impl Default for ServiceLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            body_bytes: 2 * 1024 * 1024,
            bodies_bytes: 128 * 1024 * 1024,
            body_wait: Duration::from_secs(10),
            concurrent: cores,
            connection_age: Duration::from_secs(600),
            connections: 1024,
            drain: Duration::from_secs(10),
            head_wait: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            queued: 1024,
            queue_wait: Duration::from_secs(5),
            streams: 128,
            write_wait: Duration::from_secs(10),
        }
    }
}

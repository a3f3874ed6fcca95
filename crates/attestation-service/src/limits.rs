//! The limits of the service, each with its reason.

use std::time::Duration;

use confide_http::QueueLimits;

/// The longest lifetime of a result, which describes the machine only at the time of the appraisal.
pub const RESULT_LIFETIME_MAX: Duration = Duration::from_secs(300);

/// The limits of the service and of its callers.
#[derive(Clone, Debug)]
pub struct ServiceLimits {
    /// The largest body of a request in bytes: evidence and endorsements in base64 and JSON.
    pub body_bytes: usize,
    /// The largest number of bytes of all bodies in memory at once: connections times streams times
    /// the largest body would be more than a machine has.
    pub bodies_bytes: usize,
    /// The longest time that a body may take to arrive.
    pub body_wait: Duration,
    /// The number of appraisals that run at once; more than the cores would only compete.
    pub concurrent: usize,
    /// The longest life of a connection, after which running requests finish and the caller must
    /// connect again. Otherwise a caller could keep a connection by sending a byte now and then.
    pub connection_age: Duration,
    /// The largest number of connections at once. One address may have a quarter of them, and an
    /// eighth is reserved for addresses that have none.
    pub connections: usize,
    /// The longest time for which running requests may continue after a stop.
    pub drain: Duration,
    /// The longest time for the head of a request, or for the first request of a connection.
    pub head_wait: Duration,
    /// The longest idle time of a connection, which has to be longer than an answer takes.
    pub idle: Duration,
    /// The largest number of requests in the queue; further ones get status 503.
    pub queued: usize,
    /// The longest wait of a request in the queue.
    pub queue_wait: Duration,
    /// The largest number of requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// The longest time for which a caller may leave an answer unread.
    pub write_wait: Duration,
}

impl ServiceLimits {
    /// The limits of the appraisal queue.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
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

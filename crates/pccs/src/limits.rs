//! The limits on each queue, wait and length of the service.

use std::time::Duration;

/// Every limit of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PccsLimits {
    /// The largest number of connections at once. One address may have a quarter of them, and an
    /// eighth is reserved for addresses that have none.
    pub connections: usize,
    /// The largest number of streams at once on an HTTP/2 connection. A quote needs four documents.
    pub streams: u32,
    /// The longest head of a request in bytes. `encrypted_ppid` has 768 digits; PCS refuses heads
    /// over 16 KiB.
    pub head_bytes: usize,
    /// The largest number of header fields in a request.
    pub head_fields: usize,
    /// The longest body in bytes; only `/simulate` reads one.
    pub body_bytes: usize,
    /// The longest wait for a request's head, and for the next request of a kept connection.
    pub head_wait: Duration,
    /// The longest wait for an answer from the database and the vendor together.
    pub answer_wait: Duration,
    /// The longest time for which a client may read no byte of an answer.
    pub write_wait: Duration,
    /// The longest life of a connection, after which running requests finish and the client must
    /// connect again. It bounds how long an idle HTTP/2 client can keep a connection.
    pub connection_age: Duration,
    /// The longest drain after the signal to stop.
    pub drain: Duration,
    /// The largest number of stored documents; further ones are served without being stored. A
    /// fleet has one for each chip.
    pub documents: u64,
    /// The largest number of fetches from vendors at once; AMD's service allows few.
    pub fetches: usize,
    /// The largest number of requests that may wait for a fetch; further ones get status 503.
    pub fetches_waiting: usize,
    /// The age in seconds at which a stored document is fetched again, while it is still served.
    pub refresh_after_s: u64,
    /// The time for which a fetch is not repeated after it failed or returned an overdue document.
    pub retry_after: Duration,
    /// The interval between two searches for documents to fetch again.
    pub refresh_every: Duration,
    /// The largest number of documents that are fetched again after one such search.
    pub refresh_batch: usize,
    /// The time in seconds by which a vendor's clock may be ahead of ours.
    pub clock_skew_s: u64,
}

impl Default for PccsLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams: 64,
            head_bytes: 16 << 10,
            head_fields: 64,
            body_bytes: 4 << 10,
            head_wait: Duration::from_secs(30),
            answer_wait: Duration::from_secs(30),
            write_wait: Duration::from_secs(30),
            connection_age: Duration::from_secs(600),
            drain: Duration::from_secs(10),
            documents: 100_000,
            fetches: 8,
            fetches_waiting: 256,
            // Vendors re-issue at most daily; with an hour, a revocation is seen at most that late.
            refresh_after_s: 3600,
            retry_after: Duration::from_secs(5),
            refresh_every: Duration::from_secs(60),
            refresh_batch: 64,
            clock_skew_s: 300,
        }
    }
}

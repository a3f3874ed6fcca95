//! The bound of each queue, wait and length of the service.

use std::time::Duration;

/// Every limit of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PccsLimits {
    /// The most connections at once; a quarter of them for one address, an eighth reserved for
    /// addresses without any.
    pub connections: usize,
    /// The most streams at once on a connection of HTTP/2. A quote needs four documents.
    pub streams: u32,
    /// The longest head of a request in bytes. `encrypted_ppid` has 768 digits; PCS refuses heads
    /// over 16 KiB.
    pub head_bytes: usize,
    /// The most header fields in a request.
    pub head_fields: usize,
    /// The longest body in bytes; only `/simulate` reads one.
    pub body_bytes: usize,
    /// The longest wait for a request's head, and for the next request of a kept connection.
    pub head_wait: Duration,
    /// The longest wait for an answer from the database and the vendor together.
    pub answer_wait: Duration,
    /// The longest time in which a client takes no byte of an answer.
    pub write_wait: Duration,
    /// The longest life of a connection; after it, what runs ends and the client dials again. It
    /// bounds what an idle HTTP/2 client can hold.
    pub connection_age: Duration,
    /// The longest drain after the signal to stop.
    pub drain: Duration,
    /// The most documents that are kept; what is fetched beyond is served and not kept. A fleet has
    /// one for each chip.
    pub documents: u64,
    /// The most fetches from vendors at once; AMD's service allows few.
    pub fetches: usize,
    /// The most requests that may wait for a fetch; further ones get status 503.
    pub fetches_waiting: usize,
    /// The age in seconds at which a kept document is fetched again while it is served.
    pub refresh_after_s: u64,
    /// The time for which a fetch that failed, or brought nothing newer than what is overdue, is
    /// not tried again.
    pub retry_after: Duration,
    /// The interval between two looks for documents to fetch again.
    pub refresh_every: Duration,
    /// The most documents that are fetched again in one such look.
    pub refresh_batch: usize,
    /// The number of seconds that a vendor's clock may be ahead of ours.
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
            // Vendors re-issue daily at most; an hour bounds how late a revocation is seen.
            refresh_after_s: 3600,
            retry_after: Duration::from_secs(5),
            refresh_every: Duration::from_secs(60),
            refresh_batch: 64,
            clock_skew_s: 300,
        }
    }
}

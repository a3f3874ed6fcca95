//! The limit at every door of the notary, with its reason.

use std::time::Duration;

/// What a client may send as the head of a request to the notary: method, address and fields as
/// JSON. An address and fields up to their own limits fit.
pub const REQUEST_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Length of a URL, as browsers and servers take it today.
pub const URL_BYTES_MAX: usize = confide_http::URL_BYTES_MAX;

/// Number of fields in a request: a browser sends about twenty.
pub const REQUEST_FIELDS_MAX: usize = 64;

/// Length of a field's name in bytes.
pub const FIELD_NAME_BYTES_MAX: usize = 128;

/// Length of a field's value in bytes: a cookie or a token of some size.
pub const FIELD_VALUE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a request's body, whatever a policy says: a transcript is kept in memory until it is
/// signed.
pub const REQUEST_BYTES_CEILING: usize = 4 * 1024 * 1024;

/// Bytes of an answer's body after decoding, whatever a policy says.
pub const RESPONSE_BYTES_CEILING: usize = 8 * 1024 * 1024;

/// Bytes of an answer's status line and fields.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Number of fields of an answer.
pub const RESPONSE_FIELDS_MAX: usize = 100;

/// Addresses of a host that are tried before the notary gives up.
pub const ADDRESSES_MAX: usize = 4;

/// Body bytes in one frame to the client.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Lengths, counts and deadlines of a running notary. `Limits::default()` is what the program
/// uses where a policy says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for the client's TLS handshake and evidence together.
    pub handshake: Duration,
    /// Time from the end of one answer to the next complete request head: a client keeps its
    /// verified connection between two fetches.
    pub idle: Duration,
    /// Time for a client to send its request's body.
    pub request: Duration,
    /// The longest time a client may refuse to read before its exchange is given up.
    pub write_stall: Duration,
    /// Number of exchanges with servers at once. Each holds one transcript in memory.
    pub exchanges: usize,
    /// Number of exchanges of one client at once: a listed one, or else an address (of IPv6, 64
    /// bits of it).
    pub exchanges_per_client: usize,
    /// Time that a request waits for an exchange to become free.
    pub queue: Duration,
    /// Time to look a name up.
    pub resolve: Duration,
    /// Time to connect to the server by TCP, for each address.
    pub connect: Duration,
    /// Time for the TLS handshake with the server.
    pub tls: Duration,
    /// Time from the request to the head of the answer. An answer that is not streamed starts when
    /// its last token is made.
    pub response_start: Duration,
    /// The longest pause between two pieces of an answer.
    pub response_pause: Duration,
    /// Time for the whole exchange with the server.
    pub exchange: Duration,
    /// The largest size in bytes of a request's body.
    pub request_bytes: usize,
    /// The largest size in bytes of an answer's body after decoding.
    pub response_bytes: usize,
    /// Time that running exchanges may take after the signal to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            request: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            exchanges: 32,
            exchanges_per_client: 8,
            queue: Duration::from_secs(10),
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(10),
            response_start: Duration::from_secs(120),
            response_pause: Duration::from_secs(60),
            exchange: Duration::from_secs(300),
            request_bytes: 1024 * 1024,
            response_bytes: 4 * 1024 * 1024,
            drain: Duration::from_secs(20),
        }
    }
}

//! The limits on every input of the notary, with their reasons.

use std::time::Duration;

/// The longest head of a request to the notary in bytes: method, URL and fields as JSON. It has
/// room for the longest URL and a field of the largest size.
pub const REQUEST_HEAD_BYTES_MAX: usize = 64 * 1024;

/// The longest URL in bytes, which current browsers and servers accept.
pub const URL_BYTES_MAX: usize = confide_http::URL_BYTES_MAX;

/// The largest number of fields in a request: a browser sends about twenty.
pub const REQUEST_FIELDS_MAX: usize = 64;

/// The longest name of a field in bytes.
pub const FIELD_NAME_BYTES_MAX: usize = 128;

/// The longest value of a field in bytes, enough for a large cookie or token.
pub const FIELD_VALUE_BYTES_MAX: usize = 16 * 1024;

/// The highest limit in bytes that a policy can set on a request's body: a transcript stays in
/// memory until it is signed.
pub const REQUEST_BYTES_CEILING: usize = 4 * 1024 * 1024;

/// The highest limit in bytes that a policy can set on an answer's body after decoding.
pub const RESPONSE_BYTES_CEILING: usize = 8 * 1024 * 1024;

/// The longest status line and fields of an answer, in bytes.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// The largest number of fields in an answer.
pub const RESPONSE_FIELDS_MAX: usize = 100;

/// The largest number of addresses of a host that are tried.
pub const ADDRESSES_MAX: usize = 4;

/// The largest number of body bytes in one frame to the client.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// The limits on lengths, counts and times of a running notary. `NotaryLimits::default()` applies
/// unless the policy sets others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotaryLimits {
    /// The time for the client's TLS handshake and evidence together.
    pub handshake: Duration,
    /// The time from the end of one answer to the next complete request head: a client keeps its
    /// verified connection between two fetches.
    pub idle: Duration,
    /// The time for a client to send its request's body.
    pub request: Duration,
    /// The longest time for which a client may not read before its exchange is aborted.
    pub write_stall: Duration,
    /// The number of exchanges with servers at once. Each has one transcript in memory.
    pub exchanges: usize,
    /// The number of exchanges at once of one client: a listed one, or else one address (the first
    /// 64 bits of an IPv6 address).
    pub exchanges_per_client: usize,
    /// The time for which a request waits for a free exchange.
    pub queue: Duration,
    /// The time for looking up a name.
    pub resolve: Duration,
    /// The time for a TCP connection to the server, for each address.
    pub connect: Duration,
    /// The time for the TLS handshake with the server.
    pub tls: Duration,
    /// The time from the request to the head of the answer. A language model's answer that is not
    /// streamed starts after its last token.
    pub response_start: Duration,
    /// The longest pause between two pieces of an answer.
    pub response_pause: Duration,
    /// The time for the whole exchange with the server.
    pub exchange: Duration,
    /// The largest number of bytes in a request's body.
    pub request_bytes: usize,
    /// The largest number of bytes in an answer's body after decoding.
    pub response_bytes: usize,
    /// The time that running exchanges have after the signal to stop.
    pub drain: Duration,
}

impl Default for NotaryLimits {
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

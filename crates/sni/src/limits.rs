//! The limits of a listener that passes TLS through.

use std::time::Duration;

/// Deadlines and bounds; [`Default`] gives the documented values (`docs/gateway.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassLimits {
    /// The time in which the whole ClientHello has to arrive: 10 s.
    pub hello: Duration,
    /// The time for a connection to one target: 3 s.
    pub connect: Duration,
    /// The time for which a target is tried last after a failure to connect: 5 s.
    pub retry: Duration,
    /// The time without a byte in either direction after which a connection is closed: one hour.
    pub idle: Duration,
    /// The same once one side has ended its direction: one minute.
    pub half_closed: Duration,
    /// The time for open connections to end after a stop: 30 s.
    pub drain: Duration,
    /// The largest number of directions at once whose bytes move inside the kernel (splice(2)), each through a pipe of
    /// its own; the others are copied: 256.
    pub pipes: usize,
}

impl Default for PassLimits {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            connect: Duration::from_secs(3),
            retry: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            half_closed: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            pipes: 256,
        }
    }
}

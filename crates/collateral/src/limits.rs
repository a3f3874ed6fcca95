//! Every bound of this room, each with its reason.

use std::time::Duration;

/// Longest answer that is read: real ones are below 30 KB, of which revocation lists may grow.
pub const ANSWER_LENGTH_MAX: usize = 512 * 1024;
/// A TCP connection to a service that is up takes a fifth of a second across an ocean.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// One attempt, TLS and body included; Intel answers in about 250 ms.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// All attempts for one document together.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(40);
/// Attempts for one document.
pub const ATTEMPTS_MAX: u32 = 5;
/// First wait after a failed attempt; it doubles.
pub const BACK_OFF_FIRST: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Longest `Retry-After` that is believed: a service cannot silence a client for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Requests at one time to one host: a set of Intel's needs four.
pub const HOST_REQUESTS_MAX: usize = 4;
/// Between two VCEKs from AMD's own service, which answers 429 to more.
pub const KDS_INTERVAL: Duration = Duration::from_secs(10);
/// Answers kept for `If-None-Match`.
pub const TAGGED_ANSWERS_MAX: usize = 64;
/// Longest `ETag` that is kept.
pub const TAG_LENGTH_MAX: usize = 256;
/// Platforms whose endorsements are at hand at one time.
pub const PLATFORMS_MAX: usize = 4096;
/// Documents held in memory: a platform of AMD's has one of its own.
pub const DOCUMENTS_MAX: usize = 2 * PLATFORMS_MAX;
/// Platforms never seen before that may be asked for at once: whoever sends evidence names them.
pub const NEW_PLATFORMS_BURST: u32 = 64;
/// How long until one more may be asked for.
pub const NEW_PLATFORM_EVERY: Duration = Duration::from_secs(1);
/// First wait after a platform could not be had; it doubles.
pub const FAILED_FIRST: Duration = Duration::from_secs(1);
/// Longest wait before a platform that could not be had is tried again.
pub const FAILED_MAX: Duration = Duration::from_secs(60);
/// The wait after a service said that it does not know the platform.
pub const UNKNOWN_WAIT: Duration = Duration::from_secs(600);
/// Failures remembered.
pub const FAILURES_MAX: usize = 1024;
/// A platform that nobody asked for in this time (seconds) is not refreshed.
pub const UNUSED_S: u64 = 24 * 3600;
/// Entries of the memory that refuses rollbacks: a few hundred platform families exist.
pub const MEMORY_ENTRIES_MAX: usize = 4096;
/// How long a writer waits for the store's lock, which is held for milliseconds.
pub const LOCK_DEADLINE: Duration = Duration::from_secs(5);
/// Longest identifier of a RIM or of a cloud provider in a VLEK's address.
pub const IDENTIFIER_LENGTH_MAX: usize = 96;

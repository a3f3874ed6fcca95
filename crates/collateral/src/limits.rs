//! Every limit of this crate, each with its reason.

use std::time::Duration;

/// The longest answer in bytes: real ones are below 30 KB, but revocation lists may grow.
pub const ANSWER_LENGTH_MAX: usize = 512 * 1024;
/// The deadline of a TCP connection; across an ocean one takes a fifth of a second.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of one attempt, TLS and body included; Intel answers in about 250 ms.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// The deadline of all attempts for one document together.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(40);
/// The largest number of attempts for one document.
pub const ATTEMPTS_MAX: u32 = 5;
/// The first wait after a failed attempt; it doubles.
pub const BACK_OFF_FIRST: Duration = Duration::from_millis(200);
/// The longest wait between two attempts.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// The longest `Retry-After` that is obeyed: a service cannot silence a client for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// The largest number of requests to one host at a time: a set of Intel's documents needs four.
pub const HOST_REQUESTS_MAX: usize = 4;
/// The shortest time between two requests for VCEKs to AMD's own service, which answers 429 if they
/// come faster.
pub const KDS_INTERVAL: Duration = Duration::from_secs(10);
/// The largest number of answers that are kept for `If-None-Match`.
pub const TAGGED_ANSWERS_MAX: usize = 64;
/// The longest `ETag` that is kept, in bytes.
pub const TAG_LENGTH_MAX: usize = 256;
/// The largest number of platforms whose endorsements are at hand.
pub const PLATFORMS_MAX: usize = 4096;
/// The largest number of documents in memory: each AMD platform has one of its own.
pub const DOCUMENTS_MAX: usize = 2 * PLATFORMS_MAX;
/// The largest number of new platforms at once: unverified evidence can name any platform.
pub const NEW_PLATFORMS_BURST: u32 = 64;
/// The time after which one more new platform may be requested.
pub const NEW_PLATFORM_EVERY: Duration = Duration::from_secs(1);
/// The first wait after a platform could not be fetched; it doubles.
pub const FAILED_FIRST: Duration = Duration::from_secs(1);
/// The longest wait before a platform that could not be fetched is tried again.
pub const FAILED_MAX: Duration = Duration::from_secs(60);
/// The wait after a service answered that the platform is unknown.
pub const UNKNOWN_WAIT: Duration = Duration::from_secs(600);
/// The largest number of failed platforms that are remembered.
pub const FAILURES_MAX: usize = 1024;
/// A platform that was not requested for this time, in seconds, is no longer refreshed.
pub const UNUSED_S: u64 = 24 * 3600;
/// The largest number of newest versions kept against rollbacks; a few hundred families exist.
pub const NEWEST_RANKS_MAX: usize = 4096;
/// The longest wait for the store's lock, which is held for milliseconds.
pub const LOCK_DEADLINE: Duration = Duration::from_secs(5);
/// The longest identifier of a RIM, or of a cloud provider in a VLEK's address, in bytes.
pub const IDENTIFIER_LENGTH_MAX: usize = 96;

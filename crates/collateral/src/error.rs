//! What can go wrong between a service and an appraisal.

use confide_evidence::{ParseError, UnixSeconds};

/// Why endorsements are not at hand.
///
/// Addresses are shown without their query, so that no identifier of a platform and no key of a
/// subscription reaches a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollateralError {
    /// An address that cannot be used.
    #[error("address of the service is not usable: wanted {wanted}, got {got}")]
    Address {
        /// The form that an address must have.
        wanted: &'static str,
        /// The value that was given.
        got: String,
    },
    /// Plain HTTP beyond this machine.
    #[error("{url} would be asked in the clear: wanted https, or http on loopback")]
    PlainHttp {
        /// The address.
        url: String,
    },
    /// No service was named for this kind of document.
    #[error("no service is named for {subject}")]
    NoService {
        /// The document.
        subject: String,
    },
    /// The operating system has no root certificates for TLS.
    #[error("no root certificate for TLS could be read: {reason}")]
    NoRoots {
        /// The error of reading them.
        reason: String,
    },
    /// Evidence from which the platform could not be read.
    #[error("the platform cannot be read from the evidence: {0}")]
    Evidence(#[from] ParseError),
    /// A platform that this version has no endorsements for.
    #[error("the platform is not known: wanted {wanted}, got {got}")]
    Platform {
        /// The names that are known.
        wanted: &'static str,
        /// What the evidence or argument says.
        got: String,
    },
    /// A name that is no document's.
    #[error("{got} is not the name of a document")]
    Name {
        /// The name.
        got: String,
    },
    /// A service did not answer in time.
    #[error("{subject} did not come from {url} within {within_ms} ms")]
    Deadline {
        /// The document.
        subject: String,
        /// The address that was asked, without its query.
        url: String,
        /// The deadline.
        within_ms: u64,
    },
    /// A connection failed.
    #[error("{subject} could not be fetched from {url}: {reason}")]
    Transport {
        /// The document.
        subject: String,
        /// The address that was asked, without its query.
        url: String,
        /// The connection's error.
        reason: String,
    },
    /// A service answered with another status than 200.
    #[error("{subject} was not given by {url}: wanted status 200, got {status}")]
    Status {
        /// The document.
        subject: String,
        /// The address that was asked, without its query.
        url: String,
        /// The value that came.
        status: u16,
    },
    /// A service asks to come back later than this request may take.
    #[error("{subject} was not asked for at {url}: the service takes requests in {wait_ms} ms")]
    Busy {
        /// The document.
        subject: String,
        /// The address that would be asked, without its query.
        url: String,
        /// Until the next request is due.
        wait_ms: u64,
    },
    /// An answer above the limit.
    #[error("{subject} from {url} is too long: wanted at most {limit} bytes")]
    TooLong {
        /// The document.
        subject: String,
        /// The address that it came from, without its query.
        url: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// An answer that is not what its address promises.
    #[error("{subject} from {url} is not readable: {reason}")]
    Answer {
        /// The document.
        subject: String,
        /// The address that it came from, without its query.
        url: String,
        /// The fault in words.
        reason: String,
    },
    /// A document that speaks of something else than was asked for.
    #[error("{subject} is another document: wanted {wanted}, got {got}")]
    Foreign {
        /// The document.
        subject: String,
        /// The document that was asked for.
        wanted: String,
        /// The document that came instead.
        got: String,
    },
    /// A document that does not hold now.
    #[error(
        "{subject} does not hold: wanted {} to {} to contain now, now is {}",
        UnixSeconds(*from), UnixSeconds(*until), UnixSeconds(*now)
    )]
    NotHolding {
        /// The document.
        subject: String,
        /// Unix seconds from which it holds.
        from: u64,
        /// Unix seconds until which it holds.
        until: u64,
        /// Unix seconds of the caller's clock.
        now: u64,
    },
    /// A document older than one that was seen.
    #[error(
        "{subject} was rolled back: wanted number {seen_number} of {seen_issued} or newer, \
         got number {got_number} of {got_issued}"
    )]
    RolledBack {
        /// The document.
        subject: String,
        /// CRL number or TCB evaluation data number of the newest seen.
        seen_number: u64,
        /// Unix seconds of its issue.
        seen_issued: u64,
        /// Number of the one that came.
        got_number: u64,
        /// Unix seconds of its issue.
        got_issued: u64,
    },
    /// The program's own check refused a set.
    #[error("endorsements of {subject} are refused: {reason}")]
    Refused {
        /// The platform.
        subject: String,
        /// The check's error.
        reason: String,
    },
    /// Too many platforms that were never seen before.
    #[error("{subject} is not fetched: too many platforms were asked for that are new here")]
    Crowded {
        /// The platform.
        subject: String,
    },
    /// Nothing is at hand and the caller does not wait.
    #[error("endorsements of {subject} are not at hand")]
    NotAtHand {
        /// The platform.
        subject: String,
    },
    /// The work ended without an answer.
    #[error("fetching {subject} was given up")]
    Aborted {
        /// The platform or document.
        subject: String,
    },
    /// The store could not be read or written.
    #[error("store {path} could not be used to {action}: {reason}")]
    Store {
        /// The action that failed.
        action: &'static str,
        /// File or folder.
        path: String,
        /// The file system's error.
        reason: String,
    },
    /// The worker thread could not be started.
    #[error("the thread that fetches could not be started: {reason}")]
    Thread {
        /// What the operating system said.
        reason: String,
    },
}

impl CollateralError {
    /// Whether a service said that it has no such document.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 404 | 410, .. })
    }

    pub(crate) fn store(
        action: &'static str,
        path: &std::path::Path,
        error: &std::io::Error,
    ) -> Self {
        Self::Store { action, path: path.display().to_string(), reason: error.to_string() }
    }
}

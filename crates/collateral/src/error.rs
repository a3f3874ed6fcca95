//! The errors of fetching and storing endorsements.

use confide_evidence::{ParseError, UnixSeconds};

/// The reason for which endorsements could not be fetched, stored or used.
///
/// Addresses are shown without their query, so that no identifier of a platform and no key of a
/// subscription reaches a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollateralError {
    /// The address of a service cannot be used.
    #[error("the address of the service is invalid: wanted {wanted}, got {got}")]
    Address {
        /// The form that an address must have.
        wanted: &'static str,
        /// The value that was given.
        got: String,
    },
    /// The service is on another machine and its address is plain http.
    #[error("{url} is not encrypted: wanted https, or http on loopback")]
    PlainHttp {
        /// The address.
        url: String,
    },
    /// No service is configured for this kind of document.
    #[error("no service is configured for {subject}")]
    NoService {
        /// The document.
        subject: String,
    },
    /// The operating system has no root certificates for TLS.
    #[error("no root certificate for TLS could be read: {reason}")]
    NoRoots {
        /// The error of reading the root certificates.
        reason: String,
    },
    /// The platform could not be read from the evidence.
    #[error("the platform cannot be read from the evidence: {0}")]
    Evidence(#[from] ParseError),
    /// The platform is unknown to this version.
    #[error("the platform is unknown: wanted {wanted}, got {got}")]
    UnknownPlatform {
        /// The values that are supported.
        wanted: &'static str,
        /// The value in the evidence or argument.
        got: String,
    },
    /// The name is not the name of a document.
    #[error("{got} is not the name of a document")]
    DocumentName {
        /// The name.
        got: String,
    },
    /// A service did not answer in time.
    #[error("{url} did not send {subject} within {within_ms} ms")]
    Deadline {
        /// The document.
        subject: String,
        /// The address that was asked, without its query.
        url: String,
        /// The deadline in milliseconds.
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
    /// A service answered with a status other than 200.
    #[error("{url} did not send {subject}: wanted status 200, got {status}")]
    Status {
        /// The document.
        subject: String,
        /// The address that was asked, without its query.
        url: String,
        /// The status of the answer.
        status: u16,
    },
    /// The wait until the next request is allowed is longer than this request may take.
    #[error("{subject} was not requested from {url}: its next request is allowed in {wait_ms} ms")]
    Busy {
        /// The document.
        subject: String,
        /// The address that would be asked, without its query.
        url: String,
        /// The time until the next request is allowed, in milliseconds.
        wait_ms: u64,
    },
    /// An answer is longer than the limit.
    #[error("{subject} from {url} is too long: wanted at most {limit} bytes")]
    TooLong {
        /// The document.
        subject: String,
        /// The address that it came from, without its query.
        url: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// An answer cannot be read as the document that was requested.
    #[error("{subject} from {url} is not readable: {reason}")]
    UnreadableAnswer {
        /// The document.
        subject: String,
        /// The address that it came from, without its query.
        url: String,
        /// The reason for which it cannot be read, as text.
        reason: String,
    },
    /// The service sent another document than the one that was requested.
    #[error("{subject} is another document: wanted {wanted}, got {got}")]
    OtherDocument {
        /// The document.
        subject: String,
        /// The document that was requested.
        wanted: String,
        /// The document that came instead.
        got: String,
    },
    /// A document is not valid now.
    #[error(
        "{subject} is not valid now: it is valid from {} to {}, the time is {}",
        UnixSeconds(*from), UnixSeconds(*until), UnixSeconds(*now)
    )]
    NotValidNow {
        /// The document.
        subject: String,
        /// The first Unix second at which it is valid.
        from: u64,
        /// The last Unix second at which it is valid.
        until: u64,
        /// Unix seconds of the caller's clock.
        now: u64,
    },
    /// A document is older than the newest one seen.
    #[error(
        "{subject} was rolled back: wanted number {seen_number} of {seen_issued} or newer, \
         got number {got_number} of {got_issued}"
    )]
    RolledBack {
        /// The document.
        subject: String,
        /// CRL number or TCB evaluation data number of the newest one seen.
        seen_number: u64,
        /// The issue date of the newest one seen, in Unix seconds.
        seen_issued: u64,
        /// The number of the document that was fetched.
        got_number: u64,
        /// The issue date of the document that was fetched, in Unix seconds.
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
    /// Too many new platforms were requested.
    #[error("{subject} is not fetched: too many new platforms were requested")]
    TooManyNewPlatforms {
        /// The platform.
        subject: String,
    },
    /// The endorsements are not at hand and the caller does not wait.
    #[error("endorsements of {subject} are not available yet")]
    NotAtHand {
        /// The platform.
        subject: String,
    },
    /// The fetching task ended without a result, as at shutdown.
    #[error("fetching {subject} was aborted")]
    Aborted {
        /// The platform or document.
        subject: String,
    },
    /// The store could not be read or written.
    #[error("store {path}: cannot {action}: {reason}")]
    Store {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: String,
        /// The file system's error.
        reason: String,
    },
    /// The worker thread could not be started.
    #[error("the thread that fetches could not be started: {reason}")]
    Thread {
        /// The operating system's error.
        reason: String,
    },
}

impl CollateralError {
    /// Whether the service answered that it has no such document.
    pub fn is_not_found(&self) -> bool {
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

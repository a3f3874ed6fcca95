//! Errors of requests that got no answer, and the party at fault.

use std::{error::Error, io, time::Duration};

use confide_appraiser::AppraisalError;
use confide_channel::{ChannelError, ErrorOrigin, TunnelError};
use confide_encrypted_body::EncryptedBodyError;
use confide_http::{ExchangeError, RequestBodyFault, error_chain};
use confide_verification::{GuaranteeChanged, PeerRefusal};
use confide_verifier::Rejection;
use http::StatusCode;

/// A request body that cannot be read: its sender broke it off or framed it incorrectly.
#[derive(Debug, thiserror::Error)]
#[error("request body is not readable: {0}")]
pub struct RequestBodyError(#[source] pub RequestBodyFault);

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address of the server cannot be used.
    #[error("server address `{url}` is not usable: wanted {wanted}, got {got}")]
    Url {
        /// The address as it was given.
        url: String,
        /// The form that an address must have.
        wanted: &'static str,
        /// The part that does not fit.
        got: String,
    },
    /// No TCP connection was established.
    #[error("{target} cannot be reached: {source}")]
    Dial {
        /// Host and port that were dialled.
        target: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// An HTTP proxy opened no connection.
    #[error("proxy {proxy} opened no connection to {target}: {got}")]
    Proxy {
        /// Host and port of the proxy.
        proxy: String,
        /// Host and port that it was asked for.
        target: String,
        /// Its answer.
        got: String,
    },
    /// TCP or the tunnel took too long.
    #[error("{target} cannot be reached: no connection within {deadline:?}")]
    DialTimeout {
        /// Host and port that were dialled.
        target: String,
        /// The deadline.
        deadline: Duration,
    },
    /// The attested channel was not opened.
    #[error("attested channel to {target} was not opened: {source}")]
    Channel {
        /// Host and port of the attested end.
        target: String,
        /// The phase in which the channel failed, and the reason.
        source: ChannelError,
    },
    /// All connections of the pool are busy, and the queue of waiting requests is full.
    #[error("queue is full: {connections} requests run and {waiting} wait")]
    QueueFull {
        /// The largest number of requests that run at once.
        connections: usize,
        /// The largest number of requests that wait.
        waiting: usize,
    },
    /// All connections of the pool stayed busy until the deadline.
    #[error("no connection became free within {deadline:?}: all {connections} are in use")]
    Busy {
        /// The largest number of requests that run at once.
        connections: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// The attested end did not start its answer.
    #[error("no answer started within {deadline:?}")]
    Slow {
        /// The deadline.
        deadline: Duration,
    },
    /// The attested end gave no fresh evidence on an open connection.
    #[error("{target} gave no fresh evidence: {got}")]
    EvidenceRenewal {
        /// The attested end.
        target: String,
        /// Its answer, or the reason why there is none.
        got: String,
    },
    /// The attested end answered the handshake of a WebSocket with success, but without a valid
    /// acceptance.
    #[error("{target} did not accept the WebSocket in a valid way: status {status}")]
    BadUpgrade {
        /// The attested end.
        target: String,
        /// The status of its answer.
        status: StatusCode,
    },
    /// HTTP on an accepted connection failed.
    #[error("connection broke before the answer: {0}")]
    Http(#[source] ExchangeError),
    /// A later connection claims another guarantee than the first, so the guarantee shown to the
    /// user no longer holds.
    #[error(transparent)]
    GuaranteeChanged(GuaranteeChanged),
    /// The gateway behind the proxy makes no report, or one that is not accepted.
    #[error("no key to encrypt to: {reason}")]
    Report {
        /// The reason.
        reason: String,
    },
    /// No report of the gateway behind the proxy came in time.
    #[error("no report of the gateway: {reason}")]
    ReportUnavailable {
        /// The reason.
        reason: String,
    },
    /// The answer to an encrypted request came in clear, so that nobody vouches for it.
    #[error(
        "an answer with status {status} came unencrypted: a proxy in between answered, or the gateway refused \
         the request before it decrypted the body; its text is not passed on"
    )]
    Unencrypted {
        /// The status that the answer claims.
        status: StatusCode,
    },
    /// The answer to an encrypted request does not begin with a frame that the gateway encrypted
    /// for it, as every answer of a gateway does, an empty one too.
    #[error(
        "an answer with status {status} has no body that the gateway encrypted: {fault}; a proxy in between \
         made or changed it"
    )]
    Unauthenticated {
        /// The status that the answer claims.
        status: StatusCode,
        /// The fault of the body.
        fault: EncryptedBodyError,
    },
    /// The gateway cannot open the request: it has another key than the one in its last report.
    #[error("the gateway has another key now; its report will be fetched again")]
    KeyReplaced,
    /// Messages of a WebSocket are not encrypted, so none is opened.
    #[error(
        "WebSockets are not encrypted: wanted a connection to the gateway without a proxy in between"
    )]
    UnencryptedWebSocket,
    /// A body cannot be encrypted, or the answer's fields are malformed.
    #[error("encryption of a body: {0}")]
    Encryption(#[source] EncryptedBodyError),
    /// The answer is too long, or broke off.
    #[error("answer was not read: {0}")]
    Answer(#[source] Box<dyn Error + Send + Sync>),
    /// There is no replica to which a request could be sent.
    #[error("no replica is known")]
    NoReplica,
    /// The request cannot be sent.
    #[error("request is not usable: {0}")]
    Request(#[source] http::Error),
}

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The peer's evidence, or its absence. A second try fails in the same way.
    Evidence,
    /// The network, or a peer that is silent or broken.
    Network,
    /// The options of this program.
    Local,
}

impl ClientError {
    /// The party at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Url { .. } | Self::Request(_) => Blame::Local,
            Self::Http(error) if is_request_body(error) => Blame::Local,
            Self::GuaranteeChanged(_) | Self::Report { .. } => Blame::Evidence,
            Self::Channel { source, .. } => blame_channel(source),
            _ => Blame::Network,
        }
    }

    /// Whether no connection could be opened.
    pub(crate) fn is_connect_failure(&self) -> bool {
        matches!(
            self,
            Self::Dial { .. }
                | Self::Proxy { .. }
                | Self::DialTimeout { .. }
                | Self::Channel { .. }
        )
    }

    /// The name of the failed check, as policies name it, if the evidence is to blame.
    pub fn failed_check(&self) -> Option<&str> {
        match self {
            Self::Channel { source, .. } => failed_check(source),
            Self::GuaranteeChanged(_) => Some("guarantee"),
            Self::Report { .. } => Some("report"),
            _ => None,
        }
    }

    /// The reason in words: the appraiser's if it rejected the evidence, and otherwise the error with
    /// its causes.
    pub fn reason(&self) -> String {
        self.rejection().map_or_else(|| error_chain(self), ToString::to_string)
    }

    /// The appraiser's reason for rejecting the evidence.
    pub fn rejection(&self) -> Option<&AppraisalError> {
        match self {
            Self::Channel { source, .. } => source.rejection(),
            _ => None,
        }
    }

    /// What a user is told if the evidence is to blame.
    pub fn refusal(&self) -> Option<PeerRefusal> {
        if self.blame() != Blame::Evidence {
            return None;
        }
        let check = self.failed_check().unwrap_or("evidence");
        let rejection = self.rejection();
        let text = match (rejection, self) {
            (Some(rejection), _) => rejection.to_string(),
            // The sentence names the server already.
            (None, Self::Channel { source, .. }) => error_chain(source),
            (None, _) => error_chain(self),
        };
        let reason = rejection.and_then(AppraisalError::rejection).map(Rejection::reason);
        let has_own_endorsements = rejection.is_some_and(AppraisalError::has_own_endorsements);
        Some(PeerRefusal::new(check, text, reason, has_own_endorsements))
    }
}

fn blame_channel(error: &ChannelError) -> Blame {
    match error {
        ChannelError::Tunnel(TunnelError::Url { .. } | TunnelError::Target { .. }) => Blame::Local,
        // Nothing was judged: this end's own source of endorsements gave none.
        error if matches!(error.rejection(), Some(AppraisalError::Fetch(_))) => Blame::Network,
        error if failed_check(error).is_some() => Blame::Evidence,
        error => match error.origin() {
            ErrorOrigin::Evidence => Blame::Evidence,
            ErrorOrigin::Local => Blame::Local,
            _ => Blame::Network,
        },
    }
}

/// The name of the check that the peer failed, in the channel or before the appraiser.
pub fn failed_check(error: &ChannelError) -> Option<&str> {
    let appraised = || error.rejection::<AppraisalError>().map(AppraisalError::failed_check);
    error.failed_check().or_else(appraised)
}

/// Whether the request body caused the error.
fn is_request_body(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Request(cause) if cause.is::<RequestBodyError>())
}

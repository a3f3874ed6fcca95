//! The errors of starting a notary, of its keys, and of exchanges.

use std::{io, time::Duration};

use confide_channel::ChannelError;

use crate::{policy::PolicyError, refusal::Refusal, request_error::RequestError};

/// The reason for which a notary cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotaryError {
    /// The attested channel could not be made.
    #[error("channel cannot be opened: {0}")]
    Channel(#[from] ChannelError),
    /// The policy or its roots cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The signing key has no evidence.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Evidence of clients is demanded, which requires session binding.
    #[error("evidence of clients cannot be demanded with key binding: wanted session binding")]
    ClientBinding,
    /// TLS to servers cannot be set up.
    #[error("TLS to servers cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
}

/// The reason for which there is no signing key with evidence.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The attester failed.
    #[error("signing key has no evidence: {reason}")]
    Attester {
        /// The attester's message.
        reason: String,
    },
    /// The evidence is longer than any verifier reads.
    #[error(
        "evidence over the signing key is unusable: wanted a {part} of 1 to {wanted} bytes, got {got}"
    )]
    Length {
        /// `quote` or `set of endorsements`.
        part: &'static str,
        /// The limit.
        wanted: usize,
        /// The length in bytes.
        got: usize,
    },
    /// The attester has no endorsements, or could not fetch any.
    #[error(
        "the attester has no endorsements for its quotes: without them no third party can verify a \
         statement"
    )]
    NoEndorsements,
    /// A key would expire before an exchange that begins with it ends.
    #[error(
        "validity of signing keys is {got:?}, wanted at least {wanted:?}: twice the longest exchange"
    )]
    Validity {
        /// Twice the longest exchange, including the time for a slow client.
        wanted: Duration,
        /// The validity that the operator chose.
        got: Duration,
    },
    /// The claims over the key are not valid.
    #[error("claims over the signing key are unusable: {reason}")]
    Claims {
        /// The fault of the claims.
        reason: String,
    },
    /// There is no randomness, or the task that makes the key failed.
    #[error("signing key could not be made: {reason}")]
    Generation {
        /// The reason.
        reason: String,
    },
}

/// The reason for which an exchange has no statement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The client's request cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request's body is longer than the policy allows.
    #[error("request body is too long: wanted at most {wanted} bytes")]
    RequestTooLarge {
        /// The limit.
        wanted: usize,
    },
    /// The request did not arrive in time.
    #[error("request did not arrive within {deadline:?}")]
    RequestTimeout {
        /// The deadline.
        deadline: Duration,
    },
    /// The policy does not list the host.
    #[error("host {host} with port {port} is not on this notary's list")]
    HostRefused {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The client has verified a key other than the one that would sign. Nothing was sent.
    #[error("the signing key was renewed: fetch its evidence again")]
    KeyRenewed,
    /// The key expired before the end of the exchange, for which it should have been valid.
    #[error("the signing key expired during the exchange; check the system clock")]
    KeyExpired,
    /// All exchanges are in use.
    #[error("all {exchanges} exchanges are in use, and none finished within {deadline:?}")]
    Busy {
        /// The limit.
        exchanges: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// The client has as many exchanges as one client may have.
    #[error("this client has {exchanges} exchanges in use, and none finished within {deadline:?}")]
    ClientBusy {
        /// The limit for one client.
        exchanges: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// Only listed clients are served, and this one has no valid credential.
    #[error(
        "client is unknown: wanted `authorization: Bearer` with the credential of a listed client"
    )]
    UnknownClient,
    /// The host's name does not resolve.
    #[error("{host} was not found: {reason}")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's message.
        reason: String,
    },
    /// All addresses of the host are refused. They are not shown, as they may reveal the notary's
    /// own network.
    #[error("{host} has no public address, and the policy allows none of its private addresses")]
    AddressRefused {
        /// The host.
        host: String,
    },
    /// No TCP connection could be opened.
    #[error("{host} cannot be reached: {source}")]
    Unreachable {
        /// The host.
        host: String,
        /// The system's error for the last address.
        source: io::Error,
    },
    /// The server's certificate is not trusted, or TLS failed.
    #[error("TLS with {host} failed: {source}")]
    Tls {
        /// The host.
        host: String,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The server closed the connection early, or does not speak HTTP.
    #[error("{host} sent no complete answer: {source}")]
    Http {
        /// The host.
        host: String,
        /// The error of the HTTP library.
        source: hyper::Error,
    },
    /// The server was too slow.
    #[error("{host} did not {what} within {deadline:?}")]
    HostTimeout {
        /// The host.
        host: String,
        /// The step that the server did not finish.
        what: &'static str,
        /// The deadline.
        deadline: Duration,
    },
    /// The client did not read the answer in time.
    #[error("client did not read the answer within {deadline:?}")]
    ClientTimeout {
        /// The deadline.
        deadline: Duration,
    },
    /// The end of the answer is not marked, so it may be truncated.
    #[error(
        "the end of {host}'s answer is not marked: wanted a single content-length, chunks, or an end of stream"
    )]
    UnmarkedEnd {
        /// The host.
        host: String,
    },
    /// The answer has a content coding that the notary does not decode.
    #[error("{host} sent an unsupported content coding: wanted gzip or none")]
    UnsupportedCoding {
        /// The host.
        host: String,
    },
    /// The body is not gzip, or is truncated.
    #[error("{host} sent an invalid or truncated gzip body")]
    InvalidGzip {
        /// The host.
        host: String,
    },
    /// The answer is longer than the policy allows, after decoding.
    #[error("answer of {host} is too long: wanted at most {wanted} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// The limit.
        wanted: usize,
    },
    /// There is no signing key with evidence.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The transcript cannot be signed.
    #[error("transcript cannot be signed: {reason}")]
    NotSigned {
        /// The fault of the transcript.
        reason: String,
    },
}

impl ExchangeError {
    /// The code of the refusal, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Request(RequestError::TooLong { .. }) | Self::RequestTooLarge { .. } => {
                "request_too_large"
            }
            Self::Request(_) => "request_malformed",
            Self::RequestTimeout { .. } => "request_timeout",
            Self::HostRefused { .. } => "host_refused",
            Self::KeyRenewed => "key_renewed",
            Self::KeyExpired => "key_ended",
            Self::Busy { .. } => "busy",
            Self::ClientBusy { .. } => "client_busy",
            Self::UnknownClient => "client_unknown",
            Self::Resolve { .. } => "host_not_found",
            Self::AddressRefused { .. } => "address_refused",
            Self::Unreachable { .. } => "host_unreachable",
            Self::Tls { source, .. } => match source {
                rustls::Error::InvalidCertificate(_) => "certificate_refused",
                _ => "tls_failed",
            },
            Self::Http { .. } => "answer_broken",
            Self::HostTimeout { .. } => "host_timeout",
            Self::ClientTimeout { .. } => "client_timeout",
            Self::UnmarkedEnd { .. } => "answer_unframed",
            Self::UnsupportedCoding { .. } | Self::InvalidGzip { .. } => "answer_coding",
            Self::TooLong { .. } => "answer_too_large",
            Self::Key(_) => "no_evidence",
            Self::NotSigned { .. } => "not_signed",
        }
    }

    /// The refusal that is sent to the client.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self)
    }
}

//! Why there is no statement, by the party at fault.

use std::{io, time::Duration};

use confide_channel::ChannelError;

use crate::{policy::PolicyError, refusal::Refusal, request_error::RequestError};

/// Why a notary cannot be started.
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
    /// Clients can attest over their session only, and evidence is not tied to sessions here.
    #[error("evidence of clients cannot be demanded: wanted session binding, got key binding")]
    ClientBinding,
    /// TLS to servers cannot be set up.
    #[error("TLS to servers cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
}

/// Why there is no signing key that evidence binds.
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
        /// Quote or endorsements.
        part: &'static str,
        /// The limit.
        wanted: usize,
        /// Length in bytes of what the attester gave.
        got: usize,
    },
    /// The attester has no endorsements, or could not fetch any.
    #[error(
        "attester gave no endorsements for its quotes: without them no third party can judge a \
         statement"
    )]
    NoEndorsements,
    /// A key would expire before an exchange that begins with it ends.
    #[error(
        "signing keys live for {got:?}, wanted at least {wanted:?}: twice the longest exchange"
    )]
    Validity {
        /// Twice the longest exchange, its client's slowness included.
        wanted: Duration,
        /// The validity that the operator chose.
        got: Duration,
    },
    /// The claims over the key cannot be written.
    #[error("claims over the signing key are unusable: {reason}")]
    Claims {
        /// What is wrong with the claims.
        reason: String,
    },
    /// No randomness, or the task that made the key broke.
    #[error("signing key could not be made: {reason}")]
    Generation {
        /// Why no key could be made.
        reason: String,
    },
}

/// Why one exchange gave no statement.
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
    Host {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The client has verified another key than the one that would sign. Nothing was sent.
    #[error("the signing key was renewed: fetch its evidence again")]
    KeyRenewed,
    /// The key's claims do not hold at the end of an exchange that they should have outlived.
    #[error("the signing key expired during the exchange; check the system clock")]
    KeyEnded,
    /// All exchanges are in use.
    #[error("all {exchanges} exchanges are in use, and none ended within {deadline:?}")]
    Busy {
        /// The limit.
        exchanges: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// The client has as many exchanges as it may have.
    #[error("this client has {exchanges} exchanges in use, and none ended within {deadline:?}")]
    ClientBusy {
        /// The limit for one client.
        exchanges: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// Only listed clients are served, and this one showed no credential of theirs.
    #[error(
        "client is unknown: wanted `authorization: Bearer` with the credential of a listed one"
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
    /// The name leads to addresses that are not dialled. The addresses are not shown: they may tell
    /// of the notary's own network.
    #[error("{host} has no public address, and the policy allows none of its private ones")]
    Address {
        /// The host.
        host: String,
    },
    /// No TCP connection was made.
    #[error("{host} cannot be reached: {source}")]
    Dial {
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
    /// The server broke off, or does not speak HTTP.
    #[error("{host} sent no complete answer: {source}")]
    Http {
        /// The host.
        host: String,
        /// The error of the HTTP library.
        source: hyper::Error,
    },
    /// The server was silent for too long.
    #[error("{host} did not {what} within {deadline:?}")]
    Slow {
        /// The host.
        host: String,
        /// The step that was waited for.
        what: &'static str,
        /// The deadline.
        deadline: Duration,
    },
    /// The client did not read the answer in time.
    #[error("answer was not read within {deadline:?}")]
    ClientSlow {
        /// The deadline.
        deadline: Duration,
    },
    /// The end of the answer could not be told from the death of its sender.
    #[error(
        "answer of {host} has no marked end: wanted one content-length, chunks, or a stream's end"
    )]
    Unframed {
        /// The host.
        host: String,
    },
    /// The answer has a content coding that the notary does not decode.
    #[error("{host} sent an unsupported content coding: wanted gzip or none")]
    Coding {
        /// The host.
        host: String,
    },
    /// The body is not gzip, or is cut off.
    #[error("{host} sent an invalid or truncated gzip body")]
    Gzip {
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
    /// There is no key to sign with.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The transcript cannot be committed to.
    #[error("transcript cannot be signed: {reason}")]
    Commit {
        /// What is wrong with the transcript.
        reason: String,
    },
}

impl ExchangeError {
    /// The name that programs know.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Request(RequestError::TooLong { .. }) | Self::RequestTooLarge { .. } => {
                "request_too_large"
            }
            Self::Request(_) => "request_malformed",
            Self::RequestTimeout { .. } => "request_timeout",
            Self::Host { .. } => "host_refused",
            Self::KeyRenewed => "key_renewed",
            Self::KeyEnded => "key_ended",
            Self::Busy { .. } => "busy",
            Self::ClientBusy { .. } => "client_busy",
            Self::UnknownClient => "client_unknown",
            Self::Resolve { .. } => "host_not_found",
            Self::Address { .. } => "address_refused",
            Self::Dial { .. } => "host_unreachable",
            Self::Tls { source, .. } => match source {
                rustls::Error::InvalidCertificate(_) => "certificate_refused",
                _ => "tls_failed",
            },
            Self::Http { .. } => "answer_broken",
            Self::Slow { .. } => "host_timeout",
            Self::ClientSlow { .. } => "client_timeout",
            Self::Unframed { .. } => "answer_unframed",
            Self::Coding { .. } | Self::Gzip { .. } => "answer_coding",
            Self::TooLong { .. } => "answer_too_large",
            Self::Key(_) => "no_evidence",
            Self::Commit { .. } => "not_signed",
        }
    }

    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(self.code(), self)
    }
}

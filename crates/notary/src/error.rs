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
    /// The policy, or its roots.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The signing key has no evidence.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Clients can attest over their session only.
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
        /// What it said.
        reason: String,
    },
    /// The evidence is longer than anybody reads.
    #[error(
        "evidence over the signing key is unusable: wanted a {part} of 1 to {wanted} bytes, got {got}"
    )]
    Length {
        /// Quote or endorsements.
        part: &'static str,
        /// The limit.
        wanted: usize,
        /// What the attester gave.
        got: usize,
    },
    /// The attester has none, or could not fetch any.
    #[error(
        "attester gave no endorsements for its quotes: without them no third party can judge a \
         statement"
    )]
    NoEndorsements,
    /// A key would end before what begins with it.
    #[error(
        "signing keys live for {got:?}, wanted at least {wanted:?}: twice the longest exchange"
    )]
    Validity {
        /// Twice the longest exchange, its client's slowness included.
        wanted: Duration,
        /// What the operator said.
        got: Duration,
    },
    /// The claims over it cannot be written.
    #[error("claims over the signing key are unusable: {reason}")]
    Claims {
        /// What is wrong with them.
        reason: String,
    },
    /// No randomness, or the task that made the key broke.
    #[error("signing key could not be made: {reason}")]
    Generation {
        /// What went wrong.
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
    /// A request longer than the policy allows.
    #[error("request body is too long: wanted at most {wanted} bytes")]
    RequestTooLarge {
        /// The limit.
        wanted: usize,
    },
    /// The request did not come in time.
    #[error("request did not come within {deadline:?}")]
    RequestTimeout {
        /// The deadline.
        deadline: Duration,
    },
    /// The host is not on the list.
    #[error("host {host} with port {port} is not on this notary's list")]
    Host {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The client has verified another key than the one that would sign. Nothing was sent.
    #[error("signing key is another one by now: ask for its evidence again")]
    KeyRenewed,
    /// The key's claims do not hold at the end of an exchange that they should have outlived.
    #[error("the signing key expired during the exchange; check the system clock")]
    KeyEnded,
    /// Every place is taken.
    #[error("no exchange became free within {deadline:?}: wanted one of {exchanges}")]
    Busy {
        /// The limit.
        exchanges: usize,
        /// The deadline.
        deadline: Duration,
    },
    /// The client has as many as it may have.
    #[error(
        "no exchange of this client ended within {deadline:?}: wanted fewer than {exchanges} at once"
    )]
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
    /// The name leads nowhere.
    #[error("{host} was not found: {reason}")]
    Resolve {
        /// The host.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// The name leads to addresses that are not dialled. Which they are stays here: they may tell
    /// of the notary's own network.
    #[error("{host} has no public address, and this notary's policy names none of those it has")]
    Address {
        /// The host.
        host: String,
    },
    /// No TCP connection came about.
    #[error("{host} cannot be reached: {source}")]
    Dial {
        /// The host.
        host: String,
        /// What the system said of the last address.
        source: io::Error,
    },
    /// The server's certificate is not believed, or TLS failed.
    #[error("TLS with {host} failed: {source}")]
    Tls {
        /// The host.
        host: String,
        /// What TLS says.
        source: rustls::Error,
    },
    /// The server broke off, or does not speak HTTP.
    #[error("{host} gave no whole answer: {source}")]
    Http {
        /// The host.
        host: String,
        /// What the reader says.
        source: hyper::Error,
    },
    /// The server was silent for too long.
    #[error("{host} did not {what} within {deadline:?}")]
    Slow {
        /// The host.
        host: String,
        /// What was waited for.
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
    /// A content coding that nobody here undoes.
    #[error("answer of {host} is coded: wanted gzip or nothing")]
    Coding {
        /// The host.
        host: String,
    },
    /// gzip that is none.
    #[error("{host} sent an invalid or truncated gzip body")]
    Gzip {
        /// The host.
        host: String,
    },
    /// More than the policy allows, after decoding.
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
        /// What is wrong with it.
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

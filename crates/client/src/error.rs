//! Why there is no answer, by the party at fault.

use std::{error::Error, io, time::Duration};

use confide_appraiser::AppraisalError;
use confide_channel::{ChannelError, Fault, TunnelError};

/// A request body that its sender broke off, or framed so that it cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("request body is not readable: {0}")]
pub struct RequestBodyError(#[source] pub hyper::Error);

/// What went wrong between a request and its answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address of the server cannot be used.
    #[error("server address `{url}` is not usable: wanted {wanted}, got {got}")]
    Url {
        /// The address as it was given.
        url: String,
        /// What an address has to be.
        wanted: &'static str,
        /// What it was.
        got: String,
    },
    /// No TCP connection came about.
    #[error("{target} cannot be reached: {source}")]
    Dial {
        /// Host and port that were dialled.
        target: String,
        /// The operating system's error.
        source: io::Error,
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
        /// In which phase, and why.
        source: ChannelError,
    },
    /// All connections of the pool are busy, and as many requests wait as may.
    #[error("{connections} requests run and {waiting} wait: no more are taken")]
    QueueFull {
        /// The limit of the pool.
        connections: usize,
        /// The limit of the queue before it.
        waiting: usize,
    },
    /// All connections of the pool stayed busy.
    #[error("no connection became free within {deadline:?}: wanted one of {connections}")]
    Busy {
        /// The limit of the pool.
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
    /// HTTP on an accepted connection failed.
    #[error("connection broke before the answer: {0}")]
    Http(#[source] hyper::Error),
    /// A later connection promises something else than the first: what was told is no longer so.
    #[error("guarantee has changed since the start: wanted {wanted}, got {got}")]
    GuaranteeChanged {
        /// What the first connection's evidence said.
        wanted: String,
        /// What this one's says.
        got: String,
    },
    /// An origin that cannot be allowed.
    #[error("origin `{origin}` is not usable: wanted {wanted}")]
    Origin {
        /// The origin as it was given.
        origin: String,
        /// What an origin has to be.
        wanted: &'static str,
    },
    /// A request that cannot be sent.
    #[error("request is not usable: {0}")]
    Request(#[source] http::Error),
}

/// Whom to turn to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The peer's evidence, or the lack of it: a second try gives the same answer.
    Evidence,
    /// The network, or a peer that is silent or broken.
    Network,
    /// What this program was given.
    Local,
}

impl ClientError {
    /// Whom to turn to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Url { .. } | Self::Origin { .. } | Self::Request(_) => Blame::Local,
            Self::Http(error) if is_request_body(error) => Blame::Local,
            Self::GuaranteeChanged { .. } => Blame::Evidence,
            Self::Channel { source, .. } => blame_channel(source),
            _ => Blame::Network,
        }
    }

    /// The check that failed, where evidence is to blame: a name that a policy's author knows.
    pub fn failed_check(&self) -> Option<&str> {
        match self {
            Self::Channel { source, .. } => failed_check(source),
            Self::GuaranteeChanged { .. } => Some("guarantee"),
            _ => None,
        }
    }

    /// Why the evidence was not accepted, in the appraiser's words.
    pub fn rejection(&self) -> Option<&AppraisalError> {
        match self {
            Self::Channel { source, .. } => source.rejection(),
            _ => None,
        }
    }
}

fn blame_channel(error: &ChannelError) -> Blame {
    match error {
        ChannelError::Tunnel(TunnelError::Url { .. } | TunnelError::Target { .. }) => Blame::Local,
        error if failed_check(error).is_some() => Blame::Evidence,
        error => match error.fault() {
            Fault::Evidence => Blame::Evidence,
            Fault::Local => Blame::Local,
            _ => Blame::Network,
        },
    }
}

/// The check that a peer did not pass: whatever it showed in place of evidence that can be judged
/// is its answer, and a second try gives the same.
pub fn failed_check(error: &ChannelError) -> Option<&str> {
    match error {
        ChannelError::KeyMismatch { .. } | ChannelError::Reflected => Some("channel_binding"),
        ChannelError::GpuEvidence { .. } => Some("gpu"),
        ChannelError::NoEvidence
        | ChannelError::Certificate { .. }
        | ChannelError::Extension { .. }
        | ChannelError::Tagged(_)
        | ChannelError::BatchPath(_)
        | ChannelError::Claims(_)
        | ChannelError::FrameLength { .. }
        | ChannelError::Message { .. }
        | ChannelError::MessageKind { .. } => Some("evidence"),
        other => other.rejection::<AppraisalError>().map(AppraisalError::failed_check),
    }
}

/// Whether what broke is the body that this end was given to send.
fn is_request_body(error: &hyper::Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<RequestBodyError>())
}

//! Why there is no answer, by the party at fault.

use std::{error::Error, io, time::Duration};

use confide_appraiser::AppraisalError;
use confide_channel::{ChannelError, Fault, TunnelError};

/// A request body that its sender broke off, or framed so that it cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("request body is not readable: {0}")]
pub struct RequestBodyError(#[source] pub hyper::Error);

/// The reason for which a request got no answer.
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
    /// All connections of the pool are busy, and as many requests wait as are allowed to.
    #[error("queue is full: {connections} requests run and {waiting} wait")]
    QueueFull {
        /// The most requests that run at once.
        connections: usize,
        /// The most requests that wait.
        waiting: usize,
    },
    /// All connections of the pool stayed busy until the deadline.
    #[error("no connection became free within {deadline:?}: wanted one of {connections}")]
    Busy {
        /// The most requests that run at once.
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
    /// A later connection claims another guarantee than the first: what the user was told no longer
    /// holds.
    #[error("guarantee has changed since the start: wanted {wanted}, got {got}")]
    GuaranteeChanged {
        /// The guarantee of the first connection.
        wanted: String,
        /// The guarantee of this connection.
        got: String,
    },
    /// An origin that cannot be allowed.
    #[error("origin `{origin}` is not usable: wanted {wanted}")]
    Origin {
        /// The origin as it was given.
        origin: String,
        /// The form that an origin must have.
        wanted: &'static str,
    },
    /// A request that cannot be sent.
    #[error("request is not usable: {0}")]
    Request(#[source] http::Error),
}

/// The party at fault, and so whom to turn to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The peer's evidence, or the lack of it: a second try gives the same answer.
    Evidence,
    /// The network, or a peer that is silent or broken.
    Network,
    /// The options that this program was given.
    Local,
}

impl ClientError {
    /// The party at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Url { .. } | Self::Origin { .. } | Self::Request(_) => Blame::Local,
            Self::Http(error) if is_request_body(error) => Blame::Local,
            Self::GuaranteeChanged { .. } => Blame::Evidence,
            Self::Channel { source, .. } => blame_channel(source),
            _ => Blame::Network,
        }
    }

    /// The name of the failed check, where evidence is to blame: a policy's author knows the name.
    pub fn failed_check(&self) -> Option<&str> {
        match self {
            Self::Channel { source, .. } => failed_check(source),
            Self::GuaranteeChanged { .. } => Some("guarantee"),
            _ => None,
        }
    }

    /// The reason for which the evidence was not accepted, in the appraiser's words.
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

/// The name of the check that the peer failed. Anything that a peer shows in place of readable
/// evidence counts as its answer: a second try gives the same.
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

/// Whether the body that this end was given to send is what broke.
fn is_request_body(error: &hyper::Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<RequestBodyError>())
}

//! Errors between a key holder and its host.

use confide_rlwe::RlweError;

use super::connect::{Connect, NotAccepted};
use crate::{
    adapt_error::AdaptError,
    direct::DirectError,
    masked::MaskedError,
    protocol::{ProtocolError, Refusal},
    quantise::QuantiseError,
};

/// The reason why a key holder cannot go on with an adapter host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// The host went away, was never there, or broke the protocol.
    #[error("adapter host {host}: {reason}")]
    Lost {
        /// The host's address.
        host: String,
        /// The message of the connection's error.
        reason: String,
    },
    /// The host's evidence was not accepted; nothing was sent to it.
    #[error("adapter host {host} is not accepted: check `{check}` failed: {reason}")]
    NotAccepted {
        /// The host's address.
        host: String,
        /// The check that failed, as policies name it.
        check: String,
        /// The appraiser's message.
        reason: String,
    },
    /// The host was restarted, or forgot the session: masks prepared under it are worthless.
    #[error("adapter host {host} was restarted: masks prepared before are discarded")]
    StartedAnew {
        /// The host's address.
        host: String,
    },
    /// The host refused, by name.
    #[error("adapter host {host}: {refusal}")]
    Refused {
        /// The host's address.
        host: String,
        /// The refusal that the host sent.
        refusal: Refusal,
    },
    /// The host's offer is not what was asked for, or not what it offered before.
    #[error("adapter host {host} offers {got}, wanted {wanted}")]
    Offer {
        /// The host's address.
        host: String,
        /// The offer that was asked for.
        wanted: String,
        /// The offer that the host made.
        got: String,
    },
    /// No masks were ready in time.
    #[error("adapter host {host}: no prepared masks within {waited_s} s")]
    NotPrepared {
        /// The host's address.
        host: String,
        /// The time waited, in seconds.
        waited_s: u64,
    },
    /// A vector cannot be sent.
    #[error("activation cannot be sent: {0}")]
    Activation(#[from] QuantiseError),
    /// A vector, or room for an answer, is not as wide as the adapter.
    #[error("activation of {got} values: wanted vectors of {wanted}")]
    Shape {
        /// The width of a vector.
        wanted: usize,
        /// The number of values that were given.
        got: usize,
    },
    /// A step of the masked scheme failed; the batch that it concerned is dropped.
    #[error("masked scheme: {0}")]
    Masked(#[from] MaskedError),
    /// A step of the direct scheme failed.
    #[error("direct scheme: {0}")]
    Direct(#[from] DirectError),
    /// The ring, a key or the random generator failed.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

impl HolderError {
    pub(crate) fn not_opened(connect: &dyn Connect, error: std::io::Error) -> Self {
        let host = connect.host();
        match error.downcast::<NotAccepted>() {
            Ok(NotAccepted { check, reason }) => Self::NotAccepted { host, check, reason },
            Err(error) => Self::Lost { host, reason: error.to_string() },
        }
    }

    pub(crate) fn connection_lost(connect: &dyn Connect, reason: &dyn std::fmt::Display) -> Self {
        Self::Lost { host: connect.host(), reason: reason.to_string() }
    }

    pub(crate) fn from_protocol(connect: &dyn Connect, error: ProtocolError) -> Self {
        match error {
            ProtocolError::Refused(Refusal::NoSession) => {
                Self::StartedAnew { host: connect.host() }
            }
            ProtocolError::Refused(refusal) => Self::Refused { host: connect.host(), refusal },
            other => Self::connection_lost(connect, &other),
        }
    }
}

impl From<HolderError> for AdaptError {
    fn from(error: HolderError) -> Self {
        let reason = error.to_string();
        match error {
            HolderError::Refused { refusal: Refusal::Budget { limit }, .. } => {
                AdaptError::Budget { limit }
            }
            HolderError::Refused { refusal: Refusal::Stopping, .. } => {
                AdaptError::HostLost { reason }
            }
            HolderError::Refused { .. }
            | HolderError::NotAccepted { .. }
            | HolderError::Offer { .. } => AdaptError::Refused { reason },
            HolderError::Activation(why) => AdaptError::Activation { reason: why.to_string() },
            HolderError::Shape { .. } => AdaptError::Activation { reason },
            _ => AdaptError::HostLost { reason },
        }
    }
}

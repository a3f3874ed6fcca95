//! Errors of a key holder.

use confide_rlwe::RlweError;

use super::connect::{EvidenceRefused, HostConnector};
use crate::{
    adapt_error::AdaptError,
    direct::EncryptedProductError,
    masked::MaskedError,
    protocol::{ProtocolError, Refusal},
    quantise::QuantiseError,
};

/// The reason why a key holder cannot use an adapter host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// The host cannot be reached, disconnected, or violated the protocol.
    #[error("adapter host {host}: {reason}")]
    Lost {
        /// The host's address.
        host: String,
        /// The message of the connection's error.
        reason: String,
    },
    /// The host's evidence was not accepted; nothing was sent to it.
    #[error("evidence of adapter host {host} is not accepted: check `{check}` failed: {reason}")]
    EvidenceRefused {
        /// The host's address.
        host: String,
        /// The check that failed, by its name in policies.
        check: String,
        /// The appraiser's message.
        reason: String,
    },
    /// The host was restarted or forgot the session, so masks that were prepared in it are useless.
    #[error(
        "adapter host {host} was restarted or forgot the session: prepared masks are discarded"
    )]
    HostRestarted {
        /// The host's address.
        host: String,
    },
    /// The host refused the request.
    #[error("adapter host {host}: {refusal}")]
    Refused {
        /// The host's address.
        host: String,
        /// The refusal that the host sent.
        refusal: Refusal,
    },
    /// The host's offer is not what the options require, or differs from its earlier offer.
    #[error("adapter host {host} offers {got}, wanted {wanted}")]
    Offer {
        /// The host's address.
        host: String,
        /// The offer that was wanted.
        wanted: String,
        /// The offer that the host made.
        got: String,
    },
    /// No masks were prepared in time.
    #[error("adapter host {host}: no prepared masks within {waited_s} s")]
    NotPrepared {
        /// The host's address.
        host: String,
        /// The time that was waited, in seconds.
        waited_s: u64,
    },
    /// A vector cannot be sent.
    #[error("activation cannot be sent: {0}")]
    Activation(#[from] QuantiseError),
    /// A vector, or the space for an answer, does not have the adapter's width.
    #[error("activation of {got} values: wanted vectors of {wanted}")]
    Shape {
        /// The width of a vector.
        wanted: usize,
        /// The number of values that were given.
        got: usize,
    },
    /// An operation of the masked scheme failed; its batch is dropped.
    #[error("masked scheme: {0}")]
    Masked(#[from] MaskedError),
    /// An operation of the direct scheme failed.
    #[error("direct scheme: {0}")]
    Direct(#[from] EncryptedProductError),
    /// The ring, a key or the random generator failed.
    #[error(transparent)]
    Ring(#[from] RlweError),
}

impl HolderError {
    pub(crate) fn connect_failed(connect: &dyn HostConnector, error: std::io::Error) -> Self {
        let host = connect.host();
        match error.downcast::<EvidenceRefused>() {
            Ok(EvidenceRefused { check, reason }) => Self::EvidenceRefused { host, check, reason },
            Err(error) => Self::Lost { host, reason: error.to_string() },
        }
    }

    pub(crate) fn connection_lost(
        connect: &dyn HostConnector,
        reason: &dyn std::fmt::Display,
    ) -> Self {
        Self::Lost { host: connect.host(), reason: reason.to_string() }
    }

    pub(crate) fn from_protocol(connect: &dyn HostConnector, error: ProtocolError) -> Self {
        match error {
            ProtocolError::Refused(Refusal::NoSession) => {
                Self::HostRestarted { host: connect.host() }
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
            | HolderError::EvidenceRefused { .. }
            | HolderError::Offer { .. } => AdaptError::Refused { reason },
            HolderError::Activation(why) => AdaptError::Activation { reason: why.to_string() },
            HolderError::Shape { .. } => AdaptError::Activation { reason },
            _ => AdaptError::HostLost { reason },
        }
    }
}

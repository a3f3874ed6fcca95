//! Why a frame or a message is refused.

use std::{io, time::Duration};

use super::{kind::FrameKind, refusal::Refusal};

/// Why a frame could not be sent, received or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The stream failed.
    #[error("stream: {0}")]
    Io(#[from] io::Error),
    /// The peer ended the stream between frames, or within one.
    #[error("stream ended {}", if *.within_frame { "within a frame" } else { "by the peer" })]
    StreamEnded {
        /// Whether a frame had begun.
        within_frame: bool,
    },
    /// The peer was silent for too long.
    #[error("{what}: nothing came within {} ms", .deadline.as_millis())]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        deadline: Duration,
    },
    /// The kind of a frame is unknown, or none that this side receives.
    #[error("frame kind: wanted one for this side, got {got:#04x}")]
    FrameKind {
        /// What came.
        got: u8,
    },
    /// A frame is longer, or shorter, than its kind allows.
    #[error("{kind:?} frame: wanted at most {wanted} bytes of payload, got {got}")]
    Length {
        /// The kind.
        kind: FrameKind,
        /// Its limit.
        wanted: usize,
        /// What was announced.
        got: usize,
    },
    /// A length that holds not even a kind and a request id.
    #[error("frame length: wanted at least 5, got {got}")]
    Short {
        /// What was announced.
        got: u32,
    },
    /// A frame that is in order came where another was due.
    #[error("frame: wanted {wanted}, got {got:?}")]
    Unexpected {
        /// What was due.
        wanted: &'static str,
        /// What came.
        got: FrameKind,
    },
    /// A field of a message is not as it must be.
    #[error("{message}: {field}: wanted {wanted}")]
    Field {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The host refused, by name.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

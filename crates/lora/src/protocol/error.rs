//! Errors of frames and messages.

use std::{io, time::Duration};

use super::{kind::FrameKind, refusal::Refusal};

/// The reason why a frame could not be sent, received or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The stream failed.
    #[error("stream: {0}")]
    Io(#[from] io::Error),
    /// The peer ended the stream between frames, or within one.
    #[error("stream ended {}", if *.within_frame { "within a frame" } else { "by the peer" })]
    StreamEnded {
        /// Whether the stream ended within a frame.
        within_frame: bool,
    },
    /// The peer was silent for too long.
    #[error("{what}: timed out after {} ms", .deadline.as_millis())]
    Deadline {
        /// The operation or frame that timed out.
        what: &'static str,
        /// The time limit.
        deadline: Duration,
    },
    /// The kind of a frame is unknown, or is not one that this side receives.
    #[error("frame kind: {got:#04x} is unknown or not allowed in this direction")]
    FrameKind {
        /// The byte of the kind.
        got: u8,
    },
    /// A frame is longer than its kind allows.
    #[error("{kind:?} frame: wanted at most {wanted} bytes of payload, got {got}")]
    Length {
        /// The kind of the frame.
        kind: FrameKind,
        /// The greatest length of the payload, in bytes.
        wanted: usize,
        /// The length that the frame announced, in bytes.
        got: usize,
    },
    /// A frame announces a length that is too short for a kind and a request id.
    #[error("frame length: wanted at least 5, got {got}")]
    Short {
        /// The length that the frame announced, in bytes.
        got: u32,
    },
    /// A frame of an unexpected kind arrived.
    #[error("frame: wanted {wanted}, got {got:?}")]
    Unexpected {
        /// The kinds that were expected.
        wanted: &'static str,
        /// The kind that arrived.
        got: FrameKind,
    },
    /// A field of a message has a value that is not allowed.
    #[error("{message}: {field}: wanted {wanted}")]
    Field {
        /// The name of the message.
        message: &'static str,
        /// The name of the field.
        field: &'static str,
        /// The values that are allowed.
        wanted: &'static str,
    },
    /// The host sent a refusal.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

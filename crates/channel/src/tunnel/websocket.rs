//! The path, the limits and the end mark on which both ends of a tunnel agree.

use tokio_tungstenite::tungstenite::{Error as WsError, protocol::WebSocketConfig};

use crate::error::{ChannelError, ChannelPhase, TunnelError};

/// The path at which the proxy answers.
pub const PATH: &str = "/tunnel";

/// The text message that ends one direction: WebSocket itself has no half-close.
pub(super) const END_OF_STREAM: &str = "eof";

/// The largest number of bytes in one WebSocket message: four full TLS records; larger messages
/// only add latency.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The largest number of bytes that wait for a peer that does not read.
const WRITE_BUFFER_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// The limits of both ends. Messages are not buffered, because the peer of the inner protocol waits
/// for them.
pub(super) fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(MESSAGE_BYTES_MAX)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

pub(super) fn websocket_error(phase: ChannelPhase, source: WsError) -> ChannelError {
    match source {
        WsError::Io(source) => ChannelError::Io { phase, source },
        WsError::ConnectionClosed | WsError::AlreadyClosed => TunnelError::Truncated.into(),
        source => TunnelError::WebSocket { phase, source: Box::new(source) }.into(),
    }
}

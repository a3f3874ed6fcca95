//! A WebSocket proxy that carries raw bytes to allow-listed targets.
//!
//! What it carries is TLS between the two ends; nothing in this module can take part in it, so it
//! names no TLS library. Wire format: `docs/channel.md`.

mod allow;
mod dial;
mod request;
mod serve;
mod websocket;

pub use allow::AllowList;
pub use dial::{TunnelStream, dial};
pub use request::{HEAD_BYTES_MAX, TunnelRequest};
pub use serve::{CarriedBytes, TunnelDeadlines, serve};
pub use websocket::PATH;

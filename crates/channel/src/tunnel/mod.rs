//! A WebSocket proxy that carries raw bytes to allow-listed targets. It carries TLS between the two
//! ends and cannot decrypt it: this module uses no TLS library. `docs/channel.md` describes the
//! wire format.

mod allow;
mod dial;
mod origin;
mod request;
mod serve;
mod websocket;

pub use allow::AllowList;
pub use dial::{TunnelStream, dial};
pub use origin::{AllowedOrigins, OriginError, RequestSource};
pub use request::{HEAD_BYTES_MAX, TunnelRequest};
pub use serve::{TunnelDeadlines, TunnelTraffic, serve};
pub use websocket::PATH;

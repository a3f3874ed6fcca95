//! confide's verifying client for browsers and Node, and its verdicts for hosts that open TLS themselves.
//!
//! With the feature `javascript`, everything that decides runs in here: TLS 1.3, the session exchange,
//! the appraisal and HTTP/1.1. The host, `npm/`, moves bytes between this and a WebSocket or a socket,
//! keeps the deadlines, and makes the answers `Response` objects. `docs/web.md` describes the package.
#![deny(missing_docs)]

mod appraiser;
#[cfg(all(target_arch = "wasm32", feature = "javascript"))]
mod bindings;
mod carrier;
mod crypto;
mod error;
#[cfg(feature = "plain")]
#[cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "the host calls its exports"))]
mod plain;
pub mod provider;
#[cfg(all(target_arch = "wasm32", feature = "javascript"))]
mod random;
mod session;

pub use appraiser::{AppraisalError, PeerAppraisal, PolicyAppraiser};
pub use carrier::{Carrier, CarrierHost, carrier};
pub use crypto::RustCrypto;
pub use error::WebError;
pub use session::{Session, WebRequest, next_piece, open};

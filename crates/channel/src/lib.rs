//! Attested channels: TLS whose peer has shown evidence of the TEE that it runs in.
//!
#![doc = include_str!("../README.md")]
//!
//! # The result comes with the stream
//! The stream cannot be taken without the attestation result:
//!
//! ```compile_fail,E0616
//! fn stream_alone<S, T>(attested: confide_channel::AttestedServerStream<S, T>)
//! -> tokio_rustls::client::TlsStream<S> {
//!     attested.stream
//! }
//! ```
//!
//! ```
//! fn stream_and_result<S, T>(attested: confide_channel::AttestedServerStream<S, T>)
//! -> (tokio_rustls::client::TlsStream<S>, T) {
//!     let (stream, appraised, _timings) = attested.into_parts();
//!     (stream, appraised)
//! }
//! ```
#![deny(missing_docs)]

mod attested;
mod authenticator;
#[cfg(test)]
mod authenticator_tests;
mod batch;
mod batch_error;
mod batch_start;
mod certificate;
mod client;
mod deadline;
mod document_key;
mod error;
mod exchange_message;
mod frame;
mod handshake;
mod identity;
mod live;
mod nested;
mod options;
mod own_evidence;
mod plain;
#[cfg(test)]
mod relay_tests;
mod renewal;
mod server;
mod session;
pub mod tunnel;

pub use attested::{AttestedClientStream, AttestedServerStream};
pub use batch::{BatchCounts, BatchLimits, BatchedQuote, QuoteBatcher};
pub use batch_error::BatchError;
pub use client::Client;
pub use document_key::DocumentKey;
pub use error::{ChannelError, ChannelPhase, ErrorOrigin, TunnelError};
pub use frame::FRAME_BYTES_MAX;
pub use identity::{CERTIFICATE_BYTES_MAX, KeyIdentity};
pub use live::{EVIDENCE_MEDIA_TYPE, EVIDENCE_PATH, EvidenceRequest, LivePeer, LiveSession};
pub use nested::{NestedClient, NestedServer, nested_accept, nested_connect};
pub use options::{
    Binding, ChannelTimings, ClientEvidence, ClientOptions, RecordTuning, ServerOptions,
    SessionVersion,
};
pub use plain::{PlainClient, PlainConnection, UnixClock};
pub use server::{Server, ServerStream};

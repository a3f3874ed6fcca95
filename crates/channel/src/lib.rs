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
#![cfg_attr(
    not(feature = "native"),
    allow(dead_code, reason = "the client's half uses a part of the modules that it shares")
)]

#[cfg(not(feature = "native"))]
mod absent_attester;
mod attested;
mod authenticator;
#[cfg(all(test, feature = "native"))]
mod authenticator_tests;
#[cfg(feature = "native")]
mod batch;
mod batch_error;
#[cfg(feature = "native")]
mod batch_start;
mod certificate;
mod client;
mod deadline;
#[cfg(feature = "native")]
mod document_key;
mod error;
mod exchange_message;
mod frame;
mod handshake;
#[cfg(feature = "native")]
mod identity;
mod live;
#[cfg(feature = "native")]
mod nested;
mod open_session;
mod options;
#[cfg(feature = "native")]
mod own_evidence;
#[cfg(feature = "native")]
mod plain;
#[cfg(all(test, feature = "native"))]
mod relay_tests;
#[cfg(feature = "native")]
mod renewal;
#[cfg(feature = "native")]
mod server;
mod session;
#[cfg(feature = "native")]
mod session_attester;
mod session_terms;
mod stopwatch;
#[cfg(feature = "native")]
pub mod tunnel;

#[cfg(feature = "native")]
pub use attested::AttestedClientStream;
pub use attested::AttestedServerStream;
#[cfg(feature = "native")]
pub use batch::{BatchCounts, BatchLimits, BatchedQuote, QuoteBatcher};
pub use batch_error::BatchError;
pub use client::Client;
#[cfg(feature = "native")]
pub use document_key::DocumentKey;
pub use error::{ChannelError, ChannelPhase, ErrorOrigin, TunnelError};
pub use frame::FRAME_BYTES_MAX;
#[cfg(feature = "native")]
pub use identity::{CERTIFICATE_BYTES_MAX, KeyIdentity};
#[cfg(feature = "native")]
pub use live::LiveSession;
pub use live::{EVIDENCE_MEDIA_TYPE, EVIDENCE_PATH, EvidenceRequest, LivePeer};
#[cfg(feature = "native")]
pub use nested::{NestedClient, NestedServer, nested_accept, nested_connect};
pub use open_session::appraise_server;
pub use options::{
    Binding, ChannelTimings, ClientEvidence, ClientOptions, RecordTuning, ServerOptions,
    SessionVersion,
};
#[cfg(feature = "native")]
pub use plain::{PlainClient, PlainConnection, UnixClock};
#[cfg(feature = "native")]
pub use server::{Server, ServerStream};
pub use session_terms::TlsSession;

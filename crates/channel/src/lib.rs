//! Attested TLS: a byte stream comes only together with an attestation result.
//!
//! - [`Server`] and [`Client`]: TLS 1.3 without tickets and without early data. *Key binding*
//!   carries evidence in the certificate, *session binding* exchanges it after the handshake over
//!   the TLS exporter. Wire formats: `docs/channel.md`.
//! - [`PlainClient`] (and [`Server`] with [`Binding::None`]): ordinary TLS 1.3 under the same
//!   connection policy, for comparison and as the outer layer of [`nested_connect`].
//! - [`tunnel`]: a WebSocket proxy that carries the TLS bytes and can read none of them.
//!
//! Everything is generic over the byte stream and over [`confide_evidence::Appraise`]. Every call
//! has one deadline for all of its waits, and every length a limit.
//!
//! ```no_run
//! # async fn example<A: confide_evidence::Appraise>(
//! #     appraiser: std::sync::Arc<A>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use confide_channel::{Binding, Client, ClientOptions};
//!
//! let deadline = std::time::Duration::from_secs(10);
//! let client = Client::new(ClientOptions { binding: Binding::Session, deadline }, appraiser)?;
//! let socket = tokio::net::TcpStream::connect("model.example:443").await?;
//! let (stream, appraised, timings) = client.connect("model.example", socket).await?.into_parts();
//! # let _ = (stream, appraised, timings);
//! # Ok(())
//! # }
//! ```
//!
//! There is no way to the stream that leaves the attestation result behind:
//!
//! ```compile_fail,E0616
//! fn stream_alone<S, T>(attested: confide_channel::Attested<S, T>)
//! -> tokio_rustls::client::TlsStream<S> {
//!     attested.stream
//! }
//! ```
//!
//! ```
//! fn stream_and_result<S, T>(attested: confide_channel::Attested<S, T>)
//! -> (tokio_rustls::client::TlsStream<S>, T) {
//!     let (stream, appraised, _timings) = attested.into_parts();
//!     (stream, appraised)
//! }
//! ```

mod attested;
mod batch;
mod certificate;
mod client;
mod deadline;
mod error;
mod frame;
mod handshake;
mod identity;
mod nested;
mod options;
mod own_evidence;
mod plain;
mod renewal;
mod server;
mod session;
pub mod tunnel;

pub use attested::{Attested, AttestedClient};
pub use batch::{BatchCounts, BatchError, BatchLimits, Batched, Batcher};
pub use client::Client;
pub use error::{ChannelError, Fault, Phase, TunnelError};
pub use frame::FRAME_BYTES_MAX;
pub use identity::{CERTIFICATE_BYTES_MAX, PLAIN_VALIDITY};
pub use nested::{NestedClient, NestedServer, nested_accept, nested_connect};
pub use options::{Binding, ClientEvidence, ClientOptions, ServerOptions, Timings, Tuning};
pub use plain::{Connected, PlainClient};
pub use server::{Accepted, Server};

//! The interface through which a key holder opens streams to an adapter host.

use std::{future::Future, io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to an adapter host.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// An open stream to an adapter host, and whether the evidence is simulated.
pub struct HostStream {
    /// The stream, which carries the blind protocol from its first byte.
    pub stream: Box<dyn ByteStream>,
    /// Whether evidence that either side presented is simulated.
    pub simulated: bool,
}

/// The host's evidence was refused. A [`HostConnector`] returns this inside its [`io::Error`]. A retry has
/// the same result.
#[derive(Debug, thiserror::Error)]
#[error("check `{check}` failed: {reason}")]
pub struct EvidenceRefused {
    /// The check that failed, by its name in policies.
    pub check: String,
    /// The appraiser's message.
    pub reason: String,
}

/// A stream that is being opened.
pub type StreamFuture<'a> = Pin<Box<dyn Future<Output = io::Result<HostStream>> + Send + 'a>>;

/// Opens streams to one adapter host: plain TCP, an attested channel, or a pipe in a test.
///
/// The future is polled on the thread and in the Tokio runtime that will use the stream. The caller
/// sets a deadline for it.
pub trait HostConnector: Send + Sync + 'static {
    /// Opens one more stream.
    fn connect(&self) -> StreamFuture<'_>;

    /// The host's address, for error messages.
    fn host(&self) -> String;
}

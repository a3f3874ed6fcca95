//! How a key holder reaches an adapter host.

use std::{future::Future, io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to an adapter host.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open stream to an adapter host, and what is known of its other end.
pub struct HostStream {
    /// Carries the blind protocol from its first byte.
    pub stream: Box<dyn Stream>,
    /// Whether evidence that either side showed is simulated.
    pub simulated: bool,
}

/// The host's evidence was refused. A [`Connect`] returns this inside its [`io::Error`]; trying again
/// gives the same answer.
#[derive(Debug, thiserror::Error)]
#[error("check `{check}` failed: {reason}")]
pub struct NotAccepted {
    /// The check that failed, as policies name it.
    pub check: String,
    /// The appraiser's message.
    pub reason: String,
}

/// A stream that is being opened.
pub type StreamFuture<'a> = Pin<Box<dyn Future<Output = io::Result<HostStream>> + Send + 'a>>;

/// Opens streams to one adapter host: plain TCP, an attested channel, or a pipe in a test.
///
/// It is polled on the thread, and inside the Tokio runtime, that will use the stream; a deadline
/// for the whole of it is the caller's.
pub trait Connect: Send + Sync + 'static {
    /// Opens one more stream.
    fn connect(&self) -> StreamFuture<'_>;

    /// The host's address, as errors name it.
    fn host(&self) -> String;
}

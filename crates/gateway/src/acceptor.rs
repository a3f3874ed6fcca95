//! Opens the stream that carries HTTP on an accepted TCP connection.

use std::future::Future;

use confide_http::PeerStream;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens streams on accepted connections. There are two implementations: the attested channel, and
/// plain TCP in this crate's tests.
pub(crate) trait Acceptor: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    type Refusal: std::fmt::Display + Send;

    fn open_stream(
        &self,
        stream: PeerStream,
    ) -> impl Future<Output = Result<Self::Stream, Self::Refusal>> + Send;
}

impl Acceptor for confide_channel::Server {
    type Stream = tokio_rustls::server::TlsStream<PeerStream>;
    type Refusal = confide_channel::ChannelError;

    async fn open_stream(&self, stream: PeerStream) -> Result<Self::Stream, Self::Refusal> {
        let accepted = self.accept(stream).await?;
        tracing::debug!(
            handshake_us = accepted.timings.handshake.as_micros() as u64,
            quote_us = accepted.timings.quote.as_micros() as u64,
            sessions_under_quote = accepted.timings.batch,
            "channel opened"
        );
        Ok(accepted.stream)
    }
}

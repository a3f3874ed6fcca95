//! Opens the stream that carries HTTP on an accepted TCP connection.

use std::{
    convert::Infallible,
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use confide_channel::{ChannelError, Server};
use confide_http::PeerStream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{fresh_evidence::FreshEvidence, http_version::HttpVersion, observation::Telemetry};

/// A stream that carries HTTP.
pub(crate) struct OpenedStream<S> {
    pub(crate) stream: S,
    pub(crate) version: HttpVersion,
    /// The source of fresh evidence for the client; `None` without session binding.
    pub(crate) evidence: Option<Arc<FreshEvidence>>,
}

/// Opens streams on accepted connections. There are two implementations: the attested channel, and
/// plain TCP in this crate's tests.
pub(crate) trait Acceptor: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    type Refusal: std::error::Error + Send;

    fn open_stream(
        &self,
        stream: PeerStream,
    ) -> impl Future<Output = Result<OpenedStream<Self::Stream>, Self::Refusal>> + Send;

    /// Does what has to be done at intervals while connections are accepted, and as long as they are
    /// open once `is_replaced` says that another version accepts new ones.
    fn maintain(
        &self,
        _is_replaced: impl Fn() -> bool + Send + Sync,
    ) -> impl Future<Output = Infallible> + Send {
        pending()
    }
}

/// The interval between two checks for a failed renewal. Renewal starts after two thirds of a key's
/// lifetime, long before it expires.
const RENEWALS_SEEN_EVERY: Duration = Duration::from_secs(10);

/// The attested channel, whose handshakes are counted.
pub(crate) struct ChannelAcceptor {
    pub(crate) channel: Arc<Server>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    /// Whether the key is renewed in time although no connection comes, because it vouches for
    /// receipts of those that are open.
    pub(crate) keeps_key_fresh: bool,
}

impl Acceptor for ChannelAcceptor {
    type Stream = tokio_rustls::server::TlsStream<PeerStream>;
    type Refusal = ChannelError;

    async fn open_stream(
        &self,
        stream: PeerStream,
    ) -> Result<OpenedStream<Self::Stream>, Self::Refusal> {
        let metrics = self.telemetry.as_ref().map(|telemetry| &telemetry.metrics);
        let accepted = self.channel.accept(stream).await.inspect_err(|error| {
            if let Some(metrics) = metrics {
                metrics.record_failed_handshake(error.origin());
            }
        })?;
        if let Some(metrics) = metrics {
            let quote = (accepted.timings.batch > 0).then_some(accepted.timings.quote);
            metrics.record_handshake(accepted.timings.handshake, quote);
        }
        let version = if accepted.is_http2() { HttpVersion::Http2 } else { HttpVersion::Http1 };
        tracing::debug!(
            ?version,
            handshake_us = accepted.timings.handshake.as_micros() as u64,
            quote_us = accepted.timings.quote.as_micros() as u64,
            sessions_under_quote = accepted.timings.batch,
            "channel opened"
        );
        let evidence = accepted.live.map(|live| Arc::new(FreshEvidence::new(live)));
        Ok(OpenedStream { stream: accepted.stream, version, evidence })
    }

    /// Takes over collateral that has come after the key was made, logs each failed renewal of the
    /// key, since clients notice nothing until the key expires, and keeps the metric of its expiry.
    async fn maintain(&self, is_replaced: impl Fn() -> bool + Send + Sync) -> Infallible {
        let mut seen = 0;
        loop {
            if let Some(telemetry) = &self.telemetry
                && !is_replaced()
            {
                telemetry.metrics.set_key_not_after(self.channel.key_not_after());
            }
            tokio::time::sleep(RENEWALS_SEEN_EVERY).await;
            if !is_replaced() {
                self.channel.renew_for_new_collateral();
            }
            if self.keeps_key_fresh {
                self.channel.renew_if_due();
            }
            let failures = self.channel.renewal_failures();
            if failures > seen {
                tracing::warn!(
                    failures,
                    "the key could not be renewed; it is used until it expires"
                );
                seen = failures;
            }
        }
    }
}

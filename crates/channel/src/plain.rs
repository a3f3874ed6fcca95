//! Ordinary TLS 1.3: the baseline of comparisons, and the outer layer of a nested session.

use std::{fmt, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, UnixTime},
    time_provider::TimeProvider,
    version::TLS13,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use crate::{
    client::{ClientAttester, handshake, present_identity},
    deadline::Deadline,
    error::ChannelError,
    handshake,
    options::{Binding, ChannelTimings, ClientEvidence, ClientOptions, RecordTuning},
    session::{self, ExchangeOutcome, NoAppraiser},
};

/// Connects to servers that it authenticates by an ordinary certificate chain, without evidence.
pub struct PlainClient {
    config: ClientConfig,
    evidence: Option<ClientAttester>,
    options: ClientOptions,
    tuning: RecordTuning,
}

/// An open ordinary TLS stream, and the time that it took to open.
#[derive(Debug)]
pub struct PlainConnection<S> {
    /// Carries application bytes from here on.
    pub stream: TlsStream<S>,
    /// The time that each step took.
    pub timings: ChannelTimings,
}

impl PlainClient {
    /// A client that trusts one root certificate (DER), or one server certificate pinned as its own
    /// root. `options.binding` has to be [`Binding::None`]; `clock` returns Unix seconds.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] if `options.binding` is not [`Binding::None`],
    /// [`ChannelError::Tls`] if the root cannot be read.
    pub fn new(
        options: ClientOptions,
        root_der: &[u8],
        clock: fn() -> u64,
    ) -> Result<Self, ChannelError> {
        let mut store = RootCertStore::empty();
        store.add(CertificateDer::from(root_der)).map_err(ChannelError::Tls)?;
        Self::with_store(options, store, clock)
    }

    /// A client that trusts several root certificates (DER), such as those of an operating system, of
    /// which some may have forms that TLS no longer accepts.
    ///
    /// # Errors
    /// Those of [`PlainClient::new`]; [`ChannelError::Tls`] if no root can be read.
    pub fn with_roots(
        options: ClientOptions,
        roots_der: impl IntoIterator<Item = Vec<u8>>,
        clock: fn() -> u64,
    ) -> Result<Self, ChannelError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots_der.into_iter().map(CertificateDer::from));
        if store.is_empty() {
            let none = rustls::Error::General("no usable root certificate".into());
            return Err(ChannelError::Tls(none));
        }
        Self::with_store(options, store, clock)
    }

    fn with_store(
        options: ClientOptions,
        store: RootCertStore,
        clock: fn() -> u64,
    ) -> Result<Self, ChannelError> {
        if options.binding != Binding::None {
            return Err(ChannelError::Binding { call: "PlainClient", wanted: "none" });
        }
        let time = Arc::new(UnixClock(clock));
        let mut config = ClientConfig::builder_with_details(handshake::crypto_provider(), time)
            .with_protocol_versions(&[&TLS13])
            .map_err(ChannelError::Tls)?
            .with_root_certificates(store)
            .with_no_client_auth();
        handshake::apply_client_policy(&mut config, options.binding);
        Ok(Self { config, evidence: None, options, tuning: RecordTuning::default() })
    }

    /// Returns the client for servers that appraise it and have no evidence themselves
    /// ([`crate::Server::without_evidence`]); the certificate authenticates the server.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] or [`ChannelError::OwnClaims`] if the key or the claims cannot be
    /// made.
    pub fn with_evidence(mut self, evidence: ClientEvidence) -> Result<Self, ChannelError> {
        self.evidence = Some(ClientAttester::new(evidence)?);
        handshake::apply_client_policy(&mut self.config, Binding::Session);
        Ok(self)
    }

    /// Returns the client with other record sizes.
    pub fn with_tuning(mut self, tuning: RecordTuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Takes an open byte stream through the handshake; `name` has to be in the certificate.
    ///
    /// # Errors
    /// [`ChannelError::ServerName`] for a name that cannot be sent, [`ChannelError::Timeout`],
    /// [`ChannelError::Io`] or [`ChannelError::Tls`] if the connection fails,
    /// [`ChannelError::Refused`] if the server does not accept this end's evidence.
    pub async fn connect<S>(&self, name: &str, io: S) -> Result<PlainConnection<S>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let deadline = Deadline::after(self.options.deadline);
        let Some(evidence) = &self.evidence else {
            let config = self.config.clone();
            let (stream, timings) =
                handshake(config, Binding::None, name, io, deadline, self.tuning).await?;
            return Ok(PlainConnection { stream, timings });
        };
        let attesting = evidence.current_attester(deadline).await?;
        let mut config = self.config.clone();
        present_identity(&mut config, &attesting.identity);
        let (mut stream, mut timings) =
            handshake(config, Binding::Session, name, io, deadline, self.tuning).await?;
        let exchange = session::exchange_as_client::<_, NoAppraiser>(
            &mut stream,
            Some(&attesting),
            None,
            deadline,
        );
        let ExchangeOutcome { batch, quote, round_trips, .. } = exchange.await?;
        timings.batch = batch;
        timings.quote = quote;
        timings.round_trips += round_trips;
        Ok(PlainConnection { stream, timings })
    }
}

/// A wall clock of Unix seconds in the form that rustls needs.
pub struct UnixClock(pub fn() -> u64);

impl TimeProvider for UnixClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs((self.0)())))
    }
}

impl fmt::Debug for UnixClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnixClock")
    }
}

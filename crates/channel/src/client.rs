//! The connecting end, which appraises the server's evidence.

use std::sync::Arc;

use confide_evidence::Appraise;
#[cfg(feature = "native")]
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client::TlsStream};

#[cfg(not(feature = "native"))]
use crate::absent_attester::SessionAttester;
use crate::{
    attested::AttestedServerStream,
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    handshake,
    live::LivePeer,
    options::{Binding, ChannelTimings, ClientOptions, RecordTuning, SessionVersion},
    session::{self, PeerChecks},
    stopwatch::Stopwatch,
};
#[cfg(feature = "native")]
use crate::{
    batch::QuoteBatcher,
    identity::{Identity, IdentityOptions},
    options::ClientEvidence,
    renewal::IdentityRenewer,
    session_attester::SessionAttester,
};

/// Connects to attested servers.
///
/// Only the key of the certificate is used: it has to sign the handshake. The evidence decides
/// everything else.
pub struct Client<A: Appraise> {
    appraiser: Arc<A>,
    config: ClientConfig,
    #[cfg(feature = "native")]
    evidence: Option<ClientAttester>,
    options: ClientOptions,
    tuning: RecordTuning,
}

impl<A: Appraise> Client<A> {
    /// A client for servers with key or session binding.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] for [`Binding::None`], which has no evidence to appraise.
    #[cfg(feature = "native")]
    pub fn new(options: ClientOptions, appraiser: Arc<A>) -> Result<Self, ChannelError> {
        Self::with_provider(options, appraiser, handshake::crypto_provider())
    }

    /// A client as [`Client::new`] makes it, with the cryptography of `provider`. Without the feature
    /// `native` this is the only one, and the caller ends a call at its deadline by dropping it.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] for [`Binding::None`], [`ChannelError::Tls`] if the provider has
    /// nothing for TLS 1.3.
    pub fn with_provider(
        options: ClientOptions,
        appraiser: Arc<A>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ChannelError> {
        if options.binding == Binding::None {
            return Err(ChannelError::Binding { call: "Client", wanted: "key or session" });
        }
        let config = handshake::attested_client_config(options.binding, provider)?;
        Ok(Self {
            appraiser,
            config,
            #[cfg(feature = "native")]
            evidence: None,
            options,
            tuning: RecordTuning::default(),
        })
    }

    /// Returns the client, which can now also attest if the server demands it (session binding
    /// only).
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding, [`ChannelError::Identity`] or
    /// [`ChannelError::OwnClaims`] if the key or the claims cannot be made.
    #[cfg(feature = "native")]
    pub fn with_evidence(mut self, evidence: ClientEvidence) -> Result<Self, ChannelError> {
        if self.options.binding != Binding::Session {
            return Err(ChannelError::Binding { call: "client evidence", wanted: "session" });
        }
        self.evidence = Some(ClientAttester::new(evidence)?);
        Ok(self)
    }

    /// Returns the client that offers only these versions of the session exchange; the server chooses
    /// among them. By default it offers all.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding, [`ChannelError::Option`] for no version.
    pub fn with_session_versions(
        mut self,
        versions: &[SessionVersion],
    ) -> Result<Self, ChannelError> {
        handshake::check_session_versions(self.options.binding, versions)?;
        self.config.alpn_protocols = handshake::session_alpn(versions);
        Ok(self)
    }

    /// Returns the client with other record sizes.
    pub fn with_tuning(mut self, tuning: RecordTuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Takes an open byte stream through handshake, evidence and appraisal. `name` is sent as the
    /// server name, and is not a reason to trust the server.
    ///
    /// The appraiser runs on the calling task: appraisal is computation of under a millisecond.
    ///
    /// # Errors
    /// [`ChannelError::ServerName`] for a name that cannot be sent, [`ChannelError::Timeout`],
    /// [`ChannelError::Io`] or [`ChannelError::Tls`] if the connection fails,
    /// [`ChannelError::NoEvidence`], [`ChannelError::Rejected`] and similar errors if the server's
    /// evidence is missing, unreadable, of another connection or not accepted.
    /// [`ChannelError::origin`] names the end that caused the error.
    pub async fn connect<S>(
        &self,
        name: &str,
        io: S,
    ) -> Result<AttestedServerStream<S, A::Appraised>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        self.connect_with_tuning(name, io, self.tuning).await
    }

    pub(crate) async fn connect_with_tuning<S>(
        &self,
        name: &str,
        io: S,
        tuning: RecordTuning,
    ) -> Result<AttestedServerStream<S, A::Appraised>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let deadline = Deadline::after(self.options.deadline);
        let began = Stopwatch::start();
        let (config, attesting) = self.config_and_attester(deadline).await?;
        let quote = began.read();
        let (mut stream, mut timings) =
            handshake(config, self.options.binding, name, io, deadline, tuning).await?;
        timings.quote = quote;
        let algorithms = self.config.crypto_provider().signature_verification_algorithms;
        let result = match self.options.binding {
            Binding::Session => {
                let demand = PeerChecks { appraiser: &*self.appraiser, algorithms };
                let demand = Some(&demand);
                session::exchange_as_client(&mut stream, attesting.as_ref(), demand, deadline).await
            }
            _ => session::appraise_certificate(&stream, &*self.appraiser),
        };
        match result.and_then(|outcome| {
            let appraised = outcome.appraised.ok_or(ChannelError::NoEvidence)?;
            timings.appraisal = outcome.appraisal;
            timings.batch = outcome.batch;
            timings.quote += outcome.quote;
            timings.round_trips += outcome.round_trips;
            let live = match self.options.binding {
                Binding::Session => {
                    Some(LivePeer::from_stream(&stream, attesting.as_ref(), algorithms)?)
                }
                _ => None,
            };
            Ok((appraised, live))
        }) {
            Ok((appraised, live)) => Ok(AttestedServerStream { stream, appraised, timings, live }),
            Err(error) => {
                // An orderly close shows the server an end of stream, not a broken one; its failure
                // is ignored.
                let _ = deadline.limit_io(ChannelPhase::Evidence, stream.shutdown()).await;
                match handshake::is_missing_certificate(&error) {
                    true => Err(ChannelError::NoAttester { binding: "session" }),
                    false => Err(error),
                }
            }
        }
    }

    /// The TLS configuration of one connection, and the attester of this end if it attests.
    #[cfg(feature = "native")]
    async fn config_and_attester(
        &self,
        deadline: Deadline,
    ) -> Result<(ClientConfig, Option<SessionAttester>), ChannelError> {
        let mut config = self.config.clone();
        let Some(evidence) = &self.evidence else { return Ok((config, None)) };
        let attesting = evidence.current_attester(deadline).await?;
        present_identity(&mut config, &attesting.identity);
        Ok((config, Some(attesting)))
    }

    #[cfg(not(feature = "native"))]
    async fn config_and_attester(
        &self,
        _deadline: Deadline,
    ) -> Result<(ClientConfig, Option<SessionAttester>), ChannelError> {
        Ok((self.config.clone(), None))
    }
}

/// Runs the handshake of every client, and measures its part of the timings.
pub(crate) async fn handshake<S>(
    mut config: ClientConfig,
    binding: Binding,
    name: &str,
    io: S,
    deadline: Deadline,
    tuning: RecordTuning,
) -> Result<(TlsStream<S>, ChannelTimings), ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let unusable = |_| ChannelError::ServerName { name: name.into() };
    let name = ServerName::try_from(name.to_owned()).map_err(unusable)?;
    config.max_fragment_size = tuning.fragment_size();
    let began = Stopwatch::start();
    let shake = TlsConnector::from(Arc::new(config)).connect(name, io);
    let shaken = deadline.limit(ChannelPhase::Handshake, shake).await?;
    let mut stream = shaken.map_err(handshake::handshake_error)?;
    let session = stream.get_mut().1;
    session.set_buffer_limit(Some(tuning.write_bytes));
    handshake::check_alpn(session.alpn_protocol(), binding)?;
    let timings = ChannelTimings {
        handshake: began.read(),
        round_trips: handshake::handshake_round_trips(session.handshake_kind()),
        ..ChannelTimings::default()
    };
    Ok((stream, timings))
}

#[cfg(feature = "native")]
/// The means by which a client attests: its key and claims, and the queue in front of its attester.
pub(crate) struct ClientAttester {
    batcher: QuoteBatcher,
    identities: IdentityRenewer,
}

#[cfg(feature = "native")]
impl ClientAttester {
    pub(crate) fn new(evidence: ClientEvidence) -> Result<Self, ChannelError> {
        let options = IdentityOptions {
            attester: Some(evidence.attester.clone()),
            binding: Binding::Session,
            config_digest: evidence.config_digest,
            guarantee: evidence.guarantee,
            names: Vec::new(),
            validity: evidence.key_validity,
            weights: None,
        };
        let identities = IdentityRenewer::new(options, evidence.clock)?;
        Ok(Self { batcher: QuoteBatcher::new(evidence.attester), identities })
    }

    pub(crate) async fn current_attester(
        &self,
        deadline: Deadline,
    ) -> Result<SessionAttester, ChannelError> {
        let identity = self.identities.valid_identity(deadline).await?;
        Ok(SessionAttester { batcher: self.batcher.clone(), identity })
    }
}

#[cfg(feature = "native")]
/// Presents an identity's certificate if the server asks for one.
pub(crate) fn present_identity(config: &mut ClientConfig, identity: &Identity) {
    let certified = identity.certified.clone();
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
}

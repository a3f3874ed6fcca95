//! The end that accepts connections and presents evidence.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use confide_evidence::{Appraise, Attest, PresentedEvidence};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::ProducesTickets,
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    attested::AttestedClientStream,
    batch::QuoteBatcher,
    deadline::Deadline,
    document_key::DocumentKey,
    error::{ChannelError, ChannelPhase},
    handshake::{self, KeyPossessionVerifier},
    identity::{Identity, IdentityOptions, KeyIdentity},
    live::LiveSession,
    options::{Binding, ChannelTimings, RecordTuning, ServerOptions, SessionVersion},
    renewal::IdentityRenewer,
    session::{self, ExchangeOutcome, PeerChecks},
    session_attester::SessionAttester,
};

/// The tickets that each full handshake gives: a client with several connections resumes each of them
/// with a ticket of its own, so that observers cannot link them.
const TICKETS: usize = 2;

/// Accepts TLS 1.3 connections and presents evidence as its binding demands.
pub struct Server {
    configs: RwLock<Arc<IdentityConfigs>>,
    identities: IdentityRenewer,
    options: ServerOptions,
    batcher: Option<QuoteBatcher>,
    tuning: RecordTuning,
    extras: TlsExtras,
    client_appraiser: Option<ClientAppraiser>,
}

/// The appraiser of a server's clients, without the type of its results.
struct ClientAppraiser(Box<AppraiseClient>);

type AppraiseClient = dyn Fn(&PresentedEvidence<'_>) -> Result<(), ClientRejection> + Send + Sync;

/// The reason why a client's evidence was not accepted.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct ClientRejection(Box<dyn std::error::Error + Send + Sync>);

impl Appraise for ClientAppraiser {
    type Appraised = ();
    type Rejection = ClientRejection;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<(), ClientRejection> {
        self.0(presented)
    }
}

/// The offers of a server beyond the defaults.
#[derive(Clone, Default)]
struct TlsExtras {
    offers_http2: bool,
    /// The versions of the session exchange, the preferred one first; empty for the default.
    session_versions: Vec<SessionVersion>,
    /// Makes and opens session tickets; `None` if no session is resumed.
    ticketer: Option<Arc<dyn ProducesTickets>>,
}

/// The TLS configurations for one identity and one record size, which its connections share.
struct IdentityConfigs {
    identity: Arc<Identity>,
    /// The configuration for clients that are not asked for evidence.
    without_client_evidence: Arc<ServerConfig>,
    /// The configuration for clients that are asked for evidence, and so for a certificate.
    with_client_evidence: Arc<ServerConfig>,
}

impl IdentityConfigs {
    fn build(
        binding: Binding,
        identity: Arc<Identity>,
        tuning: RecordTuning,
        extras: &TlsExtras,
    ) -> Result<Self, ChannelError> {
        let served = Arc::new(SingleCertAndKey::from(identity.certified.clone()));
        let verifier = Arc::new(KeyPossessionVerifier { provider: handshake::crypto_provider() });
        let mut without_client_evidence = handshake::server_config(binding, None, served.clone())?;
        let mut with_client_evidence = handshake::server_config(binding, Some(verifier), served)?;
        for config in [&mut without_client_evidence, &mut with_client_evidence] {
            config.max_fragment_size = tuning.fragment_size();
            if extras.offers_http2 {
                config.alpn_protocols.insert(0, handshake::HTTP_2.to_vec());
            }
            if !extras.session_versions.is_empty() {
                config.alpn_protocols = handshake::session_alpn(&extras.session_versions);
            }
            if let Some(ticketer) = &extras.ticketer {
                config.ticketer = ticketer.clone();
                config.send_tls13_tickets = TICKETS;
            }
        }
        Ok(Self {
            identity,
            without_client_evidence: Arc::new(without_client_evidence),
            with_client_evidence: Arc::new(with_client_evidence),
        })
    }

    fn matches(&self, identity: &Arc<Identity>, tuning: RecordTuning) -> bool {
        Arc::ptr_eq(&self.identity, identity)
            && self.without_client_evidence.max_fragment_size == tuning.fragment_size()
    }
}

/// An open stream to a client, and the time that it took to open.
#[derive(Debug)]
pub struct ServerStream<S> {
    /// Carries application bytes from here on.
    pub stream: TlsStream<S>,
    /// The time that each step took.
    pub timings: ChannelTimings,
    /// Gives the client fresh evidence while the session is open; `None` without session binding, and
    /// if the server presents no evidence.
    pub live: Option<LiveSession>,
}

impl<S> ServerStream<S> {
    /// Whether both ends agreed on HTTP/2; otherwise the stream carries HTTP/1.1.
    pub fn is_http2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(handshake::HTTP_2)
    }
}

impl Server {
    /// Makes the key and the certificate; with key binding this also obtains a quote, on the
    /// calling thread. `clock` returns Unix seconds. [`Binding::None`] needs no attester.
    ///
    /// # Errors
    /// [`ChannelError::Option`] for a validity below one second, [`ChannelError::NoAttester`] if
    /// the binding needs evidence and there is no attester, and the other errors of making the
    /// first key ([`ErrorOrigin::Local`](crate::ErrorOrigin::Local)).
    pub fn new(
        options: ServerOptions,
        attester: Option<Arc<dyn Attest>>,
        clock: fn() -> u64,
    ) -> Result<Server, ChannelError> {
        check_key_validity(&options)?;
        if options.binding != Binding::None && attester.is_none() {
            return Err(ChannelError::NoAttester { binding: options.binding.name() });
        }
        let identities = IdentityRenewer::new(identity_options(&options, attester), clock)?;
        Self::build(options, identities)
    }

    /// A server with session binding that presents no evidence and demands the client's in
    /// [`Server::accept_attested`]. A client that asks for evidence is refused.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding, [`ChannelError::Option`] and
    /// [`ChannelError::Identity`] as [`Server::new`].
    pub fn without_evidence(
        options: ServerOptions,
        clock: fn() -> u64,
    ) -> Result<Server, ChannelError> {
        check_key_validity(&options)?;
        if options.binding != Binding::Session {
            let call = "a server without evidence";
            return Err(ChannelError::Binding { call, wanted: "session" });
        }
        // Clients authenticate this server by its certificate, so it is not renewed.
        let plain = ServerOptions { binding: Binding::None, ..options.clone() };
        let identities = IdentityRenewer::new(identity_options(&plain, None), clock)?;
        Self::build(options, identities)
    }

    /// A server of ordinary TLS with a given certificate ([`Binding::None`] only).
    ///
    /// # Errors
    /// [`ChannelError::Option`] as [`Server::new`], [`ChannelError::Binding`] if the binding is
    /// not [`Binding::None`], [`ChannelError::Tls`] if certificate and key cannot be used.
    pub fn with_certificate(
        options: ServerOptions,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Server, ChannelError> {
        check_key_validity(&options)?;
        if options.binding != Binding::None {
            return Err(ChannelError::Binding { call: "a given certificate", wanted: "none" });
        }
        let certified = CertifiedKey::from_der(chain, key, &handshake::crypto_provider());
        let identity = Identity::from_certified_key(certified.map_err(ChannelError::Tls)?);
        let identities = IdentityRenewer::with_identity(identity_options(&options, None), identity);
        Self::build(options, identities)
    }

    /// Returns the server that also offers HTTP/2 and prefers it to HTTP/1.1, which alone is offered
    /// by default. [`ServerStream::is_http2`] names the agreed version.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] with session binding, whose ALPN names imply HTTP/1.1.
    pub fn with_http2(mut self) -> Result<Self, ChannelError> {
        if self.options.binding == Binding::Session {
            return Err(ChannelError::Binding { call: "HTTP/2", wanted: "none or key" });
        }
        self.extras.offers_http2 = true;
        self.rebuild_configs()
    }

    /// Returns the server that offers only these versions of the session exchange, the preferred one
    /// first. By default it offers all.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding, [`ChannelError::Option`] for no version.
    pub fn with_session_versions(
        mut self,
        versions: &[SessionVersion],
    ) -> Result<Self, ChannelError> {
        handshake::check_session_versions(self.options.binding, versions)?;
        self.extras.session_versions = versions.to_vec();
        self.rebuild_configs()
    }

    /// Returns the server that also sends session tickets, with which clients resume their sessions
    /// without its certificate (RFC 8446 section 4.6.1). Early data is never accepted, the keys of
    /// the tickets stay in memory and change every six hours, and a resumed session has a key
    /// exchange of its own.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] if the binding is not [`Binding::None`], because a resumed session
    /// would carry an old verdict into a new connection. [`ChannelError::Tls`] if no key can be made.
    pub fn with_session_tickets(mut self) -> Result<Self, ChannelError> {
        if self.options.binding != Binding::None {
            return Err(ChannelError::Binding { call: "session tickets", wanted: "none" });
        }
        self.extras.ticketer = Some(aws_lc_rs::Ticketer::new().map_err(ChannelError::Tls)?);
        self.rebuild_configs()
    }

    /// Returns the server, which now refuses clients whose evidence `appraiser` does not accept
    /// (session binding only). [`Server::accept_attested`] has an appraiser of its own.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding.
    pub fn with_client_appraiser<A>(mut self, appraiser: A) -> Result<Self, ChannelError>
    where
        A: Appraise + 'static,
    {
        if self.options.binding != Binding::Session {
            return Err(ChannelError::Binding { call: "appraising clients", wanted: "session" });
        }
        self.client_appraiser = Some(ClientAppraiser(Box::new(move |presented| {
            let appraised = appraiser.appraise(presented);
            appraised.map(|_| ()).map_err(|rejection| ClientRejection(Box::new(rejection)))
        })));
        Ok(self)
    }

    /// Returns the server with other record sizes.
    pub fn with_tuning(mut self, tuning: RecordTuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Returns the server with another batcher, which other servers of the device may share.
    /// Session binding only; the batcher's attester makes the server's evidence.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] if the server has another binding or presents no evidence.
    pub fn with_batcher(mut self, batcher: QuoteBatcher) -> Result<Self, ChannelError> {
        if self.options.binding != Binding::Session || self.batcher.is_none() {
            let call = "a batcher";
            return Err(ChannelError::Binding { call, wanted: "session, with evidence" });
        }
        self.batcher = Some(batcher);
        Ok(self)
    }

    /// The queue in front of the attester; `None` if the server presents no evidence.
    pub fn batcher(&self) -> Option<&QuoteBatcher> {
        self.batcher.as_ref()
    }

    /// The current certificate, in DER. With [`Binding::None`] clients pin it as their root.
    pub fn certificate_der(&self) -> Vec<u8> {
        let identity = self.identities.current();
        identity.certificate().map(|certificate| certificate.to_vec()).unwrap_or_default()
    }

    /// The Unix time in seconds at which the current key expires; `None` for a given certificate,
    /// which is never renewed.
    pub fn key_not_after(&self) -> Option<u64> {
        let not_after = self.identities.current().not_after;
        (not_after != u64::MAX).then_some(not_after)
    }

    /// The key as it would leak from the TEE.
    #[cfg(test)]
    pub(crate) fn leak_key(&self) -> Arc<CertifiedKey> {
        self.identities.current().certified.clone()
    }

    /// The current key and its expiry.
    pub fn key_identity(&self) -> KeyIdentity {
        self.identities.current().key_identity()
    }

    /// The current key with its certificate, for documents that it signs.
    pub fn document_key(&self) -> DocumentKey {
        DocumentKey::new(self.identities.current())
    }

    /// Starts a renewal of the key if the attester has other collateral than the certificate, so that
    /// clients need not wait for the key's end (key binding only). To be called at intervals, inside
    /// a runtime.
    pub fn renew_for_new_collateral(&self) {
        self.identities.renew_for_new_collateral();
    }

    /// Starts a renewal of the key if two thirds of its validity are over, which the next connection
    /// would do otherwise. To be called at intervals, inside a runtime.
    pub fn renew_if_due(&self) {
        self.identities.renew_if_due();
    }

    /// The number of renewals of the key that have failed since the start. While the current key is
    /// valid it is still used; after it expires connections fail with [`ChannelError::KeyEnded`].
    pub fn renewal_failures(&self) -> u64 {
        self.identities.failure_count()
    }

    /// Takes an open byte stream through the handshake and, with session binding, through the
    /// exchange. One deadline covers both.
    ///
    /// # Errors
    /// [`ChannelError::NoAttester`] with session binding and no attester,
    /// [`ChannelError::KeyEnded`] if the key could not be renewed, [`ChannelError::Timeout`],
    /// [`ChannelError::Io`] or [`ChannelError::Tls`] if the connection fails, and an error of
    /// [`ErrorOrigin::Peer`](crate::ErrorOrigin::Peer) if the client breaks the protocol.
    pub async fn accept<S>(&self, io: S) -> Result<ServerStream<S>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        self.accept_with_tuning(io, self.tuning).await
    }

    /// Accepts as [`Server::accept`] does, and appraises the client's evidence before it returns
    /// the stream (session binding only).
    ///
    /// # Errors
    /// Those of [`Server::accept`], [`ChannelError::Binding`] without session binding,
    /// [`ChannelError::NoEvidence`], [`ChannelError::Rejected`] and similar errors if the client's
    /// evidence is missing, unreadable, of another connection or not accepted.
    pub async fn accept_attested<S, A>(
        &self,
        appraiser: &A,
        io: S,
    ) -> Result<AttestedClientStream<S, A::Appraised>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        A: Appraise,
    {
        if self.options.binding != Binding::Session {
            let call = "appraising clients";
            return Err(ChannelError::Binding { call, wanted: "session" });
        }
        let (ServerStream { stream, timings, .. }, appraised) =
            self.open_connection(io, Some(appraiser), self.tuning).await?;
        let appraised = appraised.ok_or(ChannelError::NoEvidence)?;
        Ok(AttestedClientStream { stream, appraised, timings })
    }

    pub(crate) async fn accept_with_tuning<S>(
        &self,
        io: S,
        tuning: RecordTuning,
    ) -> Result<ServerStream<S>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let demand = self.client_appraiser.as_ref();
        let is_attested = self.identities.options().attester.is_some() || demand.is_some();
        // Without evidence on either side this session would only seem attested.
        if self.options.binding == Binding::Session && !is_attested {
            return Err(ChannelError::NoAttester { binding: "session" });
        }
        Ok(self.open_connection(io, demand, tuning).await?.0)
    }

    fn build(options: ServerOptions, identities: IdentityRenewer) -> Result<Server, ChannelError> {
        let tuning = RecordTuning::default();
        let (binding, extras) = (options.binding, TlsExtras::default());
        let configs = IdentityConfigs::build(binding, identities.current(), tuning, &extras)?;
        let configs = RwLock::new(Arc::new(configs));
        let batcher = identities.options().attester.clone().map(QuoteBatcher::new);
        let client_appraiser = None;
        Ok(Server { configs, identities, options, batcher, tuning, extras, client_appraiser })
    }

    fn rebuild_configs(mut self) -> Result<Self, ChannelError> {
        let (binding, identity) = (self.options.binding, self.identities.current());
        let configs = IdentityConfigs::build(binding, identity, self.tuning, &self.extras)?;
        self.configs = RwLock::new(Arc::new(configs));
        Ok(self)
    }

    /// The configurations for `identity`; they are rebuilt after a renewal, and for another record
    /// size.
    fn configs_for(
        &self,
        identity: &Arc<Identity>,
        tuning: RecordTuning,
    ) -> Result<Arc<IdentityConfigs>, ChannelError> {
        let current = self.configs.read().unwrap_or_else(PoisonError::into_inner).clone();
        if current.matches(identity, tuning) {
            return Ok(current);
        }
        let (binding, identity) = (self.options.binding, identity.clone());
        let built = IdentityConfigs::build(binding, identity, tuning, &self.extras)?;
        let built = Arc::new(built);
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = built.clone();
        Ok(built)
    }

    async fn open_connection<S, A>(
        &self,
        io: S,
        demand: Option<&A>,
        tuning: RecordTuning,
    ) -> Result<(ServerStream<S>, Option<A::Appraised>), ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        A: Appraise,
    {
        let deadline = Deadline::after(self.options.deadline);
        let began = Instant::now();
        let identity = self.identities.valid_identity(deadline).await?;
        let quote = began.elapsed();
        let began = Instant::now();
        let configs = self.configs_for(&identity, tuning)?;
        let config = if demand.is_some() {
            &configs.with_client_evidence
        } else {
            &configs.without_client_evidence
        };
        let shake = TlsAcceptor::from(config.clone()).accept(io);
        let shaken = deadline.limit(ChannelPhase::Handshake, shake).await?;
        let mut stream = shaken.map_err(handshake::handshake_error)?;
        let session = stream.get_mut().1;
        session.set_buffer_limit(Some(tuning.write_bytes));
        handshake::check_alpn(session.alpn_protocol(), self.options.binding)?;
        let mut timings = ChannelTimings {
            handshake: began.elapsed(),
            quote,
            round_trips: handshake::handshake_round_trips(session.handshake_kind()),
            ..ChannelTimings::default()
        };
        if self.options.binding != Binding::Session {
            return Ok((ServerStream { stream, timings, live: None }, None));
        }
        let attesting = self.batcher.clone().map(|batcher| SessionAttester { batcher, identity });
        let checks = demand.map(|appraiser| {
            let algorithms = handshake::crypto_provider().signature_verification_algorithms;
            PeerChecks { appraiser, algorithms }
        });
        let ExchangeOutcome { appraised, appraisal, batch, context, quote, round_trips } =
            session::exchange_as_server(&mut stream, attesting.as_ref(), checks.as_ref(), deadline)
                .await?;
        timings.batch = batch;
        timings.appraisal = appraisal;
        timings.quote += quote;
        timings.round_trips += round_trips;
        let live = attesting.map(|attesting| LiveSession::from_stream(&stream, attesting, context));
        Ok((ServerStream { stream, timings, live: live.transpose()? }, appraised))
    }
}

fn check_key_validity(options: &ServerOptions) -> Result<(), ChannelError> {
    let seconds = options.key_validity.as_secs();
    if options.binding != Binding::None && seconds == 0 {
        let (option, wanted) = ("key_validity", "at least 1 s");
        return Err(ChannelError::Option { option, wanted, got: format!("{seconds} s") });
    }
    Ok(())
}

fn identity_options(options: &ServerOptions, attester: Option<Arc<dyn Attest>>) -> IdentityOptions {
    IdentityOptions {
        attester,
        binding: options.binding,
        config_digest: options.config_digest,
        guarantee: options.guarantee.clone(),
        names: options.names.clone(),
        validity: match options.binding {
            Binding::None => crate::identity::PLAIN_VALIDITY,
            _ => options.key_validity,
        },
        weights: options.weights.clone(),
    }
}

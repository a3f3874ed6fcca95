//! The end that accepts connections and shows evidence.

use std::{sync::Arc, time::Instant};

use confide_evidence::{Appraise, Attest};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    attested::AttestedClient,
    batch::Batcher,
    deadline::Deadline,
    error::{ChannelError, Phase},
    handshake::{self, KeyPossessionVerifier},
    identity::{Identity, IdentityOptions},
    options::{Binding, ServerOptions, Timings, Tuning},
    renewal::Identities,
    session::{self, ExchangeOutcome, NoAppraiser, SessionAttester},
};

/// Accepts TLS 1.3 connections and shows evidence as its binding demands.
pub struct Server {
    /// The configuration for clients that are not asked for evidence.
    config: ServerConfig,
    /// The configuration for clients that are asked for evidence, and so for a certificate.
    config_asking: ServerConfig,
    identities: Identities,
    options: ServerOptions,
    batcher: Option<Batcher>,
    tuning: Tuning,
}

/// An open stream to a client, and the time that it took to open.
#[derive(Debug)]
pub struct AcceptedConnection<S> {
    /// Carries application bytes from here on.
    pub stream: TlsStream<S>,
    /// The time that each step took.
    pub timings: Timings,
}

impl Server {
    /// Makes the key and the certificate; with key binding the attester is asked here, on the
    /// calling thread. `clock` gives Unix seconds. Without binding no attester is needed.
    ///
    /// # Errors
    /// [`ChannelError::Option`] for a validity below one second, [`ChannelError::NoAttester`] if
    /// the binding needs evidence and there is no attester, and what else can go wrong in making
    /// the first key ([`Fault::Local`](crate::Fault::Local)).
    pub fn new(
        options: ServerOptions,
        attester: Option<Arc<dyn Attest>>,
        clock: fn() -> u64,
    ) -> Result<Server, ChannelError> {
        check(&options)?;
        if options.binding != Binding::None && attester.is_none() {
            return Err(ChannelError::NoAttester { binding: options.binding.name() });
        }
        let identities = Identities::new(identity_options(&options, attester), clock)?;
        Self::build(options, identities)
    }

    /// Session binding the other way round: this end shows no evidence and demands the client's
    /// in [`Server::accept_attested`]. A client that asks for evidence is refused.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding, [`ChannelError::Option`] and
    /// [`ChannelError::Identity`] as [`Server::new`].
    pub fn without_evidence(
        options: ServerOptions,
        clock: fn() -> u64,
    ) -> Result<Server, ChannelError> {
        check(&options)?;
        if options.binding != Binding::Session {
            let call = "a server without evidence";
            return Err(ChannelError::Binding { call, wanted: "session" });
        }
        // Clients believe this server by its certificate, so it keeps its certificate as an
        // ordinary server does.
        let plain = ServerOptions { binding: Binding::None, ..options.clone() };
        let identities = Identities::new(identity_options(&plain, None), clock)?;
        Self::build(options, identities)
    }

    /// Ordinary TLS with a certificate from elsewhere ([`Binding::None`] only).
    ///
    /// # Errors
    /// [`ChannelError::Option`] as [`Server::new`], [`ChannelError::Binding`] if the binding is
    /// not [`Binding::None`], [`ChannelError::Tls`] if certificate and key cannot be used.
    pub fn with_certificate(
        options: ServerOptions,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Server, ChannelError> {
        check(&options)?;
        if options.binding != Binding::None {
            return Err(ChannelError::Binding { call: "a given certificate", wanted: "none" });
        }
        let certified = CertifiedKey::from_der(chain, key, &handshake::provider());
        let identity = Identity::from_certified_key(certified.map_err(ChannelError::Tls)?);
        let identities = Identities::with_identity(identity_options(&options, None), identity);
        Self::build(options, identities)
    }

    /// The same server with other record sizes.
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// The same server with a batcher that it shares with other servers of the same device, or
    /// whose limits are others. Session binding only; the batcher's attester makes its evidence.
    ///
    /// # Errors
    /// [`ChannelError::Binding`] without session binding or without evidence of its own.
    pub fn with_batcher(mut self, batcher: Batcher) -> Result<Self, ChannelError> {
        if self.options.binding != Binding::Session || self.batcher.is_none() {
            let call = "a batcher";
            return Err(ChannelError::Binding { call, wanted: "session, with evidence" });
        }
        self.batcher = Some(batcher);
        Ok(self)
    }

    /// The queue in front of the attester, where there is one.
    pub fn batcher(&self) -> Option<&Batcher> {
        self.batcher.as_ref()
    }

    /// The certificate that is served now, in DER. Without binding clients pin it as their root.
    pub fn certificate_der(&self) -> Vec<u8> {
        let identity = self.identities.current();
        identity.certificate().map(|certificate| certificate.to_vec()).unwrap_or_default()
    }

    /// The number of renewals of the key that have failed since the start. While the present key is
    /// valid it is still served; after its end connections fail with [`ChannelError::KeyEnded`].
    pub fn renewal_failures(&self) -> u64 {
        self.identities.failures()
    }

    /// Takes an open byte stream through the handshake and, with session binding, through the
    /// exchange. One deadline for all of it.
    ///
    /// # Errors
    /// [`ChannelError::NoAttester`] with session binding and no attester,
    /// [`ChannelError::KeyEnded`] if the key could not be renewed, [`ChannelError::Timeout`],
    /// [`ChannelError::Io`] or [`ChannelError::Tls`] if the connection fails, and what the
    /// client breaks of the protocol.
    pub async fn accept<S>(&self, io: S) -> Result<AcceptedConnection<S>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        self.accept_with_tuning(io, self.tuning).await
    }

    /// As [`Server::accept`], and appraises the client's evidence before the stream is handed out
    /// (session binding only).
    ///
    /// # Errors
    /// As [`Server::accept`]; besides, [`ChannelError::Binding`] without session binding,
    /// [`ChannelError::NoEvidence`], [`ChannelError::Rejected`] and the like where the client's
    /// evidence is missing, unreadable, of another connection or not accepted.
    pub async fn accept_attested<S, A>(
        &self,
        appraiser: &A,
        io: S,
    ) -> Result<AttestedClient<S, A::Appraised>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        A: Appraise,
    {
        if self.options.binding != Binding::Session {
            let call = "appraising clients";
            return Err(ChannelError::Binding { call, wanted: "session" });
        }
        let (stream, timings, appraised) = self.open(io, Some(appraiser), self.tuning).await?;
        let appraised = appraised.ok_or(ChannelError::NoEvidence)?;
        Ok(AttestedClient { stream, appraised, timings })
    }

    pub(crate) async fn accept_with_tuning<S>(
        &self,
        io: S,
        tuning: Tuning,
    ) -> Result<AcceptedConnection<S>, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        // Without evidence on either side this would be an ordinary session under a better name.
        if self.options.binding == Binding::Session && self.identities.options().attester.is_none()
        {
            return Err(ChannelError::NoAttester { binding: "session" });
        }
        let (stream, timings, _) = self.open::<S, NoAppraiser>(io, None, tuning).await?;
        Ok(AcceptedConnection { stream, timings })
    }

    fn build(options: ServerOptions, identities: Identities) -> Result<Server, ChannelError> {
        let served = Arc::new(SingleCertAndKey::from(identities.current().certified.clone()));
        let asking = Arc::new(KeyPossessionVerifier { provider: handshake::provider() });
        let binding = options.binding;
        let config = handshake::server_config(binding, None, served.clone())?;
        let config_asking = handshake::server_config(binding, Some(asking), served)?;
        let batcher = identities.options().attester.clone().map(Batcher::new);
        let tuning = Tuning::default();
        Ok(Server { config, config_asking, identities, options, batcher, tuning })
    }

    async fn open<S, A>(
        &self,
        io: S,
        demand: Option<&A>,
        tuning: Tuning,
    ) -> Result<(TlsStream<S>, Timings, Option<A::Appraised>), ChannelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        A: Appraise,
    {
        let deadline = Deadline::after(self.options.deadline);
        let began = Instant::now();
        let identity = self.identities.valid_identity(deadline).await?;
        let quote = began.elapsed();
        let began = Instant::now();
        let mut config = if demand.is_some() { &self.config_asking } else { &self.config }.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(identity.certified.clone()));
        config.max_fragment_size = tuning.fragment_size();
        let shake = TlsAcceptor::from(Arc::new(config)).accept(io);
        let shaken = deadline.keep(Phase::Handshake, shake).await?;
        let mut stream = shaken.map_err(handshake::handshake_error)?;
        let session = stream.get_mut().1;
        session.set_buffer_limit(Some(tuning.write_bytes));
        handshake::check_alpn(session.alpn_protocol(), self.options.binding)?;
        let mut timings = Timings {
            handshake: began.elapsed(),
            quote,
            round_trips: handshake::round_trips(session.handshake_kind()),
            ..Timings::default()
        };
        if self.options.binding != Binding::Session {
            return Ok((stream, timings, None));
        }
        let attesting = self.batcher.clone().map(|batcher| SessionAttester { batcher, identity });
        let ExchangeOutcome { appraised, appraisal, batch, quote, round_trips } =
            session::exchange_as_server(&mut stream, attesting.as_ref(), demand, deadline).await?;
        timings.batch = batch;
        timings.appraisal = appraisal;
        timings.quote += quote;
        timings.round_trips += round_trips;
        Ok((stream, timings, appraised))
    }
}

fn check(options: &ServerOptions) -> Result<(), ChannelError> {
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
    }
}

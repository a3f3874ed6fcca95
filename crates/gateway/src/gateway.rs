//! The gateway, composed of configuration, channel and proxy.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use confide_channel::{Binding, Server, ServerOptions};
use confide_evidence::{Appraise, Attest};
use confide_http::{Admission, AdmissionLimits, DrainOutcome, Listener};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{
    acceptor::ChannelAcceptor,
    access_log::AccessLog,
    authorizer::Authorizer,
    certificate_pem::encode_certificate,
    configuration::GatewayConfiguration,
    configuration_slot::ConfigurationSlot,
    configuration_version::ConfigurationVersion,
    encrypted_request::EncryptedRequests,
    error::GatewayError,
    limits::GatewayLimits,
    observation::Telemetry,
    proxy::Proxy,
    receipt_book::ReceiptBook,
    receipt_service::ReceiptService,
    receipt_signer::{ReceiptContext, ReceiptSigner},
    server_states::ServerStates,
};

/// Options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The configuration, which decides where prompts go. The bound claims contain its digest.
    pub configuration: GatewayConfiguration,
    /// The lifetime of a key with evidence; a new key replaces it before it expires.
    pub key_validity: Duration,
    /// Lengths, counts and deadlines.
    pub limits: GatewayLimits,
    /// The names and addresses in the certificate.
    pub names: Vec<String>,
    /// Whether clients of [`Binding::None`] get session tickets, with which they resume sessions. A
    /// session with evidence is never resumed.
    pub session_tickets: bool,
}

impl GatewayOptions {
    fn channel_options(&self) -> ServerOptions {
        ServerOptions {
            binding: self.configuration.binding,
            config_digest: self.configuration.digest(),
            guarantee: self.configuration.guarantee().to_owned(),
            key_validity: self.key_validity,
            deadline: self.limits.handshake,
            names: self.names.clone(),
            weights: self.configuration.weights_claim(),
        }
    }
}

/// Terminates the attested channel and proxies its requests.
pub struct Gateway {
    channel: Server,
    configuration: GatewayConfiguration,
    proxy: Proxy,
    limits: GatewayLimits,
    simulated: bool,
    access_log: Option<AccessLog>,
    authorizer: Option<Arc<Authorizer>>,
    telemetry: Option<Arc<Telemetry>>,
    attester: Option<Arc<dyn Attest>>,
    receipts: Option<Arc<ReceiptBook>>,
    encrypts_bodies: bool,
    admission: Admission,
}

impl Gateway {
    /// Makes the key and, with key binding, its evidence. This blocks while the device makes the
    /// evidence.
    ///
    /// `clock` returns Unix seconds. An attester is needed unless the binding is `None`.
    ///
    /// # Errors
    /// [`GatewayError`] if the configuration cannot be used, or key or evidence cannot be made.
    pub fn new(
        options: GatewayOptions,
        attester: Option<Arc<dyn Attest>>,
        clock: fn() -> u64,
    ) -> Result<Self, GatewayError> {
        options.configuration.check()?;
        options.configuration.check_upstream_roots()?;
        options.configuration.check_weights()?;
        let channel = Server::new(options.channel_options(), attester.clone(), clock)?;
        Self::with_channel(channel, options, attester, clock)
    }

    /// A gateway of ordinary TLS with a given certificate. `chain_pem` holds the certificate and
    /// those that lead to its root, `key_pem` its private key (RFC 7468). `clock` returns Unix
    /// seconds.
    ///
    /// # Errors
    /// [`GatewayError::Certificate`] if one of them has nothing usable, and [`GatewayError`] if the
    /// configuration cannot be used, has another binding than `None`, or key and certificate do
    /// not fit together.
    pub fn with_certificate(
        options: GatewayOptions,
        chain_pem: &[u8],
        key_pem: &[u8],
        clock: fn() -> u64,
    ) -> Result<Self, GatewayError> {
        options.configuration.check()?;
        options.configuration.check_upstream_roots()?;
        options.configuration.check_weights()?;
        let unusable = |part, got: String| GatewayError::Certificate { part, got };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable("certificate", error.to_string()))?;
        if chain.is_empty() {
            return Err(unusable("certificate", "none".into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| unusable("private key", error.to_string()))?;
        let channel = Server::with_certificate(options.channel_options(), chain, key)?;
        Self::with_channel(channel, options, None, clock)
    }

    fn with_channel(
        channel: Server,
        options: GatewayOptions,
        attester: Option<Arc<dyn Attest>>,
        clock: fn() -> u64,
    ) -> Result<Self, GatewayError> {
        let simulated = attester.as_ref().is_some_and(|attester| attester.is_simulated());
        // The ALPN names of session binding imply HTTP/1.1.
        let channel = match options.configuration.binding {
            Binding::None | Binding::Key => channel.with_http2()?,
            Binding::Session => channel,
        };
        let channel = match options.session_tickets {
            true => channel.with_session_tickets()?,
            false => channel,
        };
        Ok(Self {
            channel,
            proxy: Proxy::new(&options.configuration, simulated, options.limits)?.with_clock(clock),
            configuration: options.configuration,
            limits: options.limits,
            simulated,
            access_log: None,
            authorizer: None,
            telemetry: None,
            attester,
            receipts: None,
            encrypts_bodies: false,
            admission: Admission::new(AdmissionLimits::default()),
        })
    }

    /// Returns the gateway, which now writes a line to `log` for each answered request.
    pub fn with_access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Returns the gateway, which now serves only requests that `authorizer` allows. Several gateways
    /// may share one.
    pub fn with_authorizer(mut self, authorizer: Arc<Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// Returns the gateway, which now counts its requests and connections, and traces requests if
    /// `telemetry` has an exporter.
    pub fn with_telemetry(mut self, telemetry: Telemetry) -> Self {
        self.telemetry = Some(Arc::new(telemetry));
        self
    }

    /// Returns the gateway, which now signs a receipt for each answer of a model, and serves receipts
    /// and attestation reports below `/v1/aci/`, and their forms for verifiers of other projects.
    ///
    /// # Errors
    /// [`GatewayError::ReceiptsWithoutEvidence`] without evidence, which a receipt is believed for.
    pub fn with_receipts(mut self, book: Arc<ReceiptBook>) -> Result<Self, GatewayError> {
        if self.attester.is_none() || self.configuration.binding == Binding::None {
            return Err(GatewayError::ReceiptsWithoutEvidence);
        }
        self.receipts = Some(book);
        Ok(self)
    }

    /// Returns the gateway, which now also opens requests whose bodies are encrypted to a key of its
    /// keyset, and encrypts their answers.
    ///
    /// # Errors
    /// [`GatewayError::EncryptedBodiesWithoutReceipts`] without receipts, with which the keyset comes, and
    /// [`GatewayError::KeyedRoute`] for a route that selects the server by key: a request can be
    /// encrypted to the key of this gateway or to that of a server, and not to both.
    pub fn with_encrypted_bodies(mut self) -> Result<Self, GatewayError> {
        if self.receipts.is_none() {
            return Err(GatewayError::EncryptedBodiesWithoutReceipts);
        }
        if let Some(route) = self.configuration.routes.iter().find(|route| route.by_key_id) {
            let (route, got) = (route.path.clone(), "encrypted bodies of this gateway's".into());
            return Err(GatewayError::KeyedRoute { route, got });
        }
        self.encrypts_bodies = true;
        Ok(self)
    }

    /// Returns the gateway, which now refuses clients whose evidence `appraiser` does not accept.
    ///
    /// # Errors
    /// [`GatewayError::Channel`] without session binding.
    pub fn with_client_appraiser<A>(mut self, appraiser: A) -> Result<Self, GatewayError>
    where
        A: Appraise + 'static,
    {
        self.channel = self.channel.with_client_appraiser(appraiser)?;
        Ok(self)
    }

    /// Returns the gateway with other limits on connections, or with trusted proxies in front of
    /// it.
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// The current certificate, in DER.
    pub fn certificate_der(&self) -> Vec<u8> {
        self.channel.certificate_der()
    }

    /// The current certificate, in PEM (RFC 7468), for clients that pin it as their root.
    pub fn certificate_pem(&self) -> String {
        encode_certificate(&self.certificate_der())
    }

    /// The effective configuration.
    pub fn configuration(&self) -> &GatewayConfiguration {
        &self.configuration
    }

    /// The state of the model servers, which can be read while the gateway serves.
    pub fn server_states(&self) -> ServerStates {
        ServerStates::new(self.proxy.groups())
    }

    /// Whether the evidence comes from a simulated TEE.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The name of the binding: `none`, `key` or `session`.
    pub fn binding_name(&self) -> &'static str {
        self.configuration.binding.name()
    }

    /// Serves until `stop` resolves, then lets running answers end within the drain deadline.
    pub async fn serve(
        self,
        listener: impl Into<Listener>,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        ReloadableGateway::new(self).serve(listener, stop).await
    }

    fn into_version(self) -> ConfigurationVersion<ChannelAcceptor> {
        let (keeps_key_fresh, checks_keys) = (self.receipts.is_some(), self.authorizer.is_some());
        let proxy = self.proxy.with_access_log(self.access_log);
        let proxy = proxy.with_authorizer(self.authorizer).with_telemetry(self.telemetry.clone());
        let (channel, telemetry) = (Arc::new(self.channel), self.telemetry);
        let encrypts_bodies = self.encrypts_bodies;
        let receipts = self.receipts.zip(self.attester).map(|(book, attester)| {
            let server = channel.clone();
            let context = ReceiptContext {
                config_digest: self.configuration.digest(),
                weights: self.configuration.weights_claim(),
                is_direct: self
                    .configuration
                    .servers
                    .iter()
                    .all(|server| server.upstream.is_loopback()),
                checks_keys,
                encrypts_bodies,
                limits: self.limits,
            };
            let identity = Arc::new(move || server.key_identity());
            let signer = Arc::new(ReceiptSigner::new(book, identity, context));
            let server = channel.clone();
            let document_key = Arc::new(move || server.document_key());
            Arc::new(ReceiptService::new(signer, attester).with_document_key(document_key))
        });
        let signer = receipts.as_ref().filter(|_| encrypts_bodies).map(|it| it.signer().clone());
        let encrypted = signer.map(|signer| Arc::new(EncryptedRequests::new(signer)));
        let proxy = proxy.with_receipts(receipts, encrypted);
        let acceptor = ChannelAcceptor { channel, telemetry, keeps_key_fresh };
        ConfigurationVersion::new(Arc::new(acceptor), Arc::new(proxy), self.limits)
    }
}

/// A gateway whose configuration can be replaced while it serves.
pub struct ReloadableGateway {
    slot: Arc<ConfigurationSlot<ChannelAcceptor>>,
    admission: Admission,
    authorizer: Option<Arc<Authorizer>>,
}

impl ReloadableGateway {
    /// Prepares to serve `first`.
    pub fn new(first: Gateway) -> Self {
        let (admission, authorizer) = (first.admission.clone(), first.authorizer.clone());
        let slot = Arc::new(ConfigurationSlot::new(first.into_version()));
        Self { slot, admission, authorizer }
    }

    /// Serves new connections with `next`, whose limits on connections are ignored and whose
    /// authorizer has to be that of the first, so that its usage is written. An open
    /// connection keeps its configuration until its next answer has ended, or until it has been
    /// idle for as long as its limits allow; its client is then asked to connect anew. Must be
    /// called inside a runtime.
    pub fn replace(&self, next: Gateway) {
        self.slot.replace(next.into_version());
    }

    /// Serves until `stop` resolves, then lets running answers end within the drain deadline.
    pub async fn serve(
        &self,
        listener: impl Into<Listener>,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let authorizer = self.authorizer.as_ref();
        let serving = self.slot.clone().serve(listener.into(), self.admission.clone(), stop);
        let drained = tokio::select! {
            drained = serving => drained,
            never = write_usage_every_minute(authorizer) => match never {},
        };
        if let Some(authorizer) = authorizer {
            authorizer.write_usage();
        }
        drained
    }
}

/// Writes the usage of the authorizer, if there is one.
async fn write_usage_every_minute(authorizer: Option<&Arc<Authorizer>>) -> Infallible {
    match authorizer {
        Some(authorizer) => authorizer.clone().write_usage_every_minute().await,
        None => std::future::pending().await,
    }
}

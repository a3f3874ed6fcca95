//! The whole gateway: configuration, channel and proxy.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use confide_channel::{Server, ServerOptions};
use confide_evidence::Attest;
use confide_http::{Admission, AdmissionLimits, Drained};
use tokio::net::TcpListener;

use crate::{
    access_log::AccessLog, configuration::Configuration, error::GatewayError,
    limits::GatewayLimits, proxy::Proxy,
};

/// Everything that a gateway is made from.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The configuration, which decides where prompts go; its digest is in the bound claims.
    pub configuration: Configuration,
    /// The lifetime of a key with evidence, after which a new key takes its place.
    pub key_validity: Duration,
    /// Lengths, counts and deadlines.
    pub limits: GatewayLimits,
    /// The names and addresses in the certificate.
    pub names: Vec<String>,
}

/// Terminates the attested channel and proxies what comes through it.
pub struct Gateway {
    channel: Arc<Server>,
    configuration: Configuration,
    limits: GatewayLimits,
    simulated: bool,
    access_log: Option<AccessLog>,
    admission: Admission,
}

impl Gateway {
    /// Makes the key and, with key binding, the evidence for it, so this may take as long as the
    /// device does.
    ///
    /// `clock` gives Unix seconds. An attester is needed unless the binding is `None`.
    ///
    /// # Errors
    /// [`GatewayError`] if the configuration cannot be used, or key or evidence cannot be made.
    pub fn new(
        options: GatewayOptions,
        attester: Option<Arc<dyn Attest>>,
        clock: fn() -> u64,
    ) -> Result<Self, GatewayError> {
        let GatewayOptions { configuration, key_validity, limits, names } = options;
        configuration.check()?;
        let simulated = attester.as_ref().is_some_and(|attester| attester.is_simulated());
        let channel = Server::new(
            ServerOptions {
                binding: configuration.binding,
                config_digest: configuration.digest(),
                guarantee: configuration.guarantee().to_owned(),
                key_validity,
                deadline: limits.handshake,
                names,
            },
            attester,
            clock,
        )?;
        Ok(Self {
            channel: Arc::new(channel),
            configuration,
            limits,
            simulated,
            access_log: None,
            admission: Admission::new(AdmissionLimits::default()),
        })
    }

    /// The same gateway with a line in `log` for each answered request.
    pub fn with_access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// The same gateway with other limits on connections, or behind listed proxies.
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// The certificate that is served now, in DER.
    pub fn certificate_der(&self) -> Vec<u8> {
        self.channel.certificate_der()
    }

    /// The certificate that is served now, in PEM (RFC 7468), for clients that pin it as their
    /// root.
    pub fn certificate_pem(&self) -> String {
        let base64 = STANDARD.encode(self.certificate_der());
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in base64.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// The effective configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Whether the evidence is made by software that only imitates a TEE.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The name of the binding: `none`, `key` or `session`.
    pub fn binding_name(&self) -> &'static str {
        self.configuration.binding.name()
    }

    /// Serves until `stop` resolves, then lets running answers end within the drain deadline.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        let proxy = Proxy::new(&self.configuration, self.simulated, self.limits);
        let proxy = Arc::new(proxy.with_access_log(self.access_log));
        let channel = self.channel.clone();
        let Self { admission, limits, .. } = self;
        tokio::select! {
            drained = crate::serve::serve(listener, self.channel, proxy, limits, admission, stop) => {
                drained
            }
            never = warn_of_failed_renewals(&channel) => match never {},
        }
    }
}

/// The interval between two looks for a failed renewal: renewal starts at two thirds of a key's
/// life, long before its end.
const RENEWALS_SEEN_EVERY: Duration = Duration::from_secs(10);

/// Logs each failed renewal of the key: until the key ends, clients notice nothing.
async fn warn_of_failed_renewals(channel: &Server) -> Infallible {
    let mut seen = 0;
    loop {
        tokio::time::sleep(RENEWALS_SEEN_EVERY).await;
        let failures = channel.renewal_failures();
        if failures > seen {
            tracing::warn!(failures, "the key could not be renewed; it is served until it ends");
            seen = failures;
        }
    }
}

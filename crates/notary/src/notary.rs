//! The notary, assembled from its policy, channel, signing keys and exchanges.

use std::{future::Future, sync::Arc, time::Duration};

use confide_channel::{Binding, Server, ServerOptions};
use confide_evidence::{Appraise, Attest};
use confide_http::{Admission, AdmissionLimits, DrainOutcome};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::{
    error::NotaryError,
    exchange::ExchangeContext,
    exchange_slots::ExchangeSlots,
    key::{KeyOptions, SigningKeys},
    policy::{NotaryPolicy, ServerRoots},
    serve::{self, ClientLookup, NotaryState},
    upstream::Upstream,
};

/// The guarantee that the evidence claims about the data sent to a notary.
pub const GUARANTEE: &str = "the notary sees the plaintext, its operator does not";

/// The options of a notary.
#[derive(Clone, Debug)]
pub struct NotaryOptions {
    /// How evidence is tied to connections: `Key` or `Session`.
    pub binding: Binding,
    /// The time after which keys and their evidence are replaced: at least twice the longest
    /// exchange, because the key that a client has verified must sign its exchange.
    pub key_validity: Duration,
    /// The names and addresses in the certificate of the channel.
    pub names: Vec<String>,
    /// The policy, which lists the hosts. Its digest is in the bound claims.
    pub policy: NotaryPolicy,
    /// The trusted roots for the servers' certificates.
    pub roots: ServerRoots,
}

/// Opens TLS to named hosts and signs statements about the exchanges. Clients verify its evidence.
/// It serves every client unless [`Notary::with_client_lookup`] or [`Notary::with_client_appraiser`]
/// restricts it.
pub struct Notary {
    binding: Binding,
    config_digest: [u8; 32],
    shared: NotaryState,
    simulated: bool,
    admission: Admission,
}

impl Notary {
    /// Makes the keys and the evidence for them. Blocks while the attester works.
    ///
    /// `clock` returns Unix seconds; the servers' certificates are checked with it, and it is the
    /// time in statements.
    ///
    /// # Errors
    /// [`NotaryError`] if policy or roots cannot be used, or a key or its evidence cannot be made.
    pub fn new(
        options: NotaryOptions,
        attester: Arc<dyn Attest>,
        clock: fn() -> u64,
    ) -> Result<Self, NotaryError> {
        let NotaryOptions { binding, key_validity, names, policy, roots } = options;
        let limits = policy.limits();
        let simulated = attester.is_simulated();
        let configuration = policy.canonical_json(binding.name(), &roots)?;
        let config_digest = Sha256::digest(&configuration).into();
        let description = description_json(&configuration, &config_digest, simulated);
        let keys = SigningKeys::new(KeyOptions {
            attester: attester.clone(),
            clock,
            config_digest,
            guarantee: GUARANTEE.into(),
            // An exchange is signed with the key that its client has verified.
            reserve: limits.exchange + limits.write_stall,
            validity: key_validity,
        })?;
        let channel = Server::new(
            ServerOptions {
                binding,
                config_digest,
                guarantee: GUARANTEE.into(),
                key_validity,
                deadline: limits.handshake,
                names,
                weights: None,
            },
            Some(attester),
            clock,
        )?;
        let policy = Arc::new(policy);
        let upstream = Upstream::new(policy.clone(), &roots, clock).map_err(NotaryError::Tls)?;
        let slots = ExchangeSlots::new(limits.exchanges, limits.exchanges_per_client);
        let exchanges = Arc::new(ExchangeContext { clock, keys, policy, slots, upstream });
        let description = description.into();
        let shared = NotaryState { channel, find_client: None, description, exchanges, limits };
        let admission = Admission::new(AdmissionLimits::default());
        Ok(Self { binding, config_digest, shared, simulated, admission })
    }

    /// Sets other limits on connections, or a list of trusted proxies in front of the notary.
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Serves only the clients that `find_client` finds; every client can read the key's evidence.
    pub fn with_client_lookup(mut self, find_client: ClientLookup) -> Self {
        self.shared.find_client = Some(find_client);
        self
    }

    /// Refuses clients whose evidence `appraiser` does not accept.
    ///
    /// # Errors
    /// [`NotaryError::ClientBinding`] unless the notary uses session binding.
    pub fn with_client_appraiser<A>(mut self, appraiser: A) -> Result<Self, NotaryError>
    where
        A: Appraise + 'static,
    {
        if self.binding != Binding::Session {
            return Err(NotaryError::ClientBinding);
        }
        self.shared.channel = self.shared.channel.with_client_appraiser(appraiser)?;
        Ok(self)
    }

    /// SHA-256 of the effective configuration: `config-digest` of the bound claims.
    pub fn config_digest(&self) -> [u8; 32] {
        self.config_digest
    }

    /// Whether the evidence is made by software that only imitates a TEE.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Serves until `stop` resolves, then waits for running exchanges until the drain deadline.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        serve::serve(listener, Arc::new(self.shared), self.admission, stop).await
    }
}

/// Encodes the configuration and its digest as one JSON object. The digest does not cover
/// `simulated`.
fn description_json(configuration: &[u8], config_digest: &[u8; 32], simulated: bool) -> Vec<u8> {
    let digest = hex::encode(config_digest);
    let mut json = format!(
        "{{\"claimed_guarantee\":\"{GUARANTEE}\",\"simulated\":{simulated},\
         \"config_digest\":\"{digest}\",\"configuration\":"
    )
    .into_bytes();
    json.extend_from_slice(configuration);
    json.push(b'}');
    json
}

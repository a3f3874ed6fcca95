//! The notary as one thing: policy, channel, signing key, exchanges.

use std::{future::Future, sync::Arc, time::Duration};

use confide_channel::{Binding, Server, ServerOptions};
use confide_evidence::{Appraise, Attest};
use confide_http::{Admission, AdmissionLimits, Drained};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::{
    error::NotaryError,
    exchange::Exchanges,
    key::{KeyOptions, Keys},
    places::Places,
    policy::{NotaryPolicy, Roots},
    serve::{self, ClientLookup, Shared},
    upstream::Upstream,
};

/// The guarantee that the evidence claims: who sees what is sent to a notary.
pub const GUARANTEE: &str = "the notary sees the plaintext, its operator does not";

/// Options of a notary.
#[derive(Clone, Debug)]
pub struct Options {
    /// How evidence is tied to connections: `Key` or `Session`.
    pub binding: Binding,
    /// How long keys with evidence may serve before new ones take their place: at least twice
    /// the longest exchange, which the key that a client has verified finishes.
    pub key_validity: Duration,
    /// Names and addresses in the certificate of the channel.
    pub names: Vec<String>,
    /// The policy: which hosts are fetched from. Its digest is in the bound claims.
    pub policy: NotaryPolicy,
    /// The roots of the servers' certificates.
    pub roots: Roots,
}

/// Opens TLS to named hosts and signs what it saw. Clients verify its evidence. It serves everybody
/// unless [`Notary::for_clients`] or [`Notary::for_attested_clients`] says whom.
pub struct Notary {
    binding: Binding,
    config_digest: [u8; 32],
    shared: Shared,
    simulated: bool,
    admission: Admission,
}

impl Notary {
    /// Makes the keys and the evidence for them, so this may take a device's time.
    ///
    /// `clock` gives Unix seconds; it judges the servers' certificates and stands in statements.
    ///
    /// # Errors
    /// [`NotaryError`] if policy or roots cannot be used, or a key or its evidence cannot be made.
    pub fn new(
        options: Options,
        attester: Arc<dyn Attest>,
        clock: fn() -> u64,
    ) -> Result<Self, NotaryError> {
        let Options { binding, key_validity, names, policy, roots } = options;
        let limits = policy.limits();
        let simulated = attester.is_simulated();
        let configuration = policy.canonical_json(binding.name(), &roots)?;
        let config_digest = Sha256::digest(&configuration).into();
        let description = description(&configuration, &config_digest, simulated);
        let keys = Keys::new(KeyOptions {
            attester: attester.clone(),
            clock,
            config_digest,
            guarantee: GUARANTEE.into(),
            // What has begun is signed with the key that its client has verified.
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
            },
            Some(attester),
            clock,
        )?;
        let policy = Arc::new(policy);
        let upstream = Upstream::new(policy.clone(), &roots, clock).map_err(NotaryError::Tls)?;
        let places = Places::new(limits.exchanges, limits.exchanges_per_client);
        let exchanges = Arc::new(Exchanges { clock, keys, policy, places, upstream });
        let description = description.into();
        let shared =
            Shared { channel, find_client: None, demand: None, description, exchanges, limits };
        let admission = Admission::new(AdmissionLimits::default());
        Ok(Self { binding, config_digest, shared, simulated, admission })
    }

    /// Sets other limits on connections, or listed proxies in front of the notary.
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Serves the clients that `find_client` finds and no others; the key's evidence is for everybody.
    pub fn for_clients(mut self, find_client: ClientLookup) -> Self {
        self.shared.find_client = Some(find_client);
        self
    }

    /// Refuses clients whose evidence `appraiser` does not accept.
    ///
    /// # Errors
    /// [`NotaryError::ClientBinding`] unless evidence is tied to the session.
    pub fn for_attested_clients<A>(mut self, appraiser: A) -> Result<Self, NotaryError>
    where
        A: Appraise + 'static,
    {
        if self.binding != Binding::Session {
            return Err(NotaryError::ClientBinding);
        }
        self.shared.demand = Some(Box::new(appraiser));
        Ok(self)
    }

    /// SHA-256 of the effective configuration: `config-digest` of the bound claims.
    pub fn config_digest(&self) -> [u8; 32] {
        self.config_digest
    }

    /// Whether software that only imitates a TEE makes the evidence.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Serves until `stop` resolves, then lets running exchanges end within the drain deadline.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        serve::serve(listener, Arc::new(self.shared), self.admission, stop).await
    }
}

/// Encodes the configuration and its digest as one JSON object. `simulated` is shown and not
/// digested.
fn description(configuration: &[u8], config_digest: &[u8; 32], simulated: bool) -> Vec<u8> {
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

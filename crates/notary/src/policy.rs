//! The policy file of a notary, and the digest that its evidence binds.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    address::{AddressBlock, is_public},
    limits::{NotaryLimits, REQUEST_BYTES_CEILING, RESPONSE_BYTES_CEILING},
    target::normalise_host,
};

/// The longest policy file in bytes.
pub const POLICY_BYTES_MAX: usize = 256 * 1024;

/// The version of the canonical form; it changes with the meaning of any field.
const FORM_VERSION: u32 = 1;

/// The largest number of hosts in a policy: a list that a person can read.
const HOSTS_MAX: usize = 1024;

/// The largest number of blocks of private addresses.
const ENTRIES_MAX: usize = 64;

/// The hosts and limits of a notary, as its operator set them.
#[derive(Clone, Debug)]
pub struct NotaryPolicy {
    hosts: Vec<HostRule>,
    roots: RootsSource,
    private_addresses: Vec<AddressBlock>,
    limits: NotaryLimits,
}

/// The source of the trusted roots for the servers' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootsSource {
    /// The roots of this machine.
    System,
    /// The certificates of a PEM file, by the path in the policy.
    File(String),
}

/// The trusted roots for the servers' certificates.
#[derive(Clone, Debug)]
pub struct ServerRoots {
    certificates: Vec<CertificateDer<'static>>,
}

/// The reason for which a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The text is not TOML with the right keys.
    #[error("notary policy is not valid: {0}")]
    Toml(#[from] toml::de::Error),
    /// The value of a key cannot be used.
    #[error("notary policy has an invalid `{field}`: wanted {wanted}, got `{got}`")]
    Value {
        /// The key.
        field: &'static str,
        /// The values that are accepted.
        wanted: String,
        /// The value.
        got: String,
    },
    /// The effective configuration cannot be encoded, so it has no digest.
    #[error("the configuration cannot be encoded for its digest: {0}")]
    Digest(#[source] serde_json::Error),
    /// There is no usable root certificate.
    #[error("no usable root certificates: {reason}")]
    Roots {
        /// The fault of the roots.
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostRule {
    /// The name without a leading `*.`.
    name: String,
    /// Whether exactly one label has to precede the name.
    is_wildcard: bool,
    port: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    hosts: Vec<String>,
    roots: String,
    #[serde(default)]
    private_addresses: Vec<String>,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    request_bytes: Option<usize>,
    response_bytes: Option<usize>,
    exchange_s: Option<u64>,
    exchanges: Option<usize>,
    exchanges_per_client: Option<usize>,
}

impl NotaryPolicy {
    /// Parses a policy: see `docs/notary.md`, "The notary's policy".
    ///
    /// # Errors
    /// [`PolicyError`] if the text is not TOML, or has an unknown key or an invalid value.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let written: PolicyFile = toml::from_str(text)?;
        check_count("hosts", written.hosts.len(), HOSTS_MAX)?;
        check_count("private_addresses", written.private_addresses.len(), ENTRIES_MAX)?;
        let hosts =
            written.hosts.iter().map(|text| HostRule::parse(text)).collect::<Result<_, _>>();
        let blocks = written.private_addresses.iter().map(|text| {
            text.parse().map_err(|_| PolicyError::Value {
                field: "private_addresses",
                wanted: "ADDRESS or ADDRESS/PREFIX".into(),
                got: text.clone(),
            })
        });
        let roots = match written.roots.as_str() {
            "system" => RootsSource::System,
            path => RootsSource::File(path.into()),
        };
        Ok(Self {
            hosts: hosts?,
            roots,
            private_addresses: blocks.collect::<Result<_, _>>()?,
            limits: written.limits.into_limits()?,
        })
    }

    /// The source of the servers' roots.
    pub fn roots(&self) -> &RootsSource {
        &self.roots
    }

    /// The limits on lengths, counts and times.
    pub fn limits(&self) -> NotaryLimits {
        self.limits
    }

    /// Replaces the policy's limits.
    pub fn with_limits(mut self, limits: NotaryLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The hosts that are served, each with its port.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.iter().map(HostRule::to_text).collect()
    }

    /// Whether this host (in the spelling of [`crate::FetchTarget::host`]) and port are served.
    pub fn allows_target(&self, host: &str, port: u16) -> bool {
        self.hosts.iter().any(|rule| rule.port == port && rule.matches_host(host))
    }

    /// Whether the notary may connect to this address: a public one, or one in the policy.
    pub fn may_dial(&self, address: IpAddr) -> bool {
        is_public(address) || self.private_addresses.iter().any(|block| block.contains(address))
    }

    /// Encodes the effective configuration as canonical JSON: keys sorted, no spaces, lists sorted.
    ///
    /// # Errors
    /// [`PolicyError::Digest`] if it cannot be encoded.
    pub fn canonical_json(
        &self,
        binding: &str,
        roots: &ServerRoots,
    ) -> Result<Vec<u8>, PolicyError> {
        let canonical = CanonicalPolicy {
            binding,
            confide_notary: FORM_VERSION,
            hosts: self.hosts().into_iter().collect(),
            private_addresses: self.private_addresses.iter().map(AddressBlock::to_string).collect(),
            request_bytes: self.limits.request_bytes,
            response_bytes: self.limits.response_bytes,
            roots_sha256: hex::encode(roots.digest()),
        };
        serde_json::to_vec(&canonical).map_err(PolicyError::Digest)
    }

    /// SHA-256 of the canonical JSON: `config-digest` of the bound claims.
    ///
    /// # Errors
    /// Those of [`Self::canonical_json`].
    pub fn digest(&self, binding: &str, roots: &ServerRoots) -> Result<[u8; 32], PolicyError> {
        self.canonical_json(binding, roots).map(|json| Sha256::digest(json).into())
    }
}

/// The canonical form: the fields are in the order of their names, and the lists are sorted.
#[derive(Serialize)]
struct CanonicalPolicy<'a> {
    binding: &'a str,
    confide_notary: u32,
    hosts: BTreeSet<String>,
    private_addresses: BTreeSet<String>,
    request_bytes: usize,
    response_bytes: usize,
    roots_sha256: String,
}

impl ServerRoots {
    /// Loads the roots of this machine's operating system.
    ///
    /// # Errors
    /// [`PolicyError::Roots`] if the machine has none.
    pub fn system() -> Result<Self, PolicyError> {
        let found = rustls_native_certs::load_native_certs();
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        Self::from_certificates(found.certs, &format!("this machine has no root certificates{why}"))
    }

    /// Parses the certificates of a PEM file.
    ///
    /// # Errors
    /// [`PolicyError::Roots`] if the file is not PEM or has no certificate.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PolicyError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates
            .map_err(|error| PolicyError::Roots { reason: format!("not PEM: {error}") })?;
        Self::from_certificates(certificates, "the PEM file has no certificate")
    }

    /// The certificates in DER.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// SHA-256 over the SHA-256 of each certificate, in ascending order.
    pub fn digest(&self) -> [u8; 32] {
        let mut digests: Vec<[u8; 32]> =
            self.certificates.iter().map(|der| Sha256::digest(der).into()).collect();
        digests.sort_unstable();
        digests.dedup();
        Sha256::digest(digests.concat()).into()
    }

    fn from_certificates(
        certificates: Vec<CertificateDer<'static>>,
        none: &str,
    ) -> Result<Self, PolicyError> {
        match certificates.is_empty() {
            true => Err(PolicyError::Roots { reason: none.into() }),
            false => Ok(Self { certificates }),
        }
    }
}

impl HostRule {
    /// Parses `HOST`, `HOST:PORT`, `*.HOST` or `*.HOST:PORT`.
    fn parse(text: &str) -> Result<Self, PolicyError> {
        let wrong = || PolicyError::Value {
            field: "hosts",
            wanted: "HOST, HOST:PORT, *.HOST or *.HOST:PORT".into(),
            got: text.into(),
        };
        let (is_wildcard, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // In an IPv6 address, only a colon after the bracket precedes a port.
        let (written, port) = match rest.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|port| digits && *port != 0);
                (name, port.ok_or_else(wrong)?)
            }
            _ => (rest, 443),
        };
        let name = normalise_host(written).ok_or_else(wrong)?;
        // A star before an address or a top-level domain is certainly a mistake.
        if is_wildcard && (name.parse::<IpAddr>().is_ok() || !name.contains('.')) {
            return Err(wrong());
        }
        Ok(Self { name, is_wildcard, port })
    }

    fn matches_host(&self, host: &str) -> bool {
        match self.is_wildcard {
            false => host == self.name,
            true => host
                .strip_suffix(&self.name)
                .and_then(|before| before.strip_suffix('.'))
                .is_some_and(|label| !label.is_empty() && !label.contains('.')),
        }
    }

    fn to_text(&self) -> String {
        let star = if self.is_wildcard { "*." } else { "" };
        match self.name.contains(':') {
            true => format!("[{}]:{}", self.name, self.port),
            false => format!("{star}{}:{}", self.name, self.port),
        }
    }
}

impl LimitsTable {
    fn into_limits(self) -> Result<NotaryLimits, PolicyError> {
        let default = NotaryLimits::default();
        let within = |field, got: usize, max: usize| match got {
            got if (1..=max).contains(&got) => Ok(got),
            got => {
                let (wanted, got) = (format!("1 to {max}"), got.to_string());
                Err(PolicyError::Value { field, wanted, got })
            }
        };
        let request = self.request_bytes.unwrap_or(default.request_bytes);
        let response = self.response_bytes.unwrap_or(default.response_bytes);
        let exchanges = self.exchanges.unwrap_or(default.exchanges);
        // By default at least four clients share the exchanges.
        let per_client = self.exchanges_per_client.unwrap_or(exchanges.div_ceil(4));
        let seconds = self.exchange_s.unwrap_or(default.exchange.as_secs());
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX);
        let seconds = within("limits.exchange_s", seconds, 3600)?;
        Ok(NotaryLimits {
            request_bytes: within("limits.request_bytes", request, REQUEST_BYTES_CEILING)?,
            response_bytes: within("limits.response_bytes", response, RESPONSE_BYTES_CEILING)?,
            exchanges: within("limits.exchanges", exchanges, 1024)?,
            exchanges_per_client: within("limits.exchanges_per_client", per_client, 1024)?,
            exchange: Duration::from_secs(seconds as u64),
            ..default
        })
    }
}

fn check_count(field: &'static str, got: usize, max: usize) -> Result<(), PolicyError> {
    if got <= max {
        return Ok(());
    }
    let (wanted, got) = (format!("at most {max} entries"), format!("{got} entries"));
    Err(PolicyError::Value { field, wanted, got })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<NotaryPolicy, PolicyError> {
        NotaryPolicy::from_toml(text)
    }

    #[test]
    fn only_named_hosts_and_ports_are_served() {
        let policy = policy(
            "hosts = [\"api.example\", \"localhost:8443\", \"*.models.example\", \"[::1]:8443\"]\n\
             roots = \"system\"",
        )
        .unwrap();
        assert!(
            policy.allows_target("api.example", 443) && !policy.allows_target("api.example", 8443)
        );
        assert!(policy.allows_target("localhost", 8443) && policy.allows_target("::1", 8443));
        assert!(policy.allows_target("a.models.example", 443));
        for host in ["models.example", "a.b.models.example", "amodels.example", ".models.example"] {
            assert!(!policy.allows_target(host, 443), "{host}");
        }
        assert!(!policy.may_dial("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn private_addresses_are_dialled_only_where_they_are_named() {
        let policy = policy(
            "hosts = []\nroots = \"ca.pem\"\nprivate_addresses = [\"127.0.0.1\", \"10.0.0.0/8\"]",
        )
        .unwrap();
        for named in ["127.0.0.1", "10.9.9.9", "1.1.1.1"] {
            assert!(policy.may_dial(named.parse().unwrap()), "{named}");
        }
        for other in ["127.0.0.2", "192.168.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!policy.may_dial(other.parse().unwrap()), "{other}");
        }
        assert_eq!(policy.roots(), &RootsSource::File("ca.pem".into()));
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for (key, value) in [
            ("hosts", "[\"*.com\"]"),
            ("hosts", "[\"https://h\"]"),
            ("hosts", "[\"h:0\"]"),
            ("hosts", "[\"*.127.0.0.1\"]"),
            ("hosts", "[\"*\"]"),
            ("private_addresses", "[\"127.0.0.1/33\"]"),
        ] {
            let mut text = format!("roots = \"system\"\n{key} = {value}\n");
            if key != "hosts" {
                text.push_str("hosts = []\n");
            }
            let refused = policy(&text).unwrap_err();
            assert!(matches!(refused, PolicyError::Value { .. }), "{text}: {refused}");
        }
        let few = policy("hosts = []\nroots = \"system\"\n[limits]\nexchanges = 6").unwrap();
        assert_eq!((few.limits().exchanges, few.limits().exchanges_per_client), (6, 2));
        let none = "hosts = []\nroots = \"system\"\n[limits]\nexchanges_per_client = 0";
        assert!(matches!(policy(none), Err(PolicyError::Value { .. })));
        let limit = "hosts = []\nroots = \"system\"\n[limits]\nresponse_bytes = 99999999";
        assert!(matches!(policy(limit), Err(PolicyError::Value { .. })));
        let many = format!("hosts = {:?}\nroots = \"system\"", vec!["h.example"; HOSTS_MAX + 1]);
        let Err(PolicyError::Value { field, wanted, got }) = policy(&many) else {
            panic!("too many hosts were taken")
        };
        let parts = [field, wanted.as_str(), got.as_str()];
        assert_eq!(parts, ["hosts", "at most 1024 entries", "1025 entries"]);
        for text in ["", "hosts = []", "hosts = []\nroots = \"system\"\nhost = 1"] {
            assert!(matches!(policy(text), Err(PolicyError::Toml(_))), "{text}");
        }
    }

    #[test]
    fn the_digest_is_one_for_one_meaning_and_changes_with_it() {
        let root = rcgen::generate_simple_self_signed(["a".into()]).unwrap().cert;
        let roots = ServerRoots::from_pem(root.pem().as_bytes()).unwrap();
        let digest = |text: &str| policy(text).unwrap().digest("key", &roots).unwrap();
        let one = digest("hosts = [\"a.example\", \"b.example\"]\nroots = \"system\"");
        let same = digest("hosts = [\"B.example:443\", \"a.example.\"]\nroots = \"x.pem\"");
        assert_eq!(one, same);
        let policy = policy("hosts = [\"a.example\", \"b.example\"]\nroots = \"system\"").unwrap();
        assert_ne!(one, policy.digest("session", &roots).unwrap());
        let other = rcgen::generate_simple_self_signed(["b".into()]).unwrap().cert;
        let other = ServerRoots::from_pem(other.pem().as_bytes()).unwrap();
        assert_ne!(one, policy.digest("key", &other).unwrap());
        assert_ne!(one, digest("hosts = [\"a.example\"]\nroots = \"system\""));
        let json = policy.canonical_json("key", &roots).unwrap();
        assert_eq!(<[u8; 32]>::from(Sha256::digest(&json)), one);
        assert!(
            json.starts_with(br#"{"binding":"key","confide_notary":1,"hosts":["a.example:443","#)
        );
        assert!(matches!(ServerRoots::from_pem(b""), Err(PolicyError::Roots { .. })));
    }
}

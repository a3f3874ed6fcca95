//! What the gateway does with a prompt, in one canonical form, and its digest.
//!
//! Evidence speaks of an image; the same image pointed at a foreign upstream would pass every
//! check while prompts leave in the clear. So the digest of this is in the bound claims, and a
//! policy pins it.

use confide_channel::Binding;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{GatewayError, Upstream};

/// Where the gateway shows its configuration and digest, so that anyone can recompute it.
pub const WELL_KNOWN_PATH: &str = "/.well-known/confide";

/// The upstream is on loopback: prompts stay inside the attested machine.
pub const GUARANTEE_FULL: &str = "operator is outside the TEE";

/// The upstream is elsewhere and proved nothing: prompts leave the attested machine.
pub const GUARANTEE_GATEWAY_ONLY: &str = "gateway only";

/// There is no evidence: nobody is protected from the operator.
pub const GUARANTEE_NONE: &str = "none";

/// Version of the canonical form; it changes whenever the meaning of a field does.
const FORM_VERSION: u32 = 1;

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// How evidence is tied to connections.
    pub binding: Binding,
    /// The model servers that may see prompts.
    pub upstreams: Vec<Upstream>,
    /// Which path goes to which of them; the longest prefix wins.
    pub routes: Vec<Route>,
    /// Targets of a tunnel in the same process, `HOST:PORT`.
    pub tunnel_allow: Vec<String>,
    /// SHA-256 of the manifest of the one model that the upstream serves, where it is known.
    ///
    /// The upstream said so when the gateway started; the gateway does not measure weights.
    pub model_manifest_sha256: Option<[u8; 32]>,
}

/// Requests whose path starts with `prefix` go to `upstream`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whole path segments: `/v1` covers `/v1` and `/v1/models`, not `/v10`.
    pub prefix: String,
    /// One of the configuration's upstreams.
    pub upstream: Upstream,
}

impl Configuration {
    /// Everything to one upstream.
    pub fn single(binding: Binding, upstream: Upstream) -> Self {
        Self {
            binding,
            routes: vec![Route { prefix: "/".into(), upstream: upstream.clone() }],
            upstreams: vec![upstream],
            tunnel_allow: Vec::new(),
            model_manifest_sha256: None,
        }
    }

    /// Checks that routes are paths, that none stands twice and that each leads somewhere.
    pub fn check(&self) -> Result<(), GatewayError> {
        if self.routes.is_empty() {
            return Err(GatewayError::NoRoute);
        }
        for (index, route) in self.routes.iter().enumerate() {
            let twice = self.routes[..index].iter().any(|other| other.prefix == route.prefix);
            if twice || !route.prefix.starts_with('/') {
                return Err(GatewayError::RoutePrefix { prefix: route.prefix.clone() });
            }
            if !self.upstreams.contains(&route.upstream) {
                return Err(GatewayError::UnknownUpstream {
                    prefix: route.prefix.clone(),
                    upstream: route.upstream.url(),
                });
            }
        }
        Ok(())
    }

    /// The canonical JSON: keys sorted, no spaces, lists sorted, every address in one spelling.
    pub fn canonical_json(&self) -> Vec<u8> {
        let mut upstreams: Vec<String> = self.upstreams.iter().map(Upstream::url).collect();
        upstreams.sort();
        upstreams.dedup();
        let mut routes: Vec<CanonicalRoute<'_>> = self
            .routes
            .iter()
            .map(|route| CanonicalRoute { prefix: &route.prefix, upstream: route.upstream.url() })
            .collect();
        routes.sort();
        let mut tunnel_allow: Vec<&str> = self.tunnel_allow.iter().map(String::as_str).collect();
        tunnel_allow.sort_unstable();
        tunnel_allow.dedup();
        let canonical = Canonical {
            binding: self.binding.name(),
            confide_configuration: FORM_VERSION,
            model_manifest_sha256: self.model_manifest_sha256.map(hex::encode),
            routes,
            tunnel_allow,
            upstreams,
        };
        // Strings and integers only: nothing in it can fail to serialise.
        serde_json::to_vec(&canonical).unwrap_or_default()
    }

    /// SHA-256 of the canonical JSON: `config-digest` of the bound claims.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.canonical_json()).into()
    }

    /// Who is protected from whom if the evidence is genuine.
    pub fn guarantee(&self) -> &'static str {
        match (self.binding, self.upstreams.iter().all(Upstream::is_loopback)) {
            (Binding::None, _) => GUARANTEE_NONE,
            (_, true) => GUARANTEE_FULL,
            (_, false) => GUARANTEE_GATEWAY_ONLY,
        }
    }

    /// What [`WELL_KNOWN_PATH`] answers: the configuration and its digest, one JSON object.
    ///
    /// `simulated` says whether the evidence is; it is shown beside the claim, and not digested.
    pub fn description(&self, simulated: bool) -> Vec<u8> {
        let mut json = format!(
            "{{\"claimed_guarantee\":\"{}\",\"simulated\":{simulated},\"config_digest\":\"{}\",\
             \"configuration\":",
            self.guarantee(),
            hex::encode(self.digest()),
        )
        .into_bytes();
        json.extend_from_slice(&self.canonical_json());
        json.push(b'}');
        json
    }
}

// Fields stand in the order of their names: that is the order of the canonical form.
#[derive(Serialize)]
struct Canonical<'a> {
    binding: &'static str,
    confide_configuration: u32,
    model_manifest_sha256: Option<String>,
    routes: Vec<CanonicalRoute<'a>>,
    tunnel_allow: Vec<&'a str>,
    upstreams: Vec<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct CanonicalRoute<'a> {
    prefix: &'a str,
    upstream: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str) -> Upstream {
        Upstream::parse(url).unwrap()
    }

    fn single(url: &str) -> Configuration {
        Configuration::single(Binding::Key, upstream(url))
    }

    #[test]
    fn the_canonical_form_and_its_digest_are_fixed() {
        let configuration = single("http://localhost:8000/");
        let json = r#"{"binding":"key","confide_configuration":1,"model_manifest_sha256":null,"#
            .to_owned()
            + r#""routes":[{"prefix":"/","upstream":"http://127.0.0.1:8000"}],"#
            + r#""tunnel_allow":[],"upstreams":["http://127.0.0.1:8000"]}"#;
        assert_eq!(String::from_utf8(configuration.canonical_json()).unwrap(), json);
        assert_eq!(configuration.digest(), <[u8; 32]>::from(Sha256::digest(json)));
    }

    #[test]
    fn whatever_decides_where_a_prompt_goes_changes_the_digest() {
        let base = single("http://127.0.0.1:8000");
        let mut changed = vec![single("http://127.0.0.1:8001"), single("http://10.0.0.1:8000")];
        changed.push(Configuration { binding: Binding::Session, ..base.clone() });
        changed.push(Configuration { tunnel_allow: vec!["a:1".into()], ..base.clone() });
        changed.push(Configuration { model_manifest_sha256: Some([0; 32]), ..base.clone() });
        let mut prefixed = base.clone();
        prefixed.routes[0].prefix = "/v1".into();
        changed.push(prefixed);
        for other in changed {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
    }

    #[test]
    fn the_order_in_which_lists_were_given_does_not_matter() {
        let (a, b) = (upstream("http://127.0.0.1:1"), upstream("http://127.0.0.1:2"));
        let route = |prefix: &str, upstream: &Upstream| Route {
            prefix: prefix.into(),
            upstream: upstream.clone(),
        };
        let mut one = Configuration::single(Binding::Key, a.clone());
        one.upstreams = vec![a.clone(), b.clone()];
        one.routes = vec![route("/", &a), route("/v1", &b)];
        let mut two = one.clone();
        two.upstreams.reverse();
        two.routes.reverse();
        assert_eq!(one.digest(), two.digest());
    }

    #[test]
    fn an_upstream_elsewhere_lowers_the_guarantee() {
        assert_eq!(single("http://127.0.0.1:1").guarantee(), GUARANTEE_FULL);
        assert_eq!(single("http://10.0.0.1:1").guarantee(), GUARANTEE_GATEWAY_ONLY);
        let plain = Configuration { binding: Binding::None, ..single("http://127.0.0.1:1") };
        assert_eq!(plain.guarantee(), GUARANTEE_NONE);
        let mut mixed = single("http://127.0.0.1:1");
        mixed.upstreams.push(upstream("http://10.0.0.1:1"));
        assert_eq!(mixed.guarantee(), GUARANTEE_GATEWAY_ONLY);
    }

    #[test]
    fn the_description_holds_the_configuration_and_its_digest() {
        let configuration = single("http://127.0.0.1:8000");
        let shown: serde_json::Value =
            serde_json::from_slice(&configuration.description(true)).unwrap();
        assert_eq!(shown["simulated"], true);
        assert_eq!(shown["config_digest"], hex::encode(configuration.digest()));
        assert_eq!(
            serde_json::to_vec(&shown["configuration"]).unwrap(),
            configuration.canonical_json()
        );
    }

    #[test]
    fn a_route_to_nowhere_is_refused() {
        let mut configuration = single("http://127.0.0.1:1");
        configuration.upstreams.clear();
        assert!(matches!(configuration.check(), Err(GatewayError::UnknownUpstream { .. })));
        configuration.routes.clear();
        assert!(matches!(configuration.check(), Err(GatewayError::NoRoute)));
        let mut twice = single("http://127.0.0.1:1");
        twice.routes.push(twice.routes[0].clone());
        assert!(matches!(twice.check(), Err(GatewayError::RoutePrefix { .. })));
    }
}

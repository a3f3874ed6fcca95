//! The configuration of the gateway, its canonical form and its digest.
//!
//! Evidence is about an image; the same image with a foreign upstream would pass every check while
//! prompts leave in the clear. Therefore the bound claims contain the digest of this configuration,
//! and a policy pins it.

use std::collections::BTreeSet;

use confide_channel::Binding;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    error::GatewayError,
    route::{Route, RouteMethods},
    upstream::Upstream,
};

/// The path at which the gateway publishes its configuration and digest, so that anyone can
/// recompute the digest.
pub const WELL_KNOWN_PATH: &str = "/.well-known/confide";

/// The upstream is on loopback: prompts stay inside the attested machine.
pub const GUARANTEE_FULL: &str = "operator is outside the TEE";

/// The upstream is on another machine and presents no evidence: prompts leave the attested machine.
pub const GUARANTEE_GATEWAY_ONLY: &str = "gateway only";

/// There is no evidence: nothing protects prompts from the operator.
pub const GUARANTEE_NONE: &str = "none";

/// Version of the canonical form; it changes whenever the meaning of a field changes.
///
/// Version 1 had a path prefix for each route and no methods.
const FORM_VERSION: u32 = 2;

/// The source of the manifest digest: the gateway does not measure the model's files.
const MANIFEST_SOURCE: &str = "claimed by the upstream";

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct GatewayConfiguration {
    /// How evidence is tied to connections.
    pub binding: Binding,
    /// The model servers that may see prompts.
    pub upstreams: Vec<Upstream>,
    /// The methods and paths that are proxied, and the upstream of each. Other requests are
    /// refused; if two routes match a request, the more specific one applies.
    pub routes: Vec<Route>,
    /// The targets of a tunnel in the same process, as `HOST:PORT`.
    pub tunnel_allow: Vec<String>,
    /// SHA-256 of the manifest of the one model that the first upstream serves, if it is known.
    ///
    /// The upstream states the manifest digest; the gateway does not measure weights. If it is
    /// known, the gateway asks for it repeatedly, and stops serving when the answer changes.
    pub model_manifest_sha256: Option<[u8; 32]>,
}

impl GatewayConfiguration {
    /// A configuration with one upstream and the inference routes.
    pub fn with_upstream(binding: Binding, upstream: Upstream) -> Self {
        Self {
            binding,
            routes: Route::inference_routes(&upstream),
            upstreams: vec![upstream],
            tunnel_allow: Vec::new(),
            model_manifest_sha256: None,
        }
    }

    /// Checks that routes are normalised paths, that none is listed twice and that each leads to a
    /// listed upstream.
    ///
    /// # Errors
    /// [`GatewayError`] for the first route that fails a check, or if there is no route.
    pub fn check_routes(&self) -> Result<(), GatewayError> {
        if self.routes.is_empty() {
            return Err(GatewayError::NoRoute);
        }
        for (index, route) in self.routes.iter().enumerate() {
            route.parse_pattern()?;
            let earlier = &self.routes[..index];
            let twice = |method: &&str| {
                let same = |other: &&Route| other.path == route.path;
                earlier.iter().filter(same).any(|other| other.method_names().contains(method))
            };
            if let Some(method) = route.method_names().iter().find(|method| twice(method)) {
                let got = format!("`{method}` listed twice");
                return Err(GatewayError::Route { route: route.path.clone(), got });
            }
            if !self.upstreams.contains(&route.upstream) {
                return Err(GatewayError::UnknownUpstream {
                    route: route.path.clone(),
                    upstream: route.upstream.url(),
                });
            }
        }
        Ok(())
    }

    /// Adds a route, without methods that the same path already has.
    pub fn add_route(&mut self, mut added: Route) {
        if let RouteMethods::Only(methods) = &mut added.methods {
            let known: Vec<&Route> =
                self.routes.iter().filter(|route| route.path == added.path).collect();
            methods.retain(|method| !known.iter().any(|route| route.allows_method(method)));
            if methods.is_empty() {
                return;
            }
        }
        self.routes.push(added);
    }

    /// Whether all requests are proxied, including administration requests to the upstream.
    pub fn allows_all_routes(&self) -> bool {
        let everything = |route: &Route| route.methods == RouteMethods::All && route.path == "/**";
        self.routes.iter().any(everything)
    }

    /// The canonical JSON: keys sorted, no spaces, lists sorted, every address in one spelling.
    pub fn canonical_json(&self) -> Vec<u8> {
        let mut routes: Vec<CanonicalRoute<'_>> = self
            .routes
            .iter()
            .map(|route| CanonicalRoute {
                methods: route.method_names(),
                path: &route.path,
                upstream: route.upstream.url(),
            })
            .collect();
        routes.sort_by(|a, b| (a.path, &a.methods).cmp(&(b.path, &b.methods)));
        let canonical = CanonicalConfiguration {
            binding: self.binding.name(),
            confide_configuration: FORM_VERSION,
            model_manifest_sha256: self.model_manifest_sha256.map(hex::encode),
            routes,
            tunnel_allow: self.tunnel_allow.iter().map(String::as_str).collect(),
            upstreams: self.upstreams.iter().map(Upstream::url).collect(),
        };
        // It has only strings and integers, so serialising cannot fail.
        serde_json::to_vec(&canonical).unwrap_or_default()
    }

    /// SHA-256 of the canonical JSON, which is `config-digest` in the bound claims.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.canonical_json()).into()
    }

    /// The guarantee that holds if the evidence is genuine: against whom prompts are protected.
    pub fn guarantee(&self) -> &'static str {
        match (self.binding, self.upstreams.iter().all(Upstream::is_loopback)) {
            (Binding::None, _) => GUARANTEE_NONE,
            (_, true) => GUARANTEE_FULL,
            (_, false) => GUARANTEE_GATEWAY_ONLY,
        }
    }

    /// The body at [`WELL_KNOWN_PATH`]: the configuration and its digest, as one JSON object.
    ///
    /// `simulated` states whether the evidence is simulated. It and the source of the model's
    /// manifest are not part of the digest.
    pub fn description_json(&self, simulated: bool) -> Vec<u8> {
        let source = self.model_manifest_source().map_or("null".into(), |by| format!("\"{by}\""));
        let mut json = format!(
            "{{\"claimed_guarantee\":\"{}\",\"simulated\":{simulated},\"config_digest\":\"{}\",\
             \"model_manifest_source\":{source},\"configuration\":",
            self.guarantee(),
            hex::encode(self.digest()),
        )
        .into_bytes();
        json.extend_from_slice(&self.canonical_json());
        json.push(b'}');
        json
    }

    /// The source of the model's manifest digest, if there is one.
    pub fn model_manifest_source(&self) -> Option<&'static str> {
        self.model_manifest_sha256.map(|_| MANIFEST_SOURCE)
    }
}

// The fields are in the order of their names, as the canonical form requires.
#[derive(Serialize)]
struct CanonicalConfiguration<'a> {
    binding: &'static str,
    confide_configuration: u32,
    model_manifest_sha256: Option<String>,
    routes: Vec<CanonicalRoute<'a>>,
    tunnel_allow: BTreeSet<&'a str>,
    upstreams: BTreeSet<String>,
}

#[derive(Serialize)]
struct CanonicalRoute<'a> {
    methods: Vec<&'a str>,
    path: &'a str,
    upstream: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str) -> Upstream {
        Upstream::parse(url).unwrap()
    }

    fn single(url: &str) -> GatewayConfiguration {
        GatewayConfiguration::with_upstream(Binding::Key, upstream(url))
    }

    #[test]
    fn the_canonical_form_and_its_digest_are_fixed() {
        let mut configuration = single("http://localhost:8000/");
        let url = "http://127.0.0.1:8000";
        configuration.routes = ["POST,GET /v1/x", "/health"]
            .map(|text| Route::parse(text, &upstream(url)).unwrap())
            .into();
        let json = r#"{"binding":"key","confide_configuration":2,"model_manifest_sha256":null,"#
            .to_owned()
            + r#""routes":[{"methods":["GET","HEAD","POST"],"path":"/health","#
            + r#""upstream":"http://127.0.0.1:8000"},"#
            + r#"{"methods":["GET","POST"],"path":"/v1/x","upstream":"http://127.0.0.1:8000"}],"#
            + r#""tunnel_allow":[],"upstreams":["http://127.0.0.1:8000"]}"#;
        assert_eq!(String::from_utf8(configuration.canonical_json()).unwrap(), json);
        assert_eq!(configuration.digest(), <[u8; 32]>::from(Sha256::digest(json)));
    }

    #[test]
    fn whatever_decides_where_a_prompt_goes_changes_the_digest() {
        let base = single("http://127.0.0.1:8000");
        let mut changed = vec![single("http://127.0.0.1:8001"), single("http://10.0.0.1:8000")];
        changed.push(GatewayConfiguration { binding: Binding::Session, ..base.clone() });
        changed.push(GatewayConfiguration { tunnel_allow: vec!["a:1".into()], ..base.clone() });
        changed.push(GatewayConfiguration { model_manifest_sha256: Some([0; 32]), ..base.clone() });
        let mut other_path = base.clone();
        other_path.routes[0].path = "/v2".into();
        let mut other_methods = base.clone();
        other_methods.routes[0].methods = RouteMethods::Only(vec![http::Method::PUT]);
        let mut one_more = base.clone();
        one_more.add_route(Route::parse("/metrics", &base.upstreams[0]).unwrap());
        let mut everything = base.clone();
        everything.routes = vec![Route::dangerous_everything(&base.upstreams[0])];
        changed.extend([other_path, other_methods, one_more, everything]);
        for other in changed {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
    }

    #[test]
    fn the_order_in_which_lists_were_given_does_not_matter() {
        let (a, b) = (upstream("http://127.0.0.1:1"), upstream("http://127.0.0.1:2"));
        let route = |path: &str, upstream: &Upstream| Route::parse(path, upstream).unwrap();
        let mut one = GatewayConfiguration::with_upstream(Binding::Key, a.clone());
        one.upstreams = vec![a.clone(), b.clone()];
        one.routes = vec![route("/", &a), route("/v1", &b)];
        let mut two = one.clone();
        two.upstreams.reverse();
        two.routes.reverse();
        one.routes[0].methods = RouteMethods::Only(vec![http::Method::GET, http::Method::POST]);
        two.routes[1].methods = RouteMethods::Only(vec![http::Method::POST, http::Method::GET]);
        assert_eq!(one.digest(), two.digest());
    }

    #[test]
    fn an_upstream_elsewhere_lowers_the_guarantee() {
        assert_eq!(single("http://127.0.0.1:1").guarantee(), GUARANTEE_FULL);
        assert_eq!(single("http://10.0.0.1:1").guarantee(), GUARANTEE_GATEWAY_ONLY);
        let plain = GatewayConfiguration { binding: Binding::None, ..single("http://127.0.0.1:1") };
        assert_eq!(plain.guarantee(), GUARANTEE_NONE);
        let mut mixed = single("http://127.0.0.1:1");
        mixed.upstreams.push(upstream("http://10.0.0.1:1"));
        assert_eq!(mixed.guarantee(), GUARANTEE_GATEWAY_ONLY);
    }

    #[test]
    fn the_description_holds_the_configuration_and_its_digest() {
        let configuration = single("http://127.0.0.1:8000");
        let shown: serde_json::Value =
            serde_json::from_slice(&configuration.description_json(true)).unwrap();
        assert_eq!(shown["simulated"], true);
        assert_eq!(shown["config_digest"], hex::encode(configuration.digest()));
        assert_eq!(shown["model_manifest_source"], serde_json::Value::Null);
        assert_eq!(
            serde_json::to_vec(&shown["configuration"]).unwrap(),
            configuration.canonical_json()
        );
    }

    #[test]
    fn a_route_to_nowhere_is_refused() {
        let mut configuration = single("http://127.0.0.1:1");
        configuration.upstreams.clear();
        assert!(matches!(configuration.check_routes(), Err(GatewayError::UnknownUpstream { .. })));
        configuration.routes.clear();
        assert!(matches!(configuration.check_routes(), Err(GatewayError::NoRoute)));
        let mut twice = single("http://127.0.0.1:1");
        assert!(twice.check_routes().is_ok());
        twice.routes.push(twice.routes[0].clone());
        assert!(matches!(twice.check_routes(), Err(GatewayError::Route { .. })));
    }

    #[test]
    fn the_model_manifest_is_named_as_the_upstreams_own_word() {
        let known = GatewayConfiguration {
            model_manifest_sha256: Some([0xab; 32]),
            ..single("http://127.0.0.1:8000")
        };
        let shown: serde_json::Value =
            serde_json::from_slice(&known.description_json(false)).unwrap();
        assert_eq!(shown["model_manifest_source"], "claimed by the upstream");
    }

    #[test]
    fn a_route_that_is_there_already_is_not_added_twice() {
        let mut configuration = single("http://127.0.0.1:1");
        let digest = configuration.digest();
        for listed in ["POST /v1/embeddings", "GET /v1/models/**"] {
            configuration.add_route(Route::parse(listed, &configuration.upstreams[0]).unwrap());
            assert_eq!(configuration.digest(), digest, "{listed}");
        }
        configuration
            .add_route(Route::parse("/v1/embeddings", &configuration.upstreams[0]).unwrap());
        assert!(configuration.check_routes().is_ok());
        assert_ne!(configuration.digest(), digest);
        assert!(!configuration.allows_all_routes());
    }
}

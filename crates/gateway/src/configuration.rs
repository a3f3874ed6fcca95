//! The configuration of the gateway, its canonical form and its digest.
//!
//! Evidence is about an image; the same image with a foreign upstream would pass every check while
//! prompts leave in the clear. Therefore the bound claims contain the digest of this configuration,
//! and a policy pins it.

use std::{collections::BTreeSet, sync::Arc};

use confide_channel::Binding;
use confide_evidence::weights_claim::{MeasuredWeights, WeightsClaim};
use confide_weights::WeightsMeasurement;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    answer_shape::AnswerShape,
    error::GatewayError,
    key_directory::KEYED_SERVERS_MAX,
    route::{Route, RouteMethods, websocket_method},
    server::{DEFAULT_GROUP, ModelServer, SERVERS_MAX},
    upstream::Upstream,
    upstream_roots::UpstreamRoots,
};

/// The path at which the gateway publishes its configuration and digest, so that anyone can
/// recompute the digest.
pub const WELL_KNOWN_PATH: &str = "/.well-known/confide";

/// The upstream is on loopback: prompts stay inside the attested machine.
pub const GUARANTEE_FULL: &str = "operator is outside the TEE";

/// The upstream is on another machine and presents no evidence: prompts leave the attested machine,
/// and that machine reads them even if TLS protects them on the way.
pub const GUARANTEE_GATEWAY_ONLY: &str = "gateway only";

/// There is no evidence: nothing protects prompts from the operator.
pub const GUARANTEE_NONE: &str = "none";

/// Version of the canonical form; it changes whenever the meaning of a field changes.
///
/// Version 1 had a path prefix for each route and no methods, version 2 one upstream for each route,
/// version 3 no roots of https upstreams, version 4 no weights.
const FORM_VERSION: u32 = 5;

/// The source of the manifest digest: the model server states it.
const MANIFEST_SOURCE: &str = "claimed by the upstream";

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct GatewayConfiguration {
    /// How evidence is tied to connections.
    pub binding: Binding,
    /// The model servers that may see prompts.
    pub servers: Vec<ModelServer>,
    /// The methods and paths that are proxied, and the group of servers of each. Other requests
    /// are refused; if two routes match a request, the more specific one applies.
    pub routes: Vec<Route>,
    /// The targets of a tunnel in the same process, as `HOST:PORT`.
    pub tunnel_allow: Vec<String>,
    /// The shape of answers on the wire; without one, their sizes and times are the model server's.
    pub answer_shape: Option<AnswerShape>,
}

impl GatewayConfiguration {
    /// A configuration with one upstream and the inference routes.
    pub fn with_upstream(binding: Binding, upstream: Upstream) -> Self {
        Self {
            binding,
            routes: Route::inference_routes(DEFAULT_GROUP),
            servers: vec![ModelServer::new(upstream)],
            tunnel_allow: Vec::new(),
            answer_shape: None,
        }
    }

    /// Checks the number of servers, the fields of servers and routes, that none is listed twice,
    /// that each route leads to a group with a server and a route to each server's group, that the
    /// servers of a group all get a cache salt or none, and that no WebSocket passes where answers
    /// have a shape or requests a salt.
    ///
    /// # Errors
    /// [`GatewayError`] for the first check that fails.
    pub fn check(&self) -> Result<(), GatewayError> {
        self.check_routes()?;
        if !(1..=SERVERS_MAX).contains(&self.servers.len()) {
            return Err(GatewayError::ServerCount { got: self.servers.len() });
        }
        for (index, server) in self.servers.iter().enumerate() {
            server.check()?;
            let is_same = |other: &ModelServer| {
                other.group == server.group && other.upstream.url() == server.upstream.url()
            };
            if self.servers[..index].iter().any(is_same) {
                return Err(GatewayError::Server {
                    url: server.upstream.url(),
                    wanted: "each server once in a group",
                    got: format!("it twice in group `{}`", server.group),
                });
            }
            let is_salted_otherwise = |other: &ModelServer| {
                other.group == server.group && other.cache_salt != server.cache_salt
            };
            if self.servers[..index].iter().any(is_salted_otherwise) {
                return Err(GatewayError::Server {
                    url: server.upstream.url(),
                    wanted: "a cache salt for all servers of a group or for none",
                    got: format!("both in group `{}`", server.group),
                });
            }
            if !self.routes.iter().any(|route| route.group == server.group) {
                return Err(GatewayError::UnusedGroup { group: server.group.clone() });
            }
        }
        Ok(())
    }

    /// Reads the root certificates that verify the https upstreams. `clock` returns Unix seconds.
    ///
    /// # Errors
    /// [`GatewayError::UpstreamRoots`] if a file cannot be read or has no certificate, or the
    /// operating system has no roots.
    pub fn read_upstream_roots(&mut self, clock: fn() -> u64) -> Result<(), GatewayError> {
        let mut system = None;
        for ModelServer { upstream, roots_file, .. } in &mut self.servers {
            if !upstream.is_https() {
                continue;
            }
            let roots = match (roots_file, &system) {
                (Some(path), _) => {
                    UpstreamRoots::read(path, clock).map_err(|error| error.to_string())
                }
                (None, Some(roots)) => Ok(UpstreamRoots::clone(roots)),
                (None, None) => UpstreamRoots::read_system(clock).inspect(|roots| {
                    system = Some(roots.clone());
                }),
            };
            let url = upstream.url();
            upstream
                .set_roots(roots.map_err(|reason| GatewayError::UpstreamRoots { url, reason })?);
        }
        Ok(())
    }

    /// Measures the weights of the servers for which a path is given, those of one path once. This
    /// blocks while the files are read. A measurement of `in_use` is kept if its files are unchanged.
    ///
    /// # Errors
    /// [`GatewayError::Weights`] if weights cannot be measured.
    pub fn measure_weights(&mut self, in_use: Option<&Self>) -> Result<(), GatewayError> {
        let mut known: Vec<Arc<WeightsMeasurement>> = in_use
            .iter()
            .flat_map(|in_use| &in_use.servers)
            .filter_map(|server| server.weights.clone())
            .filter(|weights| weights.check_unchanged().is_ok())
            .collect();
        for server in &mut self.servers {
            let Some(path) = &server.weights_path else { continue };
            let canonical = path.canonicalize().ok();
            let same =
                |weights: &&Arc<WeightsMeasurement>| Some(weights.path()) == canonical.as_deref();
            let measured = match known.iter().find(same) {
                Some(weights) => weights.clone(),
                None => {
                    let measured = WeightsMeasurement::measure(path).map_err(|source| {
                        GatewayError::Weights { url: server.upstream.url(), source }
                    })?;
                    known.push(Arc::new(measured));
                    known[known.len() - 1].clone()
                }
            };
            server.weights = Some(measured);
        }
        Ok(())
    }

    /// Checks that the weights of all servers for which a path is given have been measured, so that
    /// the digest and the claims are complete.
    pub(crate) fn check_weights(&self) -> Result<(), GatewayError> {
        let is_unmeasured =
            |server: &&ModelServer| server.weights_path.is_some() && server.weights.is_none();
        match self.servers.iter().find(is_unmeasured) {
            None => Ok(()),
            Some(server) => Err(GatewayError::Server {
                url: server.upstream.url(),
                wanted: "its weights measured",
                got: "weights that were not measured".into(),
            }),
        }
    }

    /// The claim about the weights of all servers; `None` if none were measured.
    pub fn weights_claim(&self) -> Option<WeightsClaim> {
        WeightsClaim::from_servers(self.servers.iter().map(ModelServer::measured_weights))
    }

    /// Checks that the roots of all https upstreams have been read, so that the digest is complete.
    pub(crate) fn check_upstream_roots(&self) -> Result<(), GatewayError> {
        let lacks_roots = |upstream: &&Upstream| upstream.is_https() && upstream.roots().is_none();
        match self.servers.iter().map(|server| &server.upstream).find(lacks_roots) {
            None => Ok(()),
            Some(upstream) => Err(GatewayError::UpstreamRoots {
                url: upstream.url(),
                reason: "they have not been read".into(),
            }),
        }
    }

    fn check_routes(&self) -> Result<(), GatewayError> {
        if self.routes.is_empty() {
            return Err(GatewayError::NoRoute);
        }
        for (index, route) in self.routes.iter().enumerate() {
            route.parse_pattern()?;
            if self.answer_shape.is_some() && route.allows_method(&websocket_method()) {
                return Err(GatewayError::UnshapedWebSocket { route: route.path.clone() });
            }
            let is_salted = |server: &ModelServer| server.group == route.group && server.cache_salt;
            if route.allows_method(&websocket_method()) && self.servers.iter().any(is_salted) {
                return Err(GatewayError::UnsaltedWebSocket { route: route.path.clone() });
            }
            self.check_keyed_route(route)?;
            let earlier = &self.routes[..index];
            let twice = |method: &&str| {
                let same = |other: &&Route| other.path == route.path;
                earlier.iter().filter(same).any(|other| other.method_names().contains(method))
            };
            if let Some(method) = route.method_names().iter().find(|method| twice(method)) {
                let got = format!("`{method}` listed twice");
                return Err(GatewayError::Route { route: route.path.clone(), got });
            }
            if !self.servers.iter().any(|server| server.group == route.group) {
                return Err(GatewayError::UnknownGroup {
                    route: route.path.clone(),
                    group: route.group.clone(),
                });
            }
        }
        Ok(())
    }

    /// Checks what a route that selects the server by key excludes.
    fn check_keyed_route(&self, route: &Route) -> Result<(), GatewayError> {
        let servers = || self.servers.iter().filter(|server| server.group == route.group);
        let fault = match servers().count() {
            _ if !route.by_key_id => return Ok(()),
            count if count > KEYED_SERVERS_MAX => format!("{count} servers"),
            _ if servers().any(|server| !server.models.is_empty()) => "a server with models".into(),
            _ if servers().any(|server| server.cache_salt) => "a cache salt".into(),
            _ if self.answer_shape.is_some() => "an answer shape".into(),
            _ if route.allows_method(&websocket_method()) => "WebSockets".into(),
            _ => return Ok(()),
        };
        Err(GatewayError::KeyedRoute { route: route.path.clone(), got: fault })
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
                group: &route.group,
                methods: route.method_names(),
                path: &route.path,
            })
            .collect();
        routes.sort_by(|a, b| (a.path, &a.methods).cmp(&(b.path, &b.methods)));
        let mut upstreams: Vec<CanonicalUpstream<'_>> = self
            .servers
            .iter()
            .map(|server| CanonicalUpstream {
                cache_salt: server.cache_salt,
                group: &server.group,
                model_manifest_sha256: server.model_manifest_sha256.map(hex::encode),
                models: server.models.iter().map(String::as_str).collect(),
                tls_roots: server.upstream.roots().map(UpstreamRoots::canonical_name),
                url: server.upstream.url(),
                weights: server.measured_weights().map(CanonicalWeights::from),
            })
            .collect();
        upstreams.sort_by(|a, b| (a.group, &a.url).cmp(&(b.group, &b.url)));
        let canonical = CanonicalConfiguration {
            answer_shape: self.answer_shape.map(|shape| CanonicalShape {
                interval_ms: shape.interval_ms(),
                record_bytes: shape.record_bytes(),
                slots_step: shape.slots_step(),
            }),
            binding: self.binding.name(),
            confide_configuration: FORM_VERSION,
            routes,
            tunnel_allow: self.tunnel_allow.iter().map(String::as_str).collect(),
            upstreams,
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
        match (self.binding, self.servers.iter().all(|server| server.upstream.is_loopback())) {
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

    /// The source of the digests of models' manifests, if there is one.
    pub fn model_manifest_source(&self) -> Option<&'static str> {
        let has_manifest = |server: &ModelServer| server.model_manifest_sha256.is_some();
        self.servers.iter().any(has_manifest).then_some(MANIFEST_SOURCE)
    }
}

// The fields are in the order of their names, as the canonical form requires.
#[derive(Serialize)]
struct CanonicalConfiguration<'a> {
    /// Absent without a shape, so that the digest of such a configuration stays what it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_shape: Option<CanonicalShape>,
    binding: &'static str,
    confide_configuration: u32,
    routes: Vec<CanonicalRoute<'a>>,
    tunnel_allow: BTreeSet<&'a str>,
    upstreams: Vec<CanonicalUpstream<'a>>,
}

#[derive(Serialize)]
struct CanonicalShape {
    interval_ms: u16,
    record_bytes: u16,
    slots_step: u16,
}

#[derive(Serialize)]
struct CanonicalRoute<'a> {
    group: &'a str,
    methods: Vec<&'a str>,
    path: &'a str,
}

// Shares of requests (`weight`), limits and health checks are not here: they decide when a server
// gets a prompt, not whether it may see one.
#[derive(Serialize)]
struct CanonicalUpstream<'a> {
    /// Absent unless it is true, so that the digest of such a configuration stays what it was.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cache_salt: bool,
    group: &'a str,
    model_manifest_sha256: Option<String>,
    models: BTreeSet<&'a str>,
    tls_roots: Option<String>,
    url: String,
    weights: Option<CanonicalWeights>,
}

#[derive(Serialize)]
struct CanonicalWeights {
    sha256: String,
    source: &'static str,
}

impl From<MeasuredWeights> for CanonicalWeights {
    fn from(weights: MeasuredWeights) -> Self {
        Self { sha256: hex::encode(weights.digest), source: weights.source.as_str() }
    }
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
        configuration.routes = ["POST,GET /v1/x", "/health"]
            .map(|text| Route::parse(text, DEFAULT_GROUP).unwrap())
            .into();
        configuration.servers.push(ModelServer {
            group: "audio".into(),
            models: vec!["w".into(), "\"b\"".into()],
            model_manifest_sha256: Some([0xab; 32]),
            ..ModelServer::new(upstream("http://10.0.0.1:9000/x"))
        });
        let json = r#"{"binding":"key","confide_configuration":5,"routes":["#.to_owned()
            + r#"{"group":"default","methods":["GET","HEAD","POST"],"path":"/health"},"#
            + r#"{"group":"default","methods":["GET","POST"],"path":"/v1/x"}],"#
            + r#""tunnel_allow":[],"upstreams":[{"group":"audio","model_manifest_sha256":""#
            + &"ab".repeat(32)
            + r#"","models":["\"b\"","w"],"tls_roots":null,"url":"http://10.0.0.1:9000/x","weights":null},"#
            + r#"{"group":"default","model_manifest_sha256":null,"models":[],"#
            + r#""tls_roots":null,"url":"http://127.0.0.1:8000","weights":null}]}"#;
        assert_eq!(String::from_utf8(configuration.canonical_json()).unwrap(), json);
        assert_eq!(configuration.digest(), <[u8; 32]>::from(Sha256::digest(json)));
    }

    /// A file of one root; its SHA-256 is in the canonical form below.
    const ROOT: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIIBMjCB5aADAgECAhR6sVebto77gZ8+E1pU5huiJbM7ZTAFBgMrZXAwDzENMAsG\n\
        A1UEAwwEcm9vdDAeFw0yNjExMjgwNzU4MjVaFw0zNjExMjUwNzU4MjVaMA8xDTAL\n\
        BgNVBAMMBHJvb3QwKjAFBgMrZXADIQCuBEh50HW68rOtR/bQkukVSUXUS45W4O2q\n\
        2ihHeEgJ5aNTMFEwHQYDVR0OBBYEFOHbvWWiZ5exSTVkZeaJIHSCgzwXMB8GA1Ud\n\
        IwQYMBaAFOHbvWWiZ5exSTVkZeaJIHSCgzwXMA8GA1UdEwEB/wQFMAMBAf8wBQYD\n\
        K2VwA0EAcYtKXHc9UxsaSK4fdKhhhbLp56gz4BF4RJc/zjnbCBX23zs8WQXCUfc3\n\
        1OsBju0caD2TsHDSj3q9GZtLpimzBA==\n\
        -----END CERTIFICATE-----\n\
        ";

    fn roots(pem: &str) -> UpstreamRoots {
        UpstreamRoots::from_pem(pem.as_bytes(), || 0).unwrap()
    }

    #[test]
    fn the_roots_of_an_https_upstream_are_in_the_digest() {
        let mut configuration = single("https://10.0.0.1");
        configuration.routes = vec![Route::parse("POST /v1/x", DEFAULT_GROUP).unwrap()];
        assert!(matches!(
            configuration.check_upstream_roots(),
            Err(GatewayError::UpstreamRoots { .. })
        ));
        configuration.servers[0].upstream.set_roots(roots(ROOT));
        assert!(configuration.check_upstream_roots().is_ok());
        let json = r#"{"binding":"key","confide_configuration":5,"routes":["#.to_owned()
            + r#"{"group":"default","methods":["POST"],"path":"/v1/x"}],"tunnel_allow":[],"#
            + r#""upstreams":[{"group":"default","model_manifest_sha256":null,"models":[],"#
            + r#""tls_roots":"d1a524efcc27f4fb59af2e29c0dd8a82698eca1e0608d0b5f5c97e88a8d35ac8","#
            + r#""url":"https://10.0.0.1:443","weights":null}]}"#;
        assert_eq!(String::from_utf8(configuration.canonical_json()).unwrap(), json);
        let digest = "cfb29b9d333d77fa95ed09a46a787acce6c640e2864f2e849871f643d8d4b3a6";
        assert_eq!(hex::encode(configuration.digest()), digest);
        let mut other = configuration.clone();
        other.servers[0].upstream.set_roots(roots(&[ROOT, ROOT].concat()));
        assert_ne!(configuration.digest(), other.digest());
    }

    #[test]
    fn measured_weights_are_in_the_digest_and_the_claims() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, "weights").unwrap();
        let mut configuration = single("http://127.0.0.1:8000");
        configuration.servers[0].weights_path = Some(path.clone());
        assert!(configuration.check_weights().is_err());
        let before = configuration.digest();
        configuration.measure_weights(None).unwrap();
        assert!(configuration.check_weights().is_ok());
        assert_ne!(configuration.digest(), before);
        let sha256 = hex::encode(Sha256::digest("weights"));
        let json = String::from_utf8(configuration.canonical_json()).unwrap();
        let wanted =
            format!(r#""weights":{{"sha256":"{sha256}","source":"hashed at start"}}}}]}}"#);
        assert!(json.ends_with(&wanted), "{json}");
        assert!(configuration.weights_claim().unwrap().is_complete());

        // A reload reads only files that have changed.
        let mut reloaded = configuration.clone();
        reloaded.measure_weights(Some(&configuration)).unwrap();
        let both = [&reloaded, &configuration].map(|each| each.servers[0].weights.clone().unwrap());
        assert!(Arc::ptr_eq(&both[0], &both[1]));
        std::fs::write(&path, "other weights").unwrap();
        reloaded.measure_weights(Some(&configuration)).unwrap();
        assert_ne!(reloaded.digest(), configuration.digest());

        configuration.servers.push(ModelServer {
            group: "other".into(),
            ..ModelServer::new(upstream("http://10.0.0.1:1"))
        });
        assert!(!configuration.weights_claim().unwrap().is_complete());
    }

    #[test]
    fn a_shape_is_in_the_canonical_form_and_excludes_websockets() {
        let mut configuration = single("http://127.0.0.1:8000");
        configuration.answer_shape = Some("1024/50/64".parse().unwrap());
        let json = String::from_utf8(configuration.canonical_json()).unwrap();
        let shape = r#"{"interval_ms":50,"record_bytes":1024,"slots_step":64}"#;
        assert!(json.starts_with(&format!("{{\"answer_shape\":{shape},\"binding\":")), "{json}");
        assert!(configuration.check().is_ok());
        configuration.add_route(Route::parse("WEBSOCKET /v1/realtime", DEFAULT_GROUP).unwrap());
        let refused = configuration.check();
        assert!(matches!(refused, Err(GatewayError::UnshapedWebSocket { .. })), "{refused:?}");
    }

    #[test]
    fn a_group_is_salted_as_a_whole_and_its_servers_say_so() {
        let mut configuration = single("http://127.0.0.1:8000");
        configuration.servers[0].cache_salt = true;
        let json = String::from_utf8(configuration.canonical_json()).unwrap();
        assert!(json.contains(r#""upstreams":[{"cache_salt":true,"group":"default","#), "{json}");
        configuration.servers.push(ModelServer::new(upstream("http://127.0.0.1:8001")));
        assert!(matches!(configuration.check(), Err(GatewayError::Server { .. })));
        configuration.servers[1].cache_salt = true;
        assert!(configuration.check().is_ok());
        configuration.add_route(Route::parse("WEBSOCKET /v1/realtime", DEFAULT_GROUP).unwrap());
        let refused = configuration.check();
        assert!(matches!(refused, Err(GatewayError::UnsaltedWebSocket { .. })), "{refused:?}");
    }

    #[test]
    fn whatever_decides_where_a_prompt_goes_changes_the_digest() {
        let base = single("http://127.0.0.1:8000");
        let mut changed = vec![single("http://127.0.0.1:8001"), single("http://10.0.0.1:8000")];
        changed.push(GatewayConfiguration { binding: Binding::Session, ..base.clone() });
        changed.push(GatewayConfiguration { tunnel_allow: vec!["a:1".into()], ..base.clone() });
        for shape in ["1024/50/64", "1025/50/64", "1024/51/64", "1024/50/65"] {
            let answer_shape = Some(shape.parse().unwrap());
            changed.push(GatewayConfiguration { answer_shape, ..base.clone() });
        }
        for server in [
            ModelServer { model_manifest_sha256: Some([0; 32]), ..base.servers[0].clone() },
            ModelServer { models: vec!["m".into()], ..base.servers[0].clone() },
            ModelServer { group: "other".into(), ..base.servers[0].clone() },
            ModelServer { cache_salt: true, ..base.servers[0].clone() },
        ] {
            changed.push(GatewayConfiguration { servers: vec![server], ..base.clone() });
        }
        let mut other_group = base.clone();
        other_group.routes[0].group = "other".into();
        let mut other_path = base.clone();
        other_path.routes[0].path = "/v2".into();
        let mut other_methods = base.clone();
        other_methods.routes[0].methods = RouteMethods::Only(vec![http::Method::PUT]);
        let mut one_more = base.clone();
        one_more.add_route(Route::parse("/metrics", DEFAULT_GROUP).unwrap());
        let mut everything = base.clone();
        everything.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
        changed.extend([other_path, other_methods, other_group, one_more, everything]);
        for other in changed {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
        let mut keyed = base.clone();
        keyed.routes[0].by_key_id = true;
        assert_eq!(base.digest(), keyed.digest(), "it decides which of the servers gets a prompt");
        let mut busier = base.clone();
        (busier.servers[0].weight, busier.servers[0].requests_max) = (7, 3);
        busier.servers[0].health_path = "/up".into();
        assert_eq!(base.digest(), busier.digest(), "neither decides who may see a prompt");
    }

    #[test]
    fn the_order_in_which_lists_were_given_does_not_matter() {
        let (a, b) = (upstream("http://127.0.0.1:1"), upstream("http://127.0.0.1:2"));
        let route = |path: &str, group: &str| Route::parse(path, group).unwrap();
        let mut one = GatewayConfiguration::with_upstream(Binding::Key, a);
        one.servers.push(ModelServer { group: "b".into(), ..ModelServer::new(b) });
        one.servers[0].models = vec!["m".into(), "n".into()];
        one.routes = vec![route("/", DEFAULT_GROUP), route("/v1", "b")];
        let mut two = one.clone();
        two.servers.reverse();
        two.servers[1].models.reverse();
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
        mixed.servers.push(ModelServer::new(upstream("http://10.0.0.1:1")));
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
    fn a_route_without_a_server_and_a_server_without_a_route_are_refused() {
        let mut configuration = single("http://127.0.0.1:1");
        assert!(configuration.check().is_ok());
        configuration.servers[0].group = "other".into();
        assert!(matches!(configuration.check(), Err(GatewayError::UnknownGroup { .. })));
        configuration.servers.push(ModelServer::new(upstream("http://127.0.0.1:2")));
        assert!(matches!(configuration.check(), Err(GatewayError::UnusedGroup { .. })));
        configuration.routes.clear();
        assert!(matches!(configuration.check(), Err(GatewayError::NoRoute)));
    }

    #[test]
    fn a_route_that_selects_the_server_by_key_has_servers_that_get_only_what_it_passes_on() {
        let mut configuration = single("http://127.0.0.1:1");
        configuration.routes[0].by_key_id = true;
        assert!(configuration.check().is_ok());
        let refuse = |change: fn(&mut GatewayConfiguration)| {
            let mut other = configuration.clone();
            change(&mut other);
            let refused = other.check();
            assert!(matches!(refused, Err(GatewayError::KeyedRoute { .. })), "{refused:?}");
        };
        refuse(|other| other.servers[0].models = vec!["m".into()]);
        refuse(|other| other.servers[0].cache_salt = true);
        refuse(|other| other.answer_shape = Some("1024/50/64".parse().unwrap()));
        refuse(|other| other.routes[0].methods = RouteMethods::Only(vec![websocket_method()]));
        refuse(|other| {
            let server = |port| ModelServer::new(upstream(&format!("http://127.0.0.1:{port}")));
            other.servers = (1..=17).map(server).collect();
        });
    }

    #[test]
    fn a_route_or_a_server_that_is_listed_twice_is_refused() {
        let mut routes = single("http://127.0.0.1:1");
        routes.routes.push(routes.routes[0].clone());
        assert!(matches!(routes.check(), Err(GatewayError::Route { .. })));
        let mut servers = single("http://127.0.0.1:1");
        servers.servers.push(ModelServer { weight: 2, ..servers.servers[0].clone() });
        assert!(matches!(servers.check(), Err(GatewayError::Server { .. })));
        servers.servers = (1..=SERVERS_MAX + 1)
            .map(|port| ModelServer::new(upstream(&format!("http://127.0.0.1:{port}"))))
            .collect();
        assert!(matches!(servers.check(), Err(GatewayError::ServerCount { got: 65 })));
    }

    #[test]
    fn the_model_manifest_is_named_as_the_upstreams_own_word() {
        let mut known = single("http://127.0.0.1:8000");
        known.servers[0].model_manifest_sha256 = Some([0xab; 32]);
        let shown: serde_json::Value =
            serde_json::from_slice(&known.description_json(false)).unwrap();
        assert_eq!(shown["model_manifest_source"], "claimed by the upstream");
    }

    #[test]
    fn a_route_that_is_there_already_is_not_added_twice() {
        let mut configuration = single("http://127.0.0.1:1");
        let digest = configuration.digest();
        for listed in ["POST /v1/embeddings", "GET /v1/models/**"] {
            configuration.add_route(Route::parse(listed, DEFAULT_GROUP).unwrap());
            assert_eq!(configuration.digest(), digest, "{listed}");
        }
        configuration.add_route(Route::parse("/v1/embeddings", DEFAULT_GROUP).unwrap());
        assert!(configuration.check().is_ok());
        assert_ne!(configuration.digest(), digest);
        assert!(!configuration.allows_all_routes());
    }
}

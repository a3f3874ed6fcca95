//! A model server in the configuration.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use confide_evidence::weights_claim::MeasuredWeights;
use confide_weights::WeightsMeasurement;
use http::uri::PathAndQuery;

use crate::{error::GatewayError, model_field::is_model_name, upstream::Upstream};

/// The group of the servers and routes for which no other is given.
pub const DEFAULT_GROUP: &str = "default";
/// The largest number of model servers of a gateway. It bounds the work of choosing one, and a set
/// of servers fits into a machine word.
pub const SERVERS_MAX: usize = 64;
/// The largest weight of a server, so that loads are compared without overflow.
pub const WEIGHT_MAX: u32 = 1000;
/// The path of the health check, which vLLM, SGLang, llama.cpp and TGI serve.
const HEALTH_PATH: &str = "/health";
/// The largest number of bytes of a group's name, which appears in logs and labels.
const GROUP_BYTES_MAX: usize = 64;
/// The largest number of models of one server, which bounds the work of finding one.
const MODELS_MAX: usize = 1000;

/// A model server, and which requests it is chosen for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelServer {
    /// The address.
    pub upstream: Upstream,
    /// The group, to which routes lead.
    pub group: String,
    /// The models for which it is chosen, by the `model` field of requests; if the list is empty,
    /// it is chosen for any model.
    pub models: Vec<String>,
    /// SHA-256 of the manifest of the one model that the server names, if it is known.
    ///
    /// The server states this digest, and nothing is measured for it. If it is known, the gateway asks
    /// for it repeatedly, and stops serving when the answer changes.
    pub model_manifest_sha256: Option<[u8; 32]>,
    /// The share of requests relative to the other servers of the group: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The largest number of requests that run at once; 0 for no limit. Further requests wait in
    /// the queue of the group.
    pub requests_max: u32,
    /// The path of the health check, below the address.
    pub health_path: String,
    /// Whether the gateway writes a salt for the tenant into requests, so that tenants share nothing
    /// in the server's prefix cache. It is the same for all servers of a group.
    pub cache_salt: bool,
    /// The PEM file with the only root certificates that an https address is verified by; `None`
    /// for those of the operating system.
    pub roots_file: Option<PathBuf>,
    /// The file or folder with the weights of a server on this machine, for the gateway to measure.
    pub weights_path: Option<PathBuf>,
    /// The measurement of `weights_path`, once it was made.
    pub weights: Option<Arc<WeightsMeasurement>>,
}

impl ModelServer {
    /// A server of the group `default` for any model, of weight 1, without a limit on requests.
    pub fn new(upstream: Upstream) -> Self {
        Self {
            upstream,
            group: DEFAULT_GROUP.into(),
            models: Vec::new(),
            model_manifest_sha256: None,
            weight: 1,
            requests_max: 0,
            health_path: HEALTH_PATH.into(),
            cache_salt: false,
            roots_file: None,
            weights_path: None,
            weights: None,
        }
    }

    /// The measured weights as they stand in claims.
    pub fn measured_weights(&self) -> Option<MeasuredWeights> {
        self.weights.as_deref().map(WeightsMeasurement::claim)
    }

    /// The address at which a server listens whose weights are measured.
    pub(crate) fn listening_address(&self) -> Option<SocketAddr> {
        self.upstream.is_loopback().then(|| self.upstream.authority().as_str().parse().ok())?
    }

    /// Checks the ranges of all fields.
    pub(crate) fn check(&self) -> Result<(), GatewayError> {
        let refuse = |wanted, got: String| {
            Err(GatewayError::Server { url: self.upstream.url(), wanted, got })
        };
        if !is_group_name(&self.group) {
            let wanted = "a group of 1 to 64 of the characters a-z, 0-9, `-` and `_`";
            return refuse(wanted, format!("{:?}", self.group));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return refuse("a weight of 1 to 1000", self.weight.to_string());
        }
        if self.models.len() > MODELS_MAX {
            return refuse("at most 1000 models", self.models.len().to_string());
        }
        for (index, model) in self.models.iter().enumerate() {
            if !is_model_name(model) {
                let wanted = "names of models of 1 to 256 bytes without control characters";
                return refuse(wanted, format!("{model:?}"));
            }
            if self.models[..index].contains(model) {
                return refuse("each model once", format!("{model:?} twice"));
            }
        }
        if let Some(path) = self.roots_file.as_ref().filter(|_| !self.upstream.is_https()) {
            return refuse("root certificates for https only", path.display().to_string());
        }
        if self.weights_path.is_some() && self.listening_address().is_none() {
            let wanted = "weights to measure of a server on this machine (127.0.0.1 or [::1])";
            return refuse(wanted, "a server on another machine".into());
        }
        self.parse_health_path().map(drop)
    }

    pub(crate) fn parse_health_path(&self) -> Result<PathAndQuery, GatewayError> {
        let path = self.health_path.starts_with('/').then(|| self.health_path.parse().ok());
        path.flatten().ok_or_else(|| GatewayError::Server {
            url: self.upstream.url(),
            wanted: "a health path that starts with `/`",
            got: self.health_path.clone(),
        })
    }
}

fn is_group_name(name: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=GROUP_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_field::MODEL_BYTES_MAX;

    fn server() -> ModelServer {
        ModelServer::new(Upstream::parse("http://127.0.0.1:1").unwrap())
    }

    #[test]
    fn every_field_of_a_server_has_a_range() {
        assert!(server().check().is_ok());
        let models = |models: &[&str]| ModelServer {
            models: models.iter().map(|&model| model.to_owned()).collect(),
            ..server()
        };
        assert!(models(&["a", "org/name:tag"]).check().is_ok());
        for unusable in [
            ModelServer { weight: 0, ..server() },
            ModelServer { weight: WEIGHT_MAX + 1, ..server() },
            ModelServer { group: String::new(), ..server() },
            ModelServer { group: "Chat".into(), ..server() },
            ModelServer { group: "g".repeat(GROUP_BYTES_MAX + 1), ..server() },
            ModelServer { health_path: "health".into(), ..server() },
            ModelServer { health_path: "/he alth".into(), ..server() },
            ModelServer { models: vec!["m".into(); MODELS_MAX + 1], ..server() },
            ModelServer { roots_file: Some("ca.pem".into()), ..server() },
            ModelServer {
                weights_path: Some("model".into()),
                ..ModelServer::new(Upstream::parse("http://10.0.0.1:1").unwrap())
            },
            models(&["a", "a"]),
            models(&[""]),
            models(&["a\n"]),
            models(&["m".repeat(MODEL_BYTES_MAX + 1).as_str()]),
        ] {
            let refused = unusable.check();
            assert!(matches!(refused, Err(GatewayError::Server { .. })), "{unusable:?}");
        }
    }
}

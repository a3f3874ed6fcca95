//! The model that the upstream states it serves, and the check that it does not change.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::sync::watch;

use crate::{
    connection::{Connection, ModelList},
    error::GatewayError,
    fault::{UpstreamFailure, UpstreamFault},
    limits::GatewayLimits,
    upstream::Upstream,
};

/// Requests `GET /v1/models` once. Returns the manifest's SHA-256 if exactly one model is listed
/// and its entry has `confide_manifest_sha256` (as `confide serve` writes it), otherwise `None`.
///
/// The upstream states the manifest digest, and nothing measures the weights. The digest pins the
/// model for which the gateway was started.
///
/// # Errors
///
/// [`GatewayError::Models`] if no list arrived within `deadline`.
pub async fn fetch_model_manifest(
    upstream: &Upstream,
    deadline: Duration,
) -> Result<Option<[u8; 32]>, GatewayError> {
    let failed = |reason: String, is_transient| {
        Err(GatewayError::Models { url: upstream.url(), reason, is_transient })
    };
    let limits = GatewayLimits { upstream_connect: deadline, ..GatewayLimits::default() };
    let listed = async {
        let connection = Connection::open(upstream, &limits).await?;
        connection.list_models(upstream, deadline).await
    };
    match tokio::time::timeout(deadline, listed).await {
        Ok(Ok((ModelList::List(list), _))) => Ok(single_model_manifest(&list)),
        Ok(Ok((ModelList::Refused(status), _))) => {
            failed(format!("status {status}"), is_transient(status))
        }
        Ok(Err(failure)) => failed(failure.reason, true),
        Err(_) => failed(format!("no answer within {deadline:?}"), true),
    }
}

/// Whether a server answers with this status while it is loading or busy.
fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn single_model_manifest(list: &[u8]) -> Option<[u8; 32]> {
    let list: serde_json::Value = serde_json::from_slice(list).ok()?;
    let [model] = list.get("data")?.as_array()?.as_slice() else { return None };
    let mut digest = [0; 32];
    hex::decode_to_slice(model.get("confide_manifest_sha256")?.as_str()?, &mut digest).ok()?;
    Some(digest)
}

/// Remembers whether a model server has ever had another model than the attested one: named another,
/// or had other weights than the measured ones.
///
/// It is never reset: the evidence keeps attesting a false digest, so the gateway has to be
/// restarted, or reloaded with a new configuration and evidence.
#[derive(Default)]
pub(crate) struct ModelChange(watch::Sender<bool>);

impl ModelChange {
    pub(crate) fn has_happened(&self) -> bool {
        *self.0.borrow()
    }

    /// Closes every session. Returns whether it is the first change.
    pub(crate) fn mark(&self) -> bool {
        !self.0.send_replace(true)
    }

    /// Resolves once a server has named another model.
    pub(crate) async fn wait(&self) {
        // The sender lives as long as this borrow.
        let _ = self.0.subscribe().wait_for(|has_happened| *has_happened).await;
    }
}

/// The model of one server that was attested.
pub(crate) struct AttestedModelWatch {
    /// The attested manifest; `None` if no model was attested.
    wanted: Option<[u8; 32]>,
    change: Arc<ModelChange>,
}

impl AttestedModelWatch {
    pub(crate) fn new(wanted: Option<[u8; 32]>, change: Arc<ModelChange>) -> Self {
        Self { wanted, change }
    }

    /// The digest of the attested manifest.
    pub(crate) fn wanted_digest(&self) -> Option<[u8; 32]> {
        self.wanted
    }

    /// Whether a model was attested, which the upstream then has to name.
    pub(crate) fn expects_model(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether this or another server has named another model.
    pub(crate) fn was_model_swapped(&self) -> bool {
        self.change.has_happened()
    }

    /// Asks for the model on `connection`, and returns the connection if another request may follow.
    /// If the answer names another model, all later requests are refused; a failure to ask does not
    /// have this effect.
    pub(crate) async fn confirm_model(
        &self,
        connection: Connection,
        upstream: &Upstream,
        deadline: Duration,
    ) -> Result<Option<Connection>, UpstreamFailure> {
        let Some(wanted) = self.wanted else { return Ok(Some(connection)) };
        let (list, connection) = connection.list_models(upstream, deadline).await?;
        let got = match list {
            ModelList::List(list) => single_model_manifest(&list),
            ModelList::Refused(status) if is_transient(status) => {
                let reason =
                    format!("the request for its list of models was answered with status {status}");
                return Err(UpstreamFailure::new(UpstreamFault::NotReady, reason));
            }
            ModelList::Refused(_) => None,
        };
        if got == Some(wanted) && !self.was_model_swapped() {
            return Ok(connection);
        }
        let (wanted, got) = (hex::encode(wanted), got.map_or("none".into(), hex::encode));
        if self.change.mark() {
            tracing::error!(
                upstream = %upstream.url(),
                %wanted,
                %got,
                "upstream no longer names the attested model: every session is closed and \
                 nothing is proxied until the gateway is restarted or reloaded, with the new digest"
            );
        }
        let reason = format!("model manifest: wanted {wanted}, got {got}");
        Err(UpstreamFailure::new(UpstreamFault::ModelChanged, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_listed_model_with_a_digest_is_known() {
        let entry = |hex: &str| format!(r#"{{"id":"m","confide_manifest_sha256":"{hex}"}}"#);
        let good = entry(&"ab".repeat(32));
        let list = |entries: &str| format!(r#"{{"object":"list","data":[{entries}]}}"#);
        let known = single_model_manifest(list(&good).as_bytes());
        assert_eq!(known, Some([0xab; 32]));
        for unknown in [
            list(&format!("{good},{good}")),
            list(r#"{"id":"m"}"#),
            list(r#"{"id":"m","confide_manifest_sha256":null}"#),
            list(&entry("ab")),
            list(""),
            "no json".into(),
        ] {
            assert_eq!(single_model_manifest(unknown.as_bytes()), None, "{unknown}");
        }
    }
}

//! The model that the upstream says it serves, and whether it still says so.

use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;

use crate::{
    connection::{Connection, ModelList},
    error::GatewayError,
    fault::{UpstreamFailure, UpstreamFault},
    limits::GatewayLimits,
    upstream::Upstream,
};

/// Asks `GET /v1/models` once: the manifest's SHA-256 where exactly one model is listed and its
/// entry has `confide_manifest_sha256` (as `confide serve` writes it), otherwise `None`.
///
/// The manifest rests on the upstream's own word. It pins the model that the gateway was started
/// for; it does not measure weights.
///
/// # Errors
///
/// [`GatewayError::Models`] if no list came within `deadline`.
pub async fn ask(
    upstream: &Upstream,
    deadline: Duration,
) -> Result<Option<[u8; 32]>, GatewayError> {
    let failed = |reason: String, may_pass| {
        Err(GatewayError::Models { url: upstream.url(), reason, may_pass })
    };
    let limits = GatewayLimits { upstream_connect: deadline, ..GatewayLimits::default() };
    let listed = async {
        let mut connection = Connection::open(upstream, &limits).await?;
        connection.list_models(upstream, deadline).await
    };
    match tokio::time::timeout(deadline, listed).await {
        Ok(Ok(ModelList::List(list))) => Ok(single_model_manifest(&list)),
        Ok(Ok(ModelList::Refused(status))) => failed(format!("status {status}"), may_pass(status)),
        Ok(Err(failure)) => failed(failure.reason, true),
        Err(_) => failed(format!("no answer within {deadline:?}"), true),
    }
}

/// Whether a server that still loads, or is busy, would answer with this status.
fn may_pass(status: StatusCode) -> bool {
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

/// Remembers which model was attested, and for good that the upstream once named another.
///
/// The latter is never unset: the evidence goes on attesting a digest that is false, so only a
/// gateway that is started again may serve again.
pub(crate) struct ManifestWatch {
    /// The attested manifest; `None` if no model was attested, so that nothing can become false.
    wanted: Option<[u8; 32]>,
    changed: watch::Sender<bool>,
}

impl ManifestWatch {
    pub(crate) fn new(wanted: Option<[u8; 32]>) -> Self {
        Self { wanted, changed: watch::Sender::new(false) }
    }

    /// Whether a model was attested, so that the upstream has to name it.
    pub(crate) fn is_needed(&self) -> bool {
        self.wanted.is_some()
    }

    pub(crate) fn has_changed(&self) -> bool {
        *self.changed.borrow()
    }

    /// Resolves when the upstream names another model, or has named one.
    pub(crate) async fn wait_for_change(&self) {
        // The sender lives as long as this borrow.
        let _ = self.changed.subscribe().wait_for(|changed| *changed).await;
    }

    /// Asks on `connection`, and refuses everything from then on where the answer names another
    /// model. A server that cannot be asked is not another server.
    pub(crate) async fn ask(
        &self,
        connection: &mut Connection,
        upstream: &Upstream,
        deadline: Duration,
    ) -> Result<(), UpstreamFailure> {
        let Some(wanted) = self.wanted else { return Ok(()) };
        let got = match connection.list_models(upstream, deadline).await? {
            ModelList::List(list) => single_model_manifest(&list),
            ModelList::Refused(status) if may_pass(status) => {
                let reason = format!("status {status} to the question for its models");
                return Err(UpstreamFailure::new(UpstreamFault::NotReady, reason));
            }
            ModelList::Refused(_) => None,
        };
        if got == Some(wanted) && !self.has_changed() {
            return Ok(());
        }
        let (wanted, got) = (hex::encode(wanted), got.map_or("none".into(), hex::encode));
        if !self.changed.send_replace(true) {
            tracing::error!(
                upstream = %upstream.url(),
                %wanted,
                %got,
                "upstream no longer names the model that was attested: every session is closed and \
                 nothing is proxied until the gateway is started again with the new digest"
            );
        }
        let reason = format!("model manifest: wanted {wanted}, got {got}");
        Err(UpstreamFailure::new(UpstreamFault::Changed, reason))
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

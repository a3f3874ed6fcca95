//! Which model the upstream says it serves.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{GatewayError, Upstream};

/// The list of a server with thousands of models fits; a flood does not.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// Asks `GET /v1/models` once: the manifest's SHA-256 where exactly one model is listed and its
/// entry has `confide_manifest_sha256` (as `confide serve` writes it), otherwise `None`.
///
/// This is the upstream's own word. It pins which model the gateway was started for; it does not
/// measure weights.
pub async fn ask(
    upstream: &Upstream,
    deadline: Duration,
) -> Result<Option<[u8; 32]>, GatewayError> {
    let failed = |reason: String, may_pass| {
        Err(GatewayError::Models { url: upstream.url(), reason, may_pass })
    };
    match tokio::time::timeout(deadline, list_models(upstream)).await {
        Ok(Ok(Listed::List(list))) => Ok(manifest_of_the_only_model(&list)),
        // A server that still loads says so with such a status.
        Ok(Ok(Listed::Refused(status))) => {
            failed(format!("status {status}"), status.is_server_error())
        }
        Ok(Err(error)) => failed(error.to_string(), true),
        Err(_) => failed(format!("no answer within {deadline:?}"), true),
    }
}

enum Listed {
    List(Bytes),
    Refused(StatusCode),
}

async fn list_models(
    upstream: &Upstream,
) -> Result<Listed, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(upstream.authority().as_str()).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut target = upstream.uri_for(&http::Uri::from_static("/v1/models"))?.into_parts();
    (target.scheme, target.authority) = (None, None);
    let request = Request::get(http::Uri::from_parts(target)?)
        .header(header::HOST, upstream.host_header())
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Ok(Listed::Refused(response.status()));
        }
        let body = Limited::new(response.into_body(), LIST_BYTES_MAX).collect().await?;
        Ok(Listed::List(body.to_bytes()))
    };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    let mut open = true;
    loop {
        tokio::select! {
            list = &mut exchange => return list,
            _ = &mut connection, if open => open = false,
        }
    }
}

fn manifest_of_the_only_model(list: &[u8]) -> Option<[u8; 32]> {
    let list: serde_json::Value = serde_json::from_slice(list).ok()?;
    let [model] = list.get("data")?.as_array()?.as_slice() else { return None };
    let mut digest = [0; 32];
    hex::decode_to_slice(model.get("confide_manifest_sha256")?.as_str()?, &mut digest).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_listed_model_with_a_digest_is_known() {
        let entry = |hex: &str| format!(r#"{{"id":"m","confide_manifest_sha256":"{hex}"}}"#);
        let good = entry(&"ab".repeat(32));
        let list = |entries: &str| format!(r#"{{"object":"list","data":[{entries}]}}"#);
        let known = manifest_of_the_only_model(list(&good).as_bytes());
        assert_eq!(known, Some([0xab; 32]));
        for unknown in [
            list(&format!("{good},{good}")),
            list(r#"{"id":"m"}"#),
            list(r#"{"id":"m","confide_manifest_sha256":null}"#),
            list(&entry("ab")),
            list(""),
            "no json".into(),
        ] {
            assert_eq!(manifest_of_the_only_model(unknown.as_bytes()), None, "{unknown}");
        }
    }
}

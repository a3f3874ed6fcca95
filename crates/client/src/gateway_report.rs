//! The attestation report of the gateway behind a proxy: requested with a nonce, and judged.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use confide_encrypted_body::{
    BodyKeyId, BodyPublicKey, KEY_ID_FIELD, OHTTP_GATEWAY_PATH, parse_key_configs,
};
use confide_http::error_chain;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::{
    error::ClientError,
    key_problem::is_key_problem,
    pool::{AnswerBody, HttpClient},
    request_body::empty_body,
    shared_key::{JudgedKey, KeyFailure},
};

/// The path of the attestation report.
const REPORT_PATH: &str = "/v1/aci/attestation";
/// The largest number of bytes of a report.
const REPORT_BYTES_MAX: usize = 1024 * 1024;
/// The largest number of bytes of a list of keys: 16 of the hybrid kind.
const KEYS_BYTES_MAX: usize = 32 * 1024;
/// How long a report is requested again while the gateway is busy with others, and the time from one
/// try to the next, which varies by half so that clients do not keep in step.
const REPORT_WAIT: Duration = Duration::from_secs(24);
const REPORT_PAUSE_MS: u64 = 400;
/// The number of bytes of the challenge in a request for a report.
pub const REPORT_NONCE_BYTES: usize = 32;

/// Judges an attestation report, which was requested with this nonce. An error says why nothing may
/// be sent.
pub type ReportJudge =
    Arc<dyn Fn(&[u8], &[u8; REPORT_NONCE_BYTES]) -> Result<JudgedKey, String> + Send + Sync>;

/// Requests a report and judges it. Of several gateways behind the proxy, that is asked which has the
/// key `named`, if it still has it and the proxy knows it.
pub(crate) async fn fetch_key(
    http: &HttpClient,
    judge: ReportJudge,
    named: Option<BodyKeyId>,
) -> Result<JudgedKey, KeyFailure> {
    let unavailable = |reason: String| KeyFailure::Unavailable { reason };
    let mut nonce = [0; REPORT_NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| unavailable(error.to_string()))?;
    let mut answer = request_report(http, &nonce, named).await;
    if named.is_some() && answer.as_ref().is_ok_and(is_key_problem) {
        // The answer holds a connection.
        drop(answer);
        answer = request_report(http, &nonce, None).await;
    }
    let answer = answer.map_err(|error| unavailable(error_chain(&error)))?;
    let status = answer.status();
    if status != StatusCode::OK {
        let reason = format!("status {status} instead of a report");
        return Err(match is_busy(status) || status.is_server_error() {
            true => KeyFailure::Unavailable { reason },
            false => KeyFailure::Refused { reason },
        });
    }
    let report = Limited::new(answer.into_body(), REPORT_BYTES_MAX).collect().await;
    let report = report.map_err(|error| unavailable(error.to_string()))?.to_bytes();
    // Signatures and certificates take milliseconds, in which no other request would move.
    let judged = tokio::task::spawn_blocking(move || judge(&report, &nonce)).await;
    let judged = judged.map_err(|error| unavailable(error.to_string()))?;
    judged.map_err(|reason| KeyFailure::Refused { reason })
}

/// Requests a report, again where the gateway is busy with others: it makes one a second for each
/// network, and a proxy may be the network of many clients.
async fn request_report(
    http: &HttpClient,
    nonce: &[u8; REPORT_NONCE_BYTES],
    named: Option<BodyKeyId>,
) -> Result<Response<AnswerBody>, ClientError> {
    let target = format!("{REPORT_PATH}?nonce={}", hex::encode(nonce));
    let began = Instant::now();
    loop {
        let mut request = Request::get(&target);
        if let Some(id) = named {
            request = request.header(KEY_ID_FIELD, id.to_string());
        }
        let request = request.body(empty_body()).map_err(ClientError::Request)?;
        let answer = http.request(request).await?.response;
        if began.elapsed() >= REPORT_WAIT || !is_busy(answer.status()) {
            return Ok(answer);
        }
        // The answer holds a connection.
        drop(answer);
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|_| ClientError::ReportUnavailable {
            reason: "the system has no randomness".into(),
        })?;
        let more = REPORT_PAUSE_MS * u64::from(u16::from_be_bytes(random)) / u64::from(u16::MAX);
        tokio::time::sleep(Duration::from_millis(REPORT_PAUSE_MS + more)).await;
    }
}

/// Requests the public keys of the gateways behind the proxy, for which nothing vouches.
pub(crate) async fn fetch_listed_keys(
    http: &HttpClient,
) -> Result<Vec<BodyPublicKey>, ClientError> {
    let unavailable = |reason: String| ClientError::ReportUnavailable { reason };
    let request = Request::get(OHTTP_GATEWAY_PATH).body(empty_body());
    let answer = http.request(request.map_err(ClientError::Request)?).await?.response;
    if answer.status() != StatusCode::OK {
        return Err(unavailable(format!("status {} instead of keys", answer.status())));
    }
    let keys = Limited::new(answer.into_body(), KEYS_BYTES_MAX).collect().await;
    let keys = keys.map_err(ClientError::Answer)?.to_bytes();
    parse_key_configs(&keys).map_err(ClientError::Encryption)
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

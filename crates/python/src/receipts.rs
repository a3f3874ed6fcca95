//! The receipt of an answer that came over an attested connection: fetched, with the report of its keyset, and judged.

use std::{sync::Arc, time::Duration};

use confide_client::empty_body;
use confide_receipt::{Json, Nonce, RECEIPT_BYTES_MAX, REPORT_BYTES_MAX, parse_digest_text};
use confide_verification::{ReceiptInput, ReceiptRules, judge_receipt};
use confide_verifier::{AwsLc, Policy};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use crate::{
    attested_end::AttestedEnd, exchange::WireRequest, failure::Failure, kept_report::KeptReport,
    runtime::unix_now, verify::accept_receipt,
};

/// The longest identifier of a receipt.
const ID_CHARS_MAX: usize = 128;
/// How often a document is requested while the gateway is busy, and the time from one try to the next.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// The header fields with a client's credentials: a receipt is given to the client of its request only.
const CREDENTIAL_FIELDS: [&[u8]; 3] = [b"authorization", b"x-api-key", b"api-key"];

/// An exchange whose receipt is to be judged.
pub(crate) struct Exchange {
    receipt_id: String,
    credentials: HeaderMap,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Exchange {
    /// The exchange of a request and the body of its answer.
    pub(crate) fn new(
        request: WireRequest,
        receipt_id: String,
        response: Vec<u8>,
    ) -> Result<Self, Failure> {
        let mut credentials = HeaderMap::new();
        for (name, value) in request.headers {
            if CREDENTIAL_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
                let name = HeaderName::from_bytes(&name).map_err(Failure::input)?;
                let value = HeaderValue::from_bytes(&value).map_err(Failure::input)?;
                credentials.append(name, value);
            }
        }
        Ok(Self { receipt_id, credentials, request: request.body, response })
    }
}

/// Fetches the receipt of an exchange and judges it; gives the verdict.
pub(crate) async fn check_receipt(
    end: Arc<AttestedEnd>,
    policy: Arc<Policy>,
    collateral: Option<Arc<[u8]>>,
    exchange: Exchange,
) -> Result<Value, Failure> {
    let Exchange { receipt_id, credentials, request, response } = exchange;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if receipt_id.len() > ID_CHARS_MAX || !receipt_id.chars().all(is_plain) {
        return Err(unavailable("the answer names a receipt by a malformed identifier"));
    }
    let source = DocumentSource { end: &end, credentials: &credentials };
    let target = format!("/v1/aci/receipts/{receipt_id}");
    let receipt = source.fetch(&target, RECEIPT_BYTES_MAX).await?;
    let report = source.find_report(&receipt).await?;
    let rules = ReceiptRules {
        policy: Policy::clone(&policy),
        nonce: Some(report.nonce),
        at: unix_now(),
        skips_configuration: false,
    };
    let input = ReceiptInput {
        report: report.report,
        receipt,
        excerpt: None,
        collateral: collateral.map(|bytes| bytes.to_vec()),
        request: Some(request),
        response: Some(response),
    };
    // Signatures and certificates take milliseconds, in which no other request would move.
    let judged = tokio::task::spawn_blocking(move || {
        let verdict = judge_receipt(&input, &rules, &AwsLc);
        check_identity(accept_receipt(&verdict, &input, &rules)?, &receipt_id)
    });
    judged.await.map_err(|error| unavailable(&error.to_string()))?
}

/// Refuses the receipt of another answer with the same bodies.
fn check_identity(document: Value, receipt_id: &str) -> Result<Value, Failure> {
    if document["receipt"]["receipt_id"] == receipt_id {
        return Ok(document);
    }
    let message = format!("the receipt is refused: it is not the receipt `{receipt_id}`");
    Err(Failure::Receipt {
        message,
        check: "receipt".into(),
        hint: None,
        document: Box::new(document),
    })
}

/// The end that has receipts and reports, and the credentials of the client that asks for them.
struct DocumentSource<'a> {
    end: &'a AttestedEnd,
    credentials: &'a HeaderMap,
}

impl DocumentSource<'_> {
    /// The report of the receipt's keyset: the one that was fetched last, or a new one for a new nonce.
    async fn find_report(&self, receipt: &[u8]) -> Result<KeptReport, Failure> {
        let document = Json::parse(receipt, RECEIPT_BYTES_MAX);
        let document = document.map_err(|error| unavailable(&format!("receipt: {error}")))?;
        let keyset_digest = document.get_text("workload_keyset_digest").unwrap_or_default();
        if parse_digest_text(keyset_digest).is_none() {
            return Err(unavailable("the receipt names no keyset"));
        }
        if let Some(report) = self.end.find_report(keyset_digest) {
            return Ok(report);
        }
        let mut nonce: Nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|error| unavailable(&error.to_string()))?;
        let query = format!("nonce={}&keyset={keyset_digest}", hex::encode(nonce));
        let report = self.fetch(&format!("/v1/aci/attestation?{query}"), REPORT_BYTES_MAX).await?;
        let report = KeptReport { keyset_digest: keyset_digest.to_owned(), nonce, report };
        self.end.keep_report(report.clone());
        Ok(report)
    }

    /// Fetches a document, again where the gateway is busy with others.
    async fn fetch(&self, target: &str, bytes_max: usize) -> Result<Vec<u8>, Failure> {
        let mut tries = 1;
        loop {
            let request = Request::get(target).body(empty_body());
            let mut request = request.map_err(Failure::input)?;
            request.headers_mut().extend(self.credentials.clone());
            let answer = self.end.http().request(request).await;
            let answer = answer.map_err(|error| Failure::of_client(self.end.url(), &error))?;
            let answer = answer.response;
            let status = answer.status();
            if status == StatusCode::OK {
                let body = Limited::new(answer.into_body(), bytes_max).collect().await;
                let body = body.map_err(|error| unavailable(&format!("{target}: {error}")))?;
                return Ok(body.to_bytes().to_vec());
            }
            let is_busy =
                matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            if tries == TRIES || !is_busy {
                return Err(unavailable(&format!("{target}: status {status}")));
            }
            tries += 1;
            // The answer holds a connection.
            drop(answer);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn unavailable(reason: &str) -> Failure {
    Failure::Receipt {
        message: format!("no receipt to judge: {reason}"),
        check: "receipt".into(),
        hint: None,
        document:
            json!({ "outcome": "error", "scope": "platform", "reason": reason, "checks": [] })
                .into(),
    }
}

//! Judges receipts of answers (`docs/receipts.md`) where aws-lc-rs does not run: report, quote, keyset, signature,
//! configuration, weights and bodies. The names of checks and refusals are those of `confide verify receipt`.

use std::time::Duration;

use confide_evidence::{EvidenceKind, UnixSeconds, detect_kind, weights_claim::WeightsSource};
use confide_receipt::{
    AttestationReport, CONFIGURATION_EVENT, FORWARDED_EVENT, Keyset, MODEL_EVENT, RECEIVED_EVENT,
    RETURNED_EVENT, ReceiptError, SignedReceipt, parse_digest_text,
};
use confide_verifier::{
    Endorsements, Evidence, Expect, Policy, Rejection, UnixTime, appraise, snp,
};
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::{Value, json};

use crate::crypto::RustCrypto;

/// How far a gateway's clock may be ahead, in seconds.
const CLOCK_AHEAD_S_MAX: u64 = 60;

/// The prime 2^255 - 19 in little-endian order.
const FIELD_PRIME: [u8; 32] = {
    let mut prime = [0xff; 32];
    prime[0] = 0xed;
    prime[31] = 0x7f;
    prime
};

/// The checks in their order.
const CHECKS: [&str; 9] = [
    "report",
    "evidence",
    "keyset",
    "receipt",
    "configuration",
    "weights",
    "request",
    "forwarded",
    "response",
];

/// The documents of one answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiptFiles<'a> {
    /// The attestation report, requested without a nonce.
    pub report: &'a [u8],
    /// The receipt.
    pub receipt: &'a [u8],
    /// The body of the request, byte by byte as it was sent.
    pub request: Option<&'a [u8]>,
    /// The body of the answer, byte by byte as it came.
    pub response: Option<&'a [u8]>,
}

/// The reason why a receipt is refused: the name of the refusal, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRefusal {
    /// The name for programs.
    pub code: &'static str,
    /// The text for people.
    pub reason: String,
}

/// The verdict on a receipt: each check with its outcome, the receipt once its signature was found valid, and the
/// refusal if there is one.
#[derive(Debug)]
pub struct ReceiptVerdict {
    checks: Vec<ReceiptCheck>,
    receipt: Option<SignedReceipt>,
    /// The reason of a refusal.
    pub refusal: Option<ReceiptRefusal>,
}

#[derive(Debug)]
struct ReceiptCheck {
    name: &'static str,
    outcome: &'static str,
    detail: String,
}

impl ReceiptVerdict {
    /// Whether the receipt says that the answer was cut.
    pub fn is_answer_cut(&self) -> bool {
        self.receipt.as_ref().is_some_and(|receipt| receipt.is_cut(RETURNED_EVENT))
    }

    /// The verdict as one object.
    pub fn to_json(&self) -> Value {
        let checks = self.checks.iter().map(|ReceiptCheck { name, outcome, detail }| {
            json!({ "name": name, "outcome": outcome, "detail": detail })
        });
        let document = self.receipt.as_ref().map(|receipt| receipt.document().to_canonical());
        let receipt: Value =
            document.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        json!({
            "outcome": if self.refusal.is_none() { "accepted" } else { "rejected" },
            "refused": self.refusal.as_ref().map(|refusal| refusal.code),
            "reason": self.refusal.as_ref().map(|refusal| refusal.reason.as_str()),
            "checks": checks.collect::<Value>(),
            "answer_cut": self.is_answer_cut(),
            "receipt": receipt,
        })
    }
}

/// Judges a receipt by `policy` at `now` in Unix seconds: every check in its order, up to the first that fails.
pub fn judge_receipt(policy: &Policy, files: ReceiptFiles<'_>, now: u64) -> ReceiptVerdict {
    let mut judgement = Judgement::new(policy, files, now);
    judgement.verdict.refusal = judgement.run_checks().err();
    judgement.verdict
}

/// Judges a receipt with the keyset of its report, whose quote the caller has judged.
pub fn judge_receipt_of_keyset(
    policy: &Policy,
    files: ReceiptFiles<'_>,
    keyset: &Keyset,
    now: u64,
) -> ReceiptVerdict {
    let mut judgement = Judgement::new(policy, files, now);
    judgement.verdict.refusal = judgement.check_receipt(keyset).err();
    judgement.verdict
}

/// Checks an Ed25519 signature as `docs/receipts.md` demands: without the cofactor, and with the canonical encoding
/// of the public key.
pub fn is_ed25519_signature(key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    let mut y = *key;
    // The highest bit is the sign of x.
    y[31] &= 0x7f;
    if y.iter().rev().ge(FIELD_PRIME.iter().rev()) {
        return false;
    }
    let signature = Signature::from_bytes(signature);
    VerifyingKey::from_bytes(key)
        .is_ok_and(|key| ed25519_dalek::Verifier::verify(&key, message, &signature).is_ok())
}

struct Judgement<'a> {
    policy: &'a Policy,
    files: ReceiptFiles<'a>,
    now: u64,
    verdict: ReceiptVerdict,
}

impl<'a> Judgement<'a> {
    fn new(policy: &'a Policy, files: ReceiptFiles<'a>, now: u64) -> Self {
        let unreached = |name| ReceiptCheck {
            name,
            outcome: "not_evaluated",
            detail: "not reached".to_owned(),
        };
        let checks = CHECKS.into_iter().map(unreached).collect();
        let verdict = ReceiptVerdict { checks, receipt: None, refusal: None };
        Self { policy, files, now, verdict }
    }

    fn run_checks(&mut self) -> Result<(), ReceiptRefusal> {
        let report = AttestationReport::parse(self.files.report, None);
        let report = report.map_err(|error| refusal(report_code(&error), error.to_string()));
        let report = self.note("report", report, |_| "made without a nonce".into())?;
        let evidence = judge_report_evidence(&report, self.policy, self.now);
        self.note("evidence", evidence, |()| "the policy accepts the quote".into())?;
        self.check_receipt(report.keyset())
    }

    fn check_receipt(&mut self, keyset: &Keyset) -> Result<(), ReceiptRefusal> {
        let now = self.now;
        let not_after = check_keyset(keyset, now);
        let not_after =
            self.note("keyset", not_after, |until| format!("until {}", UnixSeconds(*until)))?;
        let receipt = verify_receipt(self.files.receipt, keyset, self.policy, not_after, now);
        let receipt = self.note("receipt", receipt, |receipt| {
            let served_at = UnixSeconds(receipt.served_at());
            format!("signed, with the time {served_at} of the gateway's clock")
        })?;
        self.verdict.receipt = Some(receipt.clone());
        self.check_configuration(&receipt)?;
        self.check_weights(&receipt)?;
        self.check_body("request", &receipt, RECEIVED_EVENT, self.files.request)?;
        self.describe_forwarded(&receipt);
        self.check_body("response", &receipt, RETURNED_EVENT, self.files.response)
    }

    fn check_configuration(&mut self, receipt: &SignedReceipt) -> Result<(), ReceiptRefusal> {
        const NAME: &str = "configuration";
        let Some(wanted) = self.policy_values(NAME, self.policy.config_digest.as_ref()) else {
            return Ok(());
        };
        let event = receipt.find_event(CONFIGURATION_EVENT);
        let digest = event.and_then(|event| event.get_text("config_digest"));
        let compared = match digest.and_then(parse_digest_text) {
            Some(digest) => compare(NAME, wanted, &digest, "as wanted"),
            None => Err(refusal(
                NAME,
                "the receipt has no single event confide.configuration with a SHA-256 digest",
            )),
        };
        self.note(NAME, compared, |text| (*text).into()).map(|_| ())
    }

    fn check_weights(&mut self, receipt: &SignedReceipt) -> Result<(), ReceiptRefusal> {
        const NAME: &str = "weights";
        let Some(wanted) = self.policy_values(NAME, self.policy.weights.as_ref()) else {
            return Ok(());
        };
        let event = receipt.find_event(MODEL_EVENT);
        let member = |name| event.and_then(|event| event.get_text(name));
        let source = member("weights").and_then(WeightsSource::from_text);
        let mut digest = [0; 32];
        let text = member("weights_sha256").unwrap_or_default();
        let is_read =
            hex::decode_to_slice(text, &mut digest).is_ok() && hex::encode(digest) == text;
        let compared = match source.filter(|_| is_read) {
            Some(source) => compare(NAME, wanted, &digest, source.as_str()),
            None => Err(refusal(
                NAME,
                "the receipt does not say that the model's weights were measured, and the policy demands it",
            )),
        };
        self.note(NAME, compared, |source| format!("{source}, as wanted")).map(|_| ())
    }

    fn check_body(
        &mut self,
        name: &'static str,
        receipt: &SignedReceipt,
        event: &'static str,
        body: Option<&[u8]>,
    ) -> Result<(), ReceiptRefusal> {
        let suffix = if receipt.is_cut(event) { "; the receipt says that it was cut" } else { "" };
        let Some(body) = body else {
            self.skip(name, format!("it was not given{suffix}"));
            return Ok(());
        };
        let checked = receipt.check_body(event, body);
        let checked = checked.map_err(|error| refusal(name, error.to_string()));
        self.note(name, checked, |()| format!("{} bytes, as stated{suffix}", body.len()))
    }

    /// Says whether the model server was sent the request as it was received.
    fn describe_forwarded(&mut self, receipt: &SignedReceipt) {
        const NAME: &str = "forwarded";
        let digest_of =
            |kind| receipt.find_event(kind).and_then(|event| event.get_text("body_hash"));
        match (digest_of(FORWARDED_EVENT), digest_of(RECEIVED_EVENT)) {
            (Some(forwarded), Some(received)) if forwarded == received => {
                self.set(NAME, "passed", "as received".into());
            }
            (Some(_), _) => self.skip(NAME, "the gateway sent another body than it received"),
            (None, _) => self.skip(NAME, "the receipt does not say what was sent on"),
        }
    }

    /// The policy's values, if it has some to compare with; otherwise the check is skipped.
    fn policy_values(
        &mut self,
        name: &'static str,
        expected: Option<&'a Expect<[u8; 32]>>,
    ) -> Option<&'a Expect<[u8; 32]>> {
        match expected {
            None => self.skip(name, "the policy names none"),
            Some(Expect::DangerousAny) => self.skip(name, "the policy says dangerous-any"),
            Some(wanted) => return Some(wanted),
        }
        None
    }

    /// Records the outcome of a check; `detail` describes a pass.
    fn note<T>(
        &mut self,
        name: &'static str,
        result: Result<T, ReceiptRefusal>,
        detail: impl FnOnce(&T) -> String,
    ) -> Result<T, ReceiptRefusal> {
        match &result {
            Ok(value) => self.set(name, "passed", detail(value)),
            Err(refusal) => self.set(name, "failed", refusal.reason.clone()),
        }
        result
    }

    fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        self.set(name, "not_evaluated", reason.into());
    }

    fn set(&mut self, name: &'static str, outcome: &'static str, detail: String) {
        if let Some(check) = self.verdict.checks.iter_mut().find(|check| check.name == name) {
            *check = ReceiptCheck { name, outcome, detail };
        }
    }
}

fn refusal(code: &'static str, reason: impl Into<String>) -> ReceiptRefusal {
    ReceiptRefusal { code, reason: reason.into() }
}

fn report_code(error: &ReceiptError) -> &'static str {
    match error {
        ReceiptError::Digest { .. } => "report_digest",
        ReceiptError::ReportData => "nonce",
        _ => "report",
    }
}

/// Judges the quote of a report with the report data that follows from its keyset. The configuration and the weights
/// are those of the receipt, and a demand on connections does not apply to a key that signs receipts.
fn judge_report_evidence(
    report: &AttestationReport,
    policy: &Policy,
    now: u64,
) -> Result<(), ReceiptRefusal> {
    const CODE: &str = "evidence";
    let collateral = report.collateral();
    let collateral =
        collateral.ok_or_else(|| refusal(CODE, "the report has no collateral for its evidence"))?;
    let unreadable = |error| refusal(CODE, format!("the report's collateral: {error}"));
    let rejected = |rejection: Rejection| {
        refusal(CODE, format!("the report's evidence is refused: {}", rejection.reason()))
    };
    let policy = Policy { binding: None, config_digest: None, weights: None, ..policy.clone() };
    let evidence = Evidence {
        quote: report.quote(),
        report_data: Some(report.report_data()),
        ..Evidence::default()
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    match detect_kind(report.quote()) {
        Some(EvidenceKind::SnpReport) => {
            let endorsements = snp::Endorsements::parse(collateral).map_err(unreadable)?;
            snp::appraise(&evidence, &endorsements, &policy, now, &RustCrypto).map_err(rejected)?;
        }
        Some(EvidenceKind::SgxQuote | EvidenceKind::TdxQuote) => {
            let endorsements = Endorsements::parse(collateral).map_err(unreadable)?;
            appraise(&evidence, &endorsements, &policy, now, &RustCrypto).map_err(rejected)?;
        }
        _ => {
            return Err(refusal(CODE, "the report's evidence is not a quote or an SEV-SNP report"));
        }
    }
    Ok(())
}

fn check_keyset(keyset: &Keyset, now: u64) -> Result<u64, ReceiptRefusal> {
    let not_after = keyset.not_after().map_err(|error| refusal("report", error.to_string()))?;
    match not_after < now {
        true => {
            let text = format!("the keyset expired at {}", UnixSeconds(not_after));
            Err(refusal("keyset_expired", text))
        }
        false => Ok(not_after),
    }
}

fn verify_receipt(
    bytes: &[u8],
    keyset: &Keyset,
    policy: &Policy,
    not_after: u64,
    now: u64,
) -> Result<SignedReceipt, ReceiptRefusal> {
    let receipt = SignedReceipt::verify_with(bytes, keyset, is_ed25519_signature);
    let receipt = receipt.map_err(|error| {
        let code = match error {
            ReceiptError::Expired { .. } => "keyset_expired",
            ReceiptError::OtherKeyset => "other_keyset",
            ReceiptError::UnknownKey { .. } => "unknown_key",
            ReceiptError::Signature => "signature",
            _ => "receipt",
        };
        refusal(code, error.to_string())
    })?;
    let served_at = receipt.served_at();
    if served_at > now.saturating_add(CLOCK_AHEAD_S_MAX) {
        let text = format!("the receipt's time {} is after this machine's", UnixSeconds(served_at));
        return Err(refusal("served_at", text));
    }
    let (wanted, got) = (policy.key_validity_s_max, not_after.saturating_sub(served_at));
    match got > wanted {
        true => {
            let text =
                format!("the keyset lives for {got} s after the answer, wanted at most {wanted}");
            Err(refusal("keyset_life", text))
        }
        false => Ok(receipt),
    }
}

/// Compares a digest with the policy's; `passed` is the text of a pass.
fn compare<'t>(
    name: &'static str,
    wanted: &Expect<[u8; 32]>,
    got: &[u8; 32],
    passed: &'t str,
) -> Result<&'t str, ReceiptRefusal> {
    match wanted.accepts(got) {
        true => Ok(passed),
        false => {
            let text =
                format!("the receipt states the {name} {}, wanted {wanted}", hex::encode(got));
            Err(refusal(name, text))
        }
    }
}

/// Judges a receipt by the policy in `policy`, now. Returns the verdict as JSON.
///
/// # Errors
/// The text of a [`WebError`](crate::WebError) for a policy that cannot be read.
#[cfg(all(target_arch = "wasm32", feature = "javascript"))]
#[wasm_bindgen::prelude::wasm_bindgen(js_name = judgeReceipt)]
pub fn judge_receipt_in_page(
    policy: &str,
    report: &[u8],
    receipt: &[u8],
    request: &[u8],
    response: &[u8],
) -> Result<String, wasm_bindgen::JsValue> {
    let policy = Policy::from_toml(policy).map_err(|error| {
        let error = crate::error::WebError::Usage(format!("policy: {error}"));
        wasm_bindgen::JsValue::from_str(&error.to_json().to_string())
    })?;
    let files = ReceiptFiles { report, receipt, request: Some(request), response: Some(response) };
    let now = (js_sys::Date::now() / 1000.0) as u64;
    Ok(judge_receipt(&policy, files, now).to_json().to_string())
}

//! The judgement of a receipt: report, evidence, keyset, signature, configuration and bodies.

use std::time::Duration;

use confide_evidence::{EvidenceKind, UnixSeconds, detect_kind, weights_claim::WeightsSource};
use confide_receipt::{
    AttestationReport, CONFIGURATION_EVENT, FORWARDED_EVENT, Keyset, MODEL_EVENT, Nonce,
    RECEIVED_EVENT, RETURNED_EVENT, SignedReceipt, parse_digest_text,
};
use confide_transcript::{Direction, EXCERPT_MAGIC, Excerpt, FormatError, OpenedBody, ShownBytes};
use confide_verifier::{
    Appraised, Check, Crypto, Evidence, Expect, Outcome, Policy, Rejection, RootKind, Scope,
    UnixTime,
};
use serde_json::{Value, json};

use super::{crypto::ReceiptCrypto, refusal::ReceiptRefusal};
use crate::{
    commitment::{event_of, read_commitment},
    endorsements::{CpuEndorsements, is_labelled_simulated},
};

/// How far a gateway's clock may be ahead, in seconds.
const CLOCK_AHEAD_S_MAX: u64 = 60;

/// The description of the clock in a receipt.
const GATEWAY_CLOCK: &str = "the gateway's clock";

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

/// What is judged.
#[derive(Default)]
pub struct ReceiptInput {
    /// The gateway's attestation report with the keyset that the receipt names, JSON (aci/1).
    pub report: Vec<u8>,
    /// The receipt of one answer, JSON (aci/1).
    pub receipt: Vec<u8>,
    /// The parts of the bodies that are shown, if it is an excerpt.
    pub excerpt: Option<Excerpt>,
    /// Endorsements instead of the report's.
    pub collateral: Option<Vec<u8>>,
    /// The body of the request, byte by byte as it was sent.
    pub request: Option<Vec<u8>>,
    /// The body of the answer, byte by byte as it came.
    pub response: Option<Vec<u8>>,
}

/// The rules by which a receipt is judged.
pub struct ReceiptRules {
    /// The policy for the gateway's evidence and configuration.
    pub policy: Policy,
    /// The nonce of the request for the report, if it had one.
    pub nonce: Option<Nonce>,
    /// Unix seconds at which all has to be valid.
    pub at: u64,
    /// Whether any configuration is accepted.
    pub skips_configuration: bool,
}

/// The verdict on a receipt, with the checks that led to it.
pub struct ReceiptVerdict {
    /// The checks in their order.
    pub checks: Vec<Check>,
    /// The accepted evidence; rejected evidence is in the refusal.
    pub evidence: Option<Appraised>,
    /// The receipt, once its signature was found valid.
    pub receipt: Option<SignedReceipt>,
    /// The parts of the bodies that an excerpt shows, once they were found to be the committed ones.
    pub shown: Vec<ShownBody>,
    /// The scope of the acceptance, or the reason why there is none.
    pub outcome: Result<Scope, ReceiptRefusal>,
}

impl ReceiptVerdict {
    /// The outcome of the check with this name.
    pub fn outcome_of(&self, name: &str) -> Outcome {
        let check = self.checks.iter().find(|check| check.name == name);
        check.map_or(Outcome::NotEvaluated, |check| check.outcome)
    }

    /// The verdict as one object.
    pub fn to_json(&self) -> Value {
        let refusal = self.outcome.as_ref().err();
        let (outcome, scope) = match &self.outcome {
            Ok(scope) => ("accepted", *scope),
            Err(refusal) if refusal.is_unreadable() => ("error", Scope::Platform),
            Err(_) => ("rejected", Scope::Platform),
        };
        let evidence = match (&self.evidence, refusal) {
            (Some(appraised), _) => appraised.to_json(),
            (None, Some(ReceiptRefusal::Evidence(rejection))) => rejection.to_json(),
            _ => Value::Null,
        };
        json!({
            "outcome": outcome,
            "scope": scope.as_str(),
            "refused": refusal.map(ReceiptRefusal::code),
            "reason": refusal.map(ToString::to_string),
            "checks": self.checks.iter().map(check_json).collect::<Value>(),
            "answer_cut": self.is_answer_cut(),
            "shown": self.shown.iter().map(shown_json).collect::<Value>(),
            "receipt": self.receipt.as_ref().map(receipt_json),
            "time_is": GATEWAY_CLOCK,
            "evidence": evidence,
        })
    }

    /// Whether the receipt says that the answer was cut.
    pub fn is_answer_cut(&self) -> bool {
        self.receipt.as_ref().is_some_and(|receipt| receipt.is_cut(RETURNED_EVENT))
    }
}

/// The parts of one body that are shown.
pub struct ShownBody {
    /// The body: request or response.
    pub direction: Direction,
    /// The parts in their order.
    pub pieces: Vec<ShownBytes>,
    /// The length of the whole body, if it is shown.
    pub length: Option<u64>,
}

/// Judges a receipt: every check in its order, up to the first that fails.
pub fn judge_receipt(
    files: &ReceiptInput,
    rules: &ReceiptRules,
    crypto: &dyn ReceiptCrypto,
) -> ReceiptVerdict {
    let mut judgement = Judgement::new(files, rules, crypto);
    let outcome = judgement.run_checks();
    ReceiptVerdict { outcome, ..judgement.verdict }
}

/// Judges a receipt with the keyset of a report whose quote the caller has judged. The scope is the platform's.
pub fn judge_receipt_of_keyset(
    files: &ReceiptInput,
    rules: &ReceiptRules,
    keyset: &Keyset,
    crypto: &dyn ReceiptCrypto,
) -> ReceiptVerdict {
    let mut judgement = Judgement::new(files, rules, crypto);
    let outcome = judgement.check_receipt(keyset).map(|_| Scope::Platform);
    ReceiptVerdict { outcome, ..judgement.verdict }
}

/// Takes the receipt out of an excerpt, which begins with a magic number; other bytes are the receipt itself.
///
/// # Errors
/// [`FormatError`] if it is an excerpt that cannot be read.
pub fn split_excerpt(bytes: Vec<u8>) -> Result<(Vec<u8>, Option<Excerpt>), FormatError> {
    if !bytes.starts_with(EXCERPT_MAGIC) {
        return Ok((bytes, None));
    }
    let mut excerpt = Excerpt::decode(&bytes)?;
    Ok((std::mem::take(&mut excerpt.receipt), Some(excerpt)))
}

fn check_json(check: &Check) -> Value {
    let (outcome, detail) = (check.outcome.as_str(), check.detail.to_string());
    json!({ "name": check.name, "outcome": outcome, "detail": detail })
}

fn shown_json(ShownBody { direction, pieces, length }: &ShownBody) -> Value {
    let piece = |piece: &ShownBytes| json!({ "start": piece.start, "bytes_hex": hex::encode(&piece.bytes) });
    let pieces: Vec<Value> = pieces.iter().map(piece).collect();
    json!({ "body": direction.as_str(), "pieces": pieces, "length": length })
}

/// The document without its signature.
fn receipt_json(receipt: &SignedReceipt) -> Value {
    serde_json::from_str(&receipt.document().to_canonical()).unwrap_or_default()
}

fn new_check(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Check {
    Check { name, outcome, detail: detail.into().into() }
}

/// A body, if it was given, and the refusal if it is another one.
struct BodyCheck<'a> {
    name: &'static str,
    direction: Direction,
    bytes: Option<&'a [u8]>,
    refusal: ReceiptRefusal,
}

impl<'a> BodyCheck<'a> {
    fn of_request(files: &'a ReceiptInput) -> Self {
        let bytes = files.request.as_deref();
        let refusal = ReceiptRefusal::Request;
        Self { name: "request", direction: Direction::Request, bytes, refusal }
    }

    fn of_response(files: &'a ReceiptInput) -> Self {
        let bytes = files.response.as_deref();
        let refusal = ReceiptRefusal::Response;
        Self { name: "response", direction: Direction::Response, bytes, refusal }
    }
}

/// A receipt's checks while they run.
struct Judgement<'a> {
    files: &'a ReceiptInput,
    rules: &'a ReceiptRules,
    crypto: &'a dyn ReceiptCrypto,
    verdict: ReceiptVerdict,
}

impl<'a> Judgement<'a> {
    fn new(
        files: &'a ReceiptInput,
        rules: &'a ReceiptRules,
        crypto: &'a dyn ReceiptCrypto,
    ) -> Self {
        let checks = CHECKS.map(|name| new_check(name, Outcome::NotEvaluated, "not reached"));
        let verdict = ReceiptVerdict {
            checks: checks.into(),
            evidence: None,
            receipt: None,
            shown: Vec::new(),
            outcome: Ok(Scope::Platform),
        };
        Self { files, rules, crypto, verdict }
    }

    fn run_checks(&mut self) -> Result<Scope, ReceiptRefusal> {
        let report = AttestationReport::parse(&self.files.report, self.rules.nonce.as_ref());
        let report = report.map_err(ReceiptRefusal::Report);
        let report = self.note("report", report, |_| match self.rules.nonce {
            Some(_) => "made for the nonce".into(),
            None => "made without a nonce, so its age is unknown".into(),
        })?;
        let evidence = judge_report_evidence(&report, self.files, self.rules, self.crypto);
        let evidence = self.note("evidence", evidence, |it| it.scope().as_str().into())?;
        let scope = evidence.scope();
        self.verdict.evidence = Some(evidence);
        let is_configured = self.check_receipt(report.keyset())?;
        Ok(if is_configured { scope } else { Scope::Platform })
    }

    /// Checks the receipt with a keyset that evidence vouches for; `false` where its configuration
    /// was not compared.
    fn check_receipt(&mut self, keyset: &Keyset) -> Result<bool, ReceiptRefusal> {
        let not_after = check_keyset(keyset, self.rules);
        self.note("keyset", not_after, |not_after| format!("until {}", UnixSeconds(*not_after)))?;
        let receipt = verify_receipt(&self.files.receipt, keyset, self.rules, self.crypto);
        let receipt = self.note("receipt", receipt, |receipt| {
            let served_at = UnixSeconds(receipt.served_at());
            format!("signed, with the time {served_at} of the gateway's clock")
        })?;
        self.verdict.receipt = Some(receipt.clone());
        let is_configured = self.check_configuration(&receipt)?;
        self.check_weights(&receipt)?;
        self.check_body(&receipt, BodyCheck::of_request(self.files))?;
        self.describe_forwarded(&receipt);
        self.check_body(&receipt, BodyCheck::of_response(self.files))?;
        Ok(is_configured)
    }

    /// Compares the configuration in the receipt with those that the policy pins; `false` where it
    /// pins none.
    fn check_configuration(&mut self, receipt: &SignedReceipt) -> Result<bool, ReceiptRefusal> {
        const NAME: &str = "configuration";
        let wanted = match &self.rules.policy.config_digest {
            _ if self.rules.skips_configuration => Err("any is accepted, as was asked for"),
            None => Err("the policy names none"),
            Some(Expect::DangerousAny) => Err("the policy says dangerous-any"),
            Some(wanted) => Ok(wanted),
        };
        match wanted {
            Ok(wanted) => {
                let compared = compare_configuration(receipt, wanted);
                self.note(NAME, compared, |()| "as wanted".into())?;
                Ok(true)
            }
            Err(reason) => {
                self.skip(NAME, reason);
                Ok(false)
            }
        }
    }

    /// Compares the weights of the model server that answered with those that the policy names.
    fn check_weights(&mut self, receipt: &SignedReceipt) -> Result<(), ReceiptRefusal> {
        const NAME: &str = "weights";
        match &self.rules.policy.weights {
            None => self.skip(NAME, "the policy names none"),
            Some(Expect::DangerousAny) => self.skip(NAME, "the policy says dangerous-any"),
            Some(wanted) => {
                let compared = compare_weights(receipt, wanted);
                self.note(NAME, compared, |source| format!("{source}, as wanted"))?;
            }
        }
        Ok(())
    }

    /// Compares a body with the digest in the receipt, if the body was given.
    fn check_body(
        &mut self,
        receipt: &SignedReceipt,
        body: BodyCheck<'_>,
    ) -> Result<(), ReceiptRefusal> {
        let BodyCheck { name, direction, bytes, refusal } = body;
        let event = event_of(direction);
        let is_cut = receipt.is_cut(event);
        let suffix = if is_cut { "; the receipt says that it was cut" } else { "" };
        if let Some(excerpt) = &self.files.excerpt {
            let opened = match direction {
                Direction::Request => &excerpt.request,
                Direction::Response => &excerpt.response,
            };
            if opened.is_empty() {
                self.skip(name, &format!("nothing of it is shown{suffix}"));
                return Ok(());
            }
            let shown = check_parts(receipt, direction, opened);
            let shown =
                self.note(name, shown, |shown| format!("{}{suffix}", describe_shown(shown)))?;
            self.verdict.shown.push(shown);
            return Ok(());
        }
        let Some(bytes) = bytes else {
            self.skip(name, &format!("it was not given{suffix}"));
            return Ok(());
        };
        let has_commitment = receipt.find_event(event).and_then(read_commitment).is_some();
        let compared = match has_commitment {
            true => Err(ReceiptRefusal::Openable { name }),
            false => receipt.check_body(event, bytes).map_err(|_| refusal),
        };
        self.note(name, compared, |()| format!("{} bytes, as stated{suffix}", bytes.len()))
    }

    /// Says whether the model server was sent the request as it was received.
    fn describe_forwarded(&mut self, receipt: &SignedReceipt) {
        const NAME: &str = "forwarded";
        let digest_of =
            |kind| receipt.find_event(kind).and_then(|event| event.get_text("body_hash"));
        match (digest_of(FORWARDED_EVENT), digest_of(RECEIVED_EVENT)) {
            (Some(forwarded), Some(received)) if forwarded == received => {
                self.set(new_check(NAME, Outcome::Passed, "as received"));
            }
            (Some(_), _) => self.skip(NAME, "the gateway sent another body than it received"),
            (None, _) => self.skip(NAME, "the receipt does not say what was sent on"),
        }
    }

    /// Records the outcome of a check; `detail` describes a pass.
    fn note<T>(
        &mut self,
        name: &'static str,
        result: Result<T, ReceiptRefusal>,
        detail: impl FnOnce(&T) -> String,
    ) -> Result<T, ReceiptRefusal> {
        let check = match &result {
            Ok(value) => new_check(name, Outcome::Passed, detail(value)),
            Err(refusal) => new_check(name, Outcome::Failed, refusal.to_string()),
        };
        self.set(check);
        result
    }

    fn skip(&mut self, name: &'static str, reason: &str) {
        self.set(new_check(name, Outcome::NotEvaluated, reason));
    }

    fn set(&mut self, check: Check) {
        let line = self.verdict.checks.iter_mut().find(|line| line.name == check.name);
        if let Some(line) = line {
            *line = check;
        }
    }
}

/// Judges the quote of a report as [`crate::judge_evidence`] does, with the report data that follows
/// from keyset and nonce. The configuration is that of the receipt, and a demand on connections does
/// not apply to a key that signs receipts.
///
/// # Errors
/// [`ReceiptRefusal`] if there is no evidence of a CPU, or if it is refused.
pub fn judge_report_evidence(
    report: &AttestationReport,
    files: &ReceiptInput,
    rules: &ReceiptRules,
    crypto: &dyn Crypto,
) -> Result<Appraised, ReceiptRefusal> {
    let refuse = |rejection: Rejection| ReceiptRefusal::Evidence(Box::new(rejection));
    let kind = match detect_kind(report.quote()) {
        Some(kind) if kind != EvidenceKind::GpuEvidence => kind,
        _ => return Err(ReceiptRefusal::UnknownEvidence),
    };
    let collateral = files.collateral.as_deref().or(report.collateral());
    let collateral = collateral.ok_or(ReceiptRefusal::NoCollateral)?;
    let endorsements = CpuEndorsements::parse(kind, collateral).map_err(refuse)?;
    let policy =
        Policy { binding: None, config_digest: None, weights: None, ..rules.policy.clone() };
    let evidence = Evidence {
        quote: report.quote(),
        report_data: Some(report.report_data()),
        ..Evidence::default()
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(rules.at));
    endorsements.appraise(&evidence, &policy, now, crypto).map_err(refuse)
}

/// Whether the evidence that was judged is simulated, by a label of its endorsements.
pub fn is_evidence_simulated(
    evidence: &Appraised,
    report: &AttestationReport,
    files: &ReceiptInput,
) -> bool {
    let endorsements = files.collateral.as_deref().or(report.collateral());
    evidence.root().kind == RootKind::Custom && endorsements.is_some_and(is_labelled_simulated)
}

/// Checks that the keyset has not expired, and gives the time when it does.
///
/// # Errors
/// [`ReceiptRefusal::ExpiredKeyset`], and [`ReceiptRefusal::Report`] if it has no such time.
pub fn check_keyset(keyset: &Keyset, rules: &ReceiptRules) -> Result<u64, ReceiptRefusal> {
    let not_after = keyset.not_after().map_err(ReceiptRefusal::Report)?;
    match not_after < rules.at {
        true => Err(ReceiptRefusal::ExpiredKeyset { not_after, at: rules.at }),
        false => Ok(not_after),
    }
}

/// Checks the receipt's signature and its time.
fn verify_receipt(
    bytes: &[u8],
    keyset: &Keyset,
    rules: &ReceiptRules,
    crypto: &dyn ReceiptCrypto,
) -> Result<SignedReceipt, ReceiptRefusal> {
    let receipt = SignedReceipt::verify_with(bytes, keyset, |key, message, signature| {
        crypto.verify_ed25519(key, message, signature)
    });
    let receipt = receipt.map_err(ReceiptRefusal::Receipt)?;
    let (served_at, at) = (receipt.served_at(), rules.at);
    if served_at > at.saturating_add(CLOCK_AHEAD_S_MAX) {
        return Err(ReceiptRefusal::Early { served_at, at });
    }
    let not_after = keyset.not_after().map_err(ReceiptRefusal::Report)?;
    let (wanted, got) = (rules.policy.key_validity_s_max, not_after.saturating_sub(served_at));
    match got > wanted {
        true => Err(ReceiptRefusal::KeysetLife { wanted, got }),
        false => Ok(receipt),
    }
}

/// Checks the shown parts of a body against the receipt's commitment to it.
fn check_parts(
    receipt: &SignedReceipt,
    direction: Direction,
    opened: &OpenedBody,
) -> Result<ShownBody, ReceiptRefusal> {
    let name = direction.as_str();
    let event = receipt.find_event(event_of(direction));
    let commitment =
        event.and_then(read_commitment).ok_or(ReceiptRefusal::NoCommitment { name })?;
    let checked = opened.check(direction, &commitment);
    let (pieces, length) = checked.map_err(|error| ReceiptRefusal::Parts { name, error })?;
    Ok(ShownBody { direction, pieces, length })
}

fn describe_shown(ShownBody { pieces, length, .. }: &ShownBody) -> String {
    let bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    match length {
        Some(length) => format!("{bytes} of {length} bytes shown, as committed to"),
        None => format!("{bytes} bytes shown, as committed to"),
    }
}

/// Compares the digest in the receipt's event of the configuration with the wanted ones.
fn compare_configuration(
    receipt: &SignedReceipt,
    wanted: &Expect<[u8; 32]>,
) -> Result<(), ReceiptRefusal> {
    let event = receipt.find_event(CONFIGURATION_EVENT);
    let text = event.and_then(|event| event.get_text("config_digest"));
    let digest = text.and_then(parse_digest_text).ok_or(ReceiptRefusal::NoConfiguration)?;
    match wanted.accepts(&digest) {
        true => Ok(()),
        false => Err(ReceiptRefusal::Configuration {
            wanted: wanted.to_string(),
            got: hex::encode(digest),
        }),
    }
}

/// Compares the measured weights in the receipt's event of the model with the wanted ones. Returns how
/// they were measured.
fn compare_weights(
    receipt: &SignedReceipt,
    wanted: &Expect<[u8; 32]>,
) -> Result<&'static str, ReceiptRefusal> {
    let event = receipt.find_event(MODEL_EVENT);
    let member = |name| event.and_then(|event| event.get_text(name));
    let source = member("weights").and_then(WeightsSource::from_text);
    let mut digest = [0; 32];
    let hex = member("weights_sha256").unwrap_or_default();
    let is_read = hex::decode_to_slice(hex, &mut digest).is_ok() && hex::encode(digest) == hex;
    match source.filter(|_| is_read) {
        None => Err(ReceiptRefusal::NotMeasured),
        Some(source) if wanted.accepts(&digest) => Ok(source.as_str()),
        Some(_) => {
            Err(ReceiptRefusal::Weights { wanted: wanted.to_string(), got: hex::encode(digest) })
        }
    }
}

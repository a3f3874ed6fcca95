//! The judgement of a receipt: report, evidence, keyset, signature, configuration and bodies.

use std::time::Duration;

use confide_evidence::{EvidenceKind, UnixSeconds, detect_kind, weights_claim::WeightsSource};
use confide_receipt::{
    AttestationReport, CONFIGURATION_EVENT, FORWARDED_EVENT, Keyset, MODEL_EVENT, Nonce,
    RECEIVED_EVENT, RETURNED_EVENT, SignedReceipt, parse_digest_text,
};
use confide_verifier::{
    Appraised, Check, Evidence, Expect, Outcome, Policy, Rejection, RootKind, Scope, UnixTime,
};

use super::refusal::ReceiptRefusal;
use crate::verify::quote::{CpuEndorsements, is_labelled_simulated};

/// How far a gateway's clock may be ahead, in seconds.
const CLOCK_AHEAD_S_MAX: u64 = 60;

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

/// The content of the files that are judged.
#[derive(Default)]
pub(super) struct ReceiptFiles {
    pub(super) report: Vec<u8>,
    pub(super) receipt: Vec<u8>,
    /// Endorsements instead of the report's.
    pub(super) collateral: Option<Vec<u8>>,
    pub(super) request: Option<Vec<u8>>,
    pub(super) response: Option<Vec<u8>>,
}

/// The rules by which a receipt is judged.
pub(super) struct ReceiptRules {
    /// The policy for the gateway's evidence and configuration.
    pub(super) policy: Policy,
    /// The nonce of the request for the report, if it had one.
    pub(super) nonce: Option<Nonce>,
    /// Unix seconds at which all has to be valid.
    pub(super) at: u64,
    /// Whether any configuration is accepted.
    pub(super) skips_configuration: bool,
}

/// The verdict on a receipt, with the checks that led to it.
pub(super) struct ReceiptVerdict {
    pub(super) checks: Vec<Check>,
    /// The accepted evidence; rejected evidence is in the refusal.
    pub(super) evidence: Option<Appraised>,
    /// The receipt, once its signature was found valid.
    pub(super) receipt: Option<SignedReceipt>,
    /// The scope of the acceptance, or the reason why there is none.
    pub(super) outcome: Result<Scope, ReceiptRefusal>,
}

impl ReceiptVerdict {
    /// The outcome of the check with this name.
    pub(super) fn outcome_of(&self, name: &str) -> Outcome {
        let check = self.checks.iter().find(|check| check.name == name);
        check.map_or(Outcome::NotEvaluated, |check| check.outcome)
    }

    /// Whether the receipt says that the answer was cut.
    pub(super) fn is_answer_cut(&self) -> bool {
        self.receipt.as_ref().is_some_and(|receipt| receipt.is_cut(RETURNED_EVENT))
    }
}

/// Judges a receipt: every check in its order, up to the first that fails.
pub(super) fn judge_receipt(files: &ReceiptFiles, rules: &ReceiptRules) -> ReceiptVerdict {
    let mut judgement = Judgement::new(files, rules);
    let outcome = judgement.run_checks();
    ReceiptVerdict { outcome, ..judgement.verdict }
}

fn new_check(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Check {
    Check { name, outcome, detail: detail.into().into() }
}

/// A body, if it was given, and the event that states its digest.
struct BodyCheck<'a> {
    name: &'static str,
    event: &'static str,
    bytes: Option<&'a [u8]>,
    refusal: ReceiptRefusal,
}

impl<'a> BodyCheck<'a> {
    fn of_request(files: &'a ReceiptFiles) -> Self {
        let bytes = files.request.as_deref();
        let refusal = ReceiptRefusal::Request;
        Self { name: "request", event: RECEIVED_EVENT, bytes, refusal }
    }

    fn of_response(files: &'a ReceiptFiles) -> Self {
        let bytes = files.response.as_deref();
        let refusal = ReceiptRefusal::Response;
        Self { name: "response", event: RETURNED_EVENT, bytes, refusal }
    }
}

/// A receipt's checks while they run.
struct Judgement<'a> {
    files: &'a ReceiptFiles,
    rules: &'a ReceiptRules,
    verdict: ReceiptVerdict,
}

impl<'a> Judgement<'a> {
    fn new(files: &'a ReceiptFiles, rules: &'a ReceiptRules) -> Self {
        let checks = CHECKS.map(|name| new_check(name, Outcome::NotEvaluated, "not reached"));
        let verdict = ReceiptVerdict {
            checks: checks.into(),
            evidence: None,
            receipt: None,
            outcome: Ok(Scope::Platform),
        };
        Self { files, rules, verdict }
    }

    fn run_checks(&mut self) -> Result<Scope, ReceiptRefusal> {
        let report = AttestationReport::parse(&self.files.report, self.rules.nonce.as_ref());
        let report = report.map_err(ReceiptRefusal::Report);
        let report = self.note("report", report, |_| match self.rules.nonce {
            Some(_) => "made for the nonce".into(),
            None => "made without a nonce, so its age is unknown".into(),
        })?;
        let evidence = judge_evidence(&report, self.files, self.rules);
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
        let receipt = verify_receipt(&self.files.receipt, keyset, self.rules);
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
            _ if self.rules.skips_configuration => Err("--dangerous-skip-config-digest was given"),
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
        let BodyCheck { name, event, bytes, refusal } = body;
        let is_cut = receipt.is_cut(event);
        let suffix = if is_cut { "; the receipt says that it was cut" } else { "" };
        let Some(bytes) = bytes else {
            self.skip(name, &format!("no --{name} was given{suffix}"));
            return Ok(());
        };
        let compared = receipt.check_body(event, bytes).map_err(|_| refusal);
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

/// Judges the quote of a report as `confide verify evidence` does, with the report data that follows
/// from keyset and nonce. The configuration is that of the receipt, and a demand on connections does
/// not apply to a key that signs receipts.
pub(super) fn judge_evidence(
    report: &AttestationReport,
    files: &ReceiptFiles,
    rules: &ReceiptRules,
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
    endorsements.appraise(&evidence, &policy, now).map_err(refuse)
}

/// Whether the evidence that was judged is simulated, by a label of its endorsements.
pub(super) fn is_evidence_simulated(
    evidence: &Appraised,
    report: &AttestationReport,
    files: &ReceiptFiles,
) -> bool {
    let endorsements = files.collateral.as_deref().or(report.collateral());
    evidence.root().kind == RootKind::Custom && endorsements.is_some_and(is_labelled_simulated)
}

/// Checks that the keyset has not expired, and gives the time when it does.
pub(super) fn check_keyset(keyset: &Keyset, rules: &ReceiptRules) -> Result<u64, ReceiptRefusal> {
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
) -> Result<SignedReceipt, ReceiptRefusal> {
    let receipt = SignedReceipt::verify(bytes, keyset).map_err(ReceiptRefusal::Receipt)?;
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

/// Judges a receipt with the keyset of a report whose quote is not judged.
#[cfg(test)]
pub(super) fn judge_without_evidence(
    files: &ReceiptFiles,
    rules: &ReceiptRules,
    keyset: &Keyset,
) -> ReceiptVerdict {
    let mut judgement = Judgement::new(files, rules);
    let outcome = judgement.check_receipt(keyset).map(|_| Scope::Platform);
    ReceiptVerdict { outcome, ..judgement.verdict }
}

//! The verdict on a receipt, in words and as JSON.

use std::fmt::Write as _;

use confide_disclosure::ShownBytes;
use confide_receipt::SignedReceipt;
use confide_verifier::{Check, Outcome, Scope};
use serde_json::{Value, json};

use super::{
    judgement::{ReceiptVerdict, ShownBody},
    refusal::ReceiptRefusal,
};
use crate::{
    answer::CommandReport,
    error::CliError,
    printable::to_printable,
    verdict_lines::verdict_line,
    verify::{
        disclosure::words::shown_bytes_name,
        inputs::{NOT_JUDGED, REJECTED},
        quote::{PLATFORM_ONLY, describe_root, describe_scope, format_checks},
    },
};

/// The description of the clock in a receipt.
const GATEWAY_CLOCK: &str = "the gateway's clock";

/// The answer about a receipt that was judged.
pub(super) fn describe_verdict(verdict: &ReceiptVerdict) -> CommandReport {
    let mut text = format_all_checks(verdict) + &format_shown(verdict);
    let (outcome, status, scope) = match &verdict.outcome {
        Ok(scope) => {
            let word = if *scope == Scope::Workload { "yes" } else { PLATFORM_ONLY };
            text += &verdict_line(word, describe_acceptance(verdict, *scope));
            ("accepted", 0, *scope)
        }
        Err(refusal) => {
            let (word, outcome, status) = match refusal.is_unreadable() {
                true => ("not judged", "error", NOT_JUDGED),
                false => ("no", "rejected", REJECTED),
            };
            text += &verdict_line(word, format_args!("{}: {refusal}", refusal.code()));
            text.extend(refusal.hint().map(|hint| format!("hint: {hint}\n")));
            (outcome, status, Scope::Platform)
        }
    };
    let refusal = verdict.outcome.as_ref().err();
    let evidence = match (&verdict.evidence, refusal) {
        (Some(appraised), _) => appraised.to_json(),
        (None, Some(ReceiptRefusal::Evidence(rejection))) => rejection.to_json(),
        _ => Value::Null,
    };
    let json = json!({
        "outcome": outcome,
        "scope": scope.as_str(),
        "refused": refusal.map(ReceiptRefusal::code),
        "reason": refusal.map(ToString::to_string),
        "checks": checks_json(&verdict.checks),
        "answer_cut": verdict.is_answer_cut(),
        "shown": verdict.shown.iter().map(shown_json).collect::<Value>(),
        "receipt": verdict.receipt.as_ref().map(receipt_json),
        "time_is": GATEWAY_CLOCK,
        "evidence": evidence,
    });
    CommandReport { text, json, status }
}

/// The answer for programs where an input could not be read; people get the error itself.
pub(super) fn describe_unreadable(error: &CliError) -> CommandReport {
    let json = json!({
        "outcome": "error",
        "scope": "platform",
        "refused": null,
        "reason": error.message(),
        "checks": [],
        "answer_cut": false,
        "shown": [],
        "receipt": null,
        "time_is": GATEWAY_CLOCK,
        "evidence": null,
    });
    CommandReport { text: String::new(), json, status: NOT_JUDGED }
}

/// Writes one line for each check; the checks of the evidence take the place of the check `evidence`.
fn format_all_checks(verdict: &ReceiptVerdict) -> String {
    let evidence = match (&verdict.evidence, &verdict.outcome) {
        (Some(appraised), _) => appraised.checks(),
        (None, Err(ReceiptRefusal::Evidence(rejection))) => rejection.checks(),
        _ => &[],
    };
    let lines = verdict.checks.iter().map(|check| match check.name == "evidence" {
        true if !evidence.is_empty() => format_checks(evidence),
        _ => format_checks(std::slice::from_ref(check)),
    });
    lines.collect()
}

/// Describes what the acceptance covers and what it leaves open.
fn describe_acceptance(verdict: &ReceiptVerdict, scope: Scope) -> String {
    let Some(evidence) = &verdict.evidence else { return String::new() };
    let program = match (scope, evidence.scope()) {
        (Scope::Workload, _) => "platform, program and configuration",
        (Scope::Platform, Scope::Workload) => "the gateway's configuration was not compared",
        (Scope::Platform, Scope::Platform) => describe_scope(evidence),
    };
    let is_passed = |name| verdict.outcome_of(name) == Outcome::Passed;
    let bodies = match (is_passed("request"), is_passed("response")) {
        _ if !verdict.shown.is_empty() => "the gateway received and returned the shown parts",
        (true, true) => "request and answer match",
        (true, false) => "the request matches, the answer was not compared",
        (false, true) => "the answer matches, the request was not compared",
        (false, false) => "neither request nor answer was compared",
    };
    let cut = if verdict.is_answer_cut() { "; the answer was cut" } else { "" };
    format!("{program}; {bodies}{cut}{}", describe_root(evidence))
}

/// Writes the parts of the bodies that were found to be the committed ones.
fn format_shown(verdict: &ReceiptVerdict) -> String {
    let mut text = String::new();
    for ShownBody { direction, pieces, length } in &verdict.shown {
        for piece in pieces {
            let name = shown_bytes_name(*direction, piece);
            let content = to_printable(&String::from_utf8_lossy(&piece.bytes));
            let _ = writeln!(text, "shown  {name}  \"{content}\"");
        }
        if let Some(length) = length {
            let _ = writeln!(text, "shown  {}.length  {length}", direction.as_str());
        }
    }
    text
}

fn shown_json(ShownBody { direction, pieces, length }: &ShownBody) -> Value {
    let piece = |piece: &ShownBytes| json!({ "start": piece.start, "bytes_hex": hex::encode(&piece.bytes) });
    let pieces: Vec<Value> = pieces.iter().map(piece).collect();
    json!({ "body": direction.as_str(), "pieces": pieces, "length": length })
}

fn checks_json(checks: &[Check]) -> Value {
    let line = |check: &Check| {
        let (outcome, detail) = (check.outcome.as_str(), check.detail.to_string());
        json!({ "name": check.name, "outcome": outcome, "detail": detail })
    };
    checks.iter().map(line).collect()
}

/// The document without its signature.
fn receipt_json(receipt: &SignedReceipt) -> Value {
    serde_json::from_str(&receipt.document().to_canonical()).unwrap_or_default()
}

//! The verdict on a receipt, in words and as JSON.

use std::fmt::Write as _;

use confide_receipt::{Json, RETURNED_EVENT};
use confide_verification::{OptionStyle, ReceiptRefusal, ReceiptVerdict, ShownBody};
use confide_verifier::{Outcome, Scope};
use serde_json::json;

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

/// The answer about a receipt that was judged.
pub(super) fn describe_verdict(verdict: &ReceiptVerdict) -> CommandReport {
    let mut text = format_all_checks(verdict) + &format_shown(verdict);
    let status = match &verdict.outcome {
        Ok(scope) => {
            let word = if *scope == Scope::Workload { "yes" } else { PLATFORM_ONLY };
            text += &verdict_line(word, describe_acceptance(verdict, *scope));
            0
        }
        Err(refusal) => {
            let (word, status) = match refusal.is_unreadable() {
                true => ("not judged", NOT_JUDGED),
                false => ("no", REJECTED),
            };
            text += &verdict_line(word, format_args!("{}: {refusal}", refusal.code()));
            let hint = refusal.hint(OptionStyle::Flag);
            text.extend(hint.map(|hint| format!("hint: {hint}\n")));
            status
        }
    };
    CommandReport { text, json: verdict.to_json(), status }
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
        "time_is": "the gateway's clock",
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

/// Writes the parts of the bodies that were found to be the committed ones, after what they are parts of:
/// the text of an error is not an answer.
fn format_shown(verdict: &ReceiptVerdict) -> String {
    let mut text = String::new();
    if let Some(receipt) = verdict.receipt.as_ref().filter(|_| !verdict.shown.is_empty()) {
        let part = |name| to_printable(receipt.document().get_text(name).unwrap_or("?"));
        let event = receipt.find_event(RETURNED_EVENT);
        let status = match event.and_then(|event| event.get("status")) {
            Some(Json::Integer(status)) => status.to_string(),
            _ => "?".into(),
        };
        let _ = writeln!(text, "of     {} {}, status {status}", part("method"), part("endpoint"));
    }
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

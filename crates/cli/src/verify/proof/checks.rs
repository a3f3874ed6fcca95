//! The checks of a proof, and the answer that rejects one.

use confide_prover::Check;
use serde_json::{Value, json};

use crate::{
    answer::CommandReport,
    process::merge_objects,
    verdict_lines::{check_line, verdict_line},
    verify::inputs::REJECTED,
};

/// The lines of the checks.
pub(super) fn format_checks(checks: &[Check]) -> String {
    let line = |Check { name, outcome, detail }: &Check| check_line(name, outcome.as_str(), detail);
    checks.iter().map(line).collect()
}

/// The checks for programs.
pub(super) fn checks_json(checks: &[Check]) -> Value {
    let object = |check: &Check| {
        let outcome = check.outcome.as_str();
        json!({ "name": check.name, "outcome": outcome, "detail": check.detail })
    };
    checks.iter().map(object).collect()
}

/// Rejects a proof for the reason with this code; `facts` are those that were proved all the same.
pub(super) fn describe_rejection(
    checks: &[Check],
    name: &str,
    detail: &str,
    facts: Value,
) -> CommandReport {
    let json = json!({
        "outcome": "rejected",
        "reason": name,
        "detail": detail,
        "checks": checks_json(checks),
    });
    let text = format_checks(checks) + &verdict_line("no", format_args!("{name}: {detail}"));
    CommandReport { text, json: merge_objects(json, facts), status: REJECTED }
}

//! The lines of proofs and verdicts: a name in a column of its own, then the value or the outcome.

use std::fmt::Display;

/// The line of a fact, which is no check: about a proof, or a certificate.
pub(crate) fn fact_line(name: &str, value: impl Display) -> String {
    format!("{name:<19}{value}\n")
}

/// The line of a check: its name, its outcome and its detail. Underscores become spaces.
pub(crate) fn check_line(name: &str, outcome: &str, detail: impl Display) -> String {
    let (name, outcome) = (name.replace('_', " "), outcome.replace('_', " "));
    format!("{name:<19}{outcome:<15}{detail}\n")
}

/// The line of the verdict, which comes last.
pub(crate) fn verdict_line(verdict: &str, reason: impl Display) -> String {
    check_line("accepted", verdict, reason)
}

//! The lines of proofs and verdicts: a name in a column of its own, then what is said of it.

use std::fmt::Display;

/// A fact about a proof.
#[cfg(feature = "prove")]
pub(crate) fn fact_line(name: &str, value: impl Display) -> String {
    format!("{name:<19}{value}\n")
}

/// A check, its outcome, and what was found. Underscores of names for programs become blanks.
pub(crate) fn check_line(name: &str, outcome: &str, detail: impl Display) -> String {
    let (name, outcome) = (name.replace('_', " "), outcome.replace('_', " "));
    format!("{name:<19}{outcome:<15}{detail}\n")
}

/// The verdict, which is the last line.
pub(crate) fn verdict_line(verdict: &str, reason: impl Display) -> String {
    check_line("accepted", verdict, reason)
}

//! Proofs that could not be judged.

use serde_json::json;

use crate::{answer::CommandReport, error::CliError, verify::inputs::NOT_JUDGED};

/// Why a proof was not judged: nothing is known of it, so it is not accepted.
#[derive(Debug)]
pub(super) struct UnjudgedProof {
    /// The code for programs.
    pub(super) name: &'static str,
    pub(super) error: CliError,
}

impl UnjudgedProof {
    pub(super) fn new(name: &'static str, detail: impl std::fmt::Display) -> Self {
        Self { name, error: CliError::new(detail).with_status(NOT_JUDGED) }
    }

    /// A file that could not be read.
    pub(super) fn unreadable(error: CliError) -> Self {
        Self { name: "unreadable", error }
    }

    /// An option that a proof of this kind would ignore, while the caller relies on it.
    pub(super) fn option_of_another_kind(option: &str, kind: &str) -> Self {
        Self::new("option_of_another_kind", format!("{option} does not apply to a proof of {kind}"))
    }

    pub(super) fn with_hint(self, hint: &str) -> Self {
        Self { error: self.error.with_hint(hint), ..self }
    }

    /// The answer for programs; people get the error itself.
    pub(super) fn to_report(&self) -> CommandReport {
        let json = json!({
            "outcome": "error",
            "reason": self.name,
            "detail": self.error.message(),
            "checks": [],
        });
        CommandReport { text: String::new(), json, status: NOT_JUDGED }
    }
}

impl From<CliError> for UnjudgedProof {
    fn from(error: CliError) -> Self {
        Self { name: "not_judged", error }
    }
}

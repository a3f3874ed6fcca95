//! Proofs that could not be judged.

use serde_json::json;

use crate::{answer::Answer, error::CliError, verify::inputs::NOT_JUDGED};

/// Why a proof was not judged: nothing is known of it, so it is not accepted.
#[derive(Debug)]
pub(super) struct Unjudged {
    /// The code for programs.
    pub(super) name: &'static str,
    pub(super) error: CliError,
}

impl Unjudged {
    pub(super) fn new(name: &'static str, detail: impl std::fmt::Display) -> Self {
        Self { name, error: CliError::new(detail).status(NOT_JUDGED) }
    }

    /// A file that could not be read.
    pub(super) fn unreadable(error: CliError) -> Self {
        Self { name: "unreadable", error }
    }

    /// An option that a proof of this kind would ignore, while the caller relies on it.
    pub(super) fn option_of_another_kind(option: &str, kind: &str) -> Self {
        Self::new("option_of_another_kind", format!("{option} does not apply to a proof of {kind}"))
    }

    pub(super) fn hint(self, hint: &str) -> Self {
        Self { error: self.error.hint(hint), ..self }
    }

    /// The answer for programs; people get the error itself.
    pub(super) fn answer(&self) -> Answer {
        let json = json!({
            "outcome": "error",
            "reason": self.name,
            "detail": self.error.message(),
            "checks": [],
        });
        Answer { text: String::new(), json, status: NOT_JUDGED }
    }
}

impl From<CliError> for Unjudged {
    fn from(error: CliError) -> Self {
        Self { name: "not_judged", error }
    }
}

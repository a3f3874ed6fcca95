//! What the self-test found, one entry for each thing it tried.

use serde::Serialize;

/// One thing tried.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was tried, in words.
    pub name: String,
    /// Whether the instrument did as it should, as far as can be told.
    pub passed: bool,
    /// Whether that can be told: noise of the machine leaves some questions open.
    pub decided: bool,
    /// The figures that say so.
    pub says: String,
}

impl Finding {
    pub(super) fn new(name: impl Into<String>, passed: bool, says: impl Into<String>) -> Self {
        Self { name: name.into(), passed, decided: true, says: says.into() }
    }

    pub(super) fn open(name: impl Into<String>, says: impl Into<String>) -> Self {
        Self { decided: false, ..Self::new(name, true, says) }
    }

    /// One line: `ok      A/A, 20 blocks: …`.
    pub fn line(&self) -> String {
        let mark = match (self.passed, self.decided) {
            (true, true) => "ok",
            (true, false) => "open",
            (false, _) => "FAILED",
        };
        format!("{mark:<7} {}: {}", self.name, self.says)
    }
}

//! What the self-test found, one entry for each thing it tried.

use serde::Serialize;

/// One thing tried.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was tried, in words.
    pub name: String,
    /// Whether the instrument did as it should.
    pub passed: bool,
    /// The figures that say so.
    pub says: String,
}

impl Finding {
    pub(super) fn new(name: impl Into<String>, passed: bool, says: impl Into<String>) -> Self {
        Self { name: name.into(), passed, says: says.into() }
    }

    /// One line: `ok      A/A, 20 blocks: …`.
    pub fn line(&self) -> String {
        let mark = if self.passed { "ok" } else { "FAILED" };
        format!("{mark:<7} {}: {}", self.name, self.says)
    }
}

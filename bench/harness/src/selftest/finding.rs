//! What the self-test found, one entry for each thing it tried.

use serde::Serialize;

/// One thing tried.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was tried, in words.
    pub name: String,
    /// Whether the instrument did as it should.
    pub passed: bool,
    /// Whether that could be told: noise of the machine may leave it undecided, which is not a pass.
    pub decided: bool,
    /// The figures that say so.
    pub says: String,
}

impl Finding {
    pub(super) fn new(name: impl Into<String>, passed: bool, says: impl Into<String>) -> Self {
        Self { name: name.into(), passed, decided: true, says: says.into() }
    }

    pub(super) fn undecided(name: impl Into<String>, says: impl Into<String>) -> Self {
        Self { decided: false, ..Self::new(name, false, says) }
    }

    /// Whether the instrument did what it must not do.
    pub fn failed(&self) -> bool {
        self.decided && !self.passed
    }

    /// One line: `ok        A/A, 20 blocks: …`.
    pub fn line(&self) -> String {
        let mark = match (self.passed, self.decided) {
            (true, _) => "ok",
            (false, true) => "FAILED",
            (false, false) => "undecided",
        };
        format!("{mark:<9} {}: {}", self.name, self.says)
    }
}

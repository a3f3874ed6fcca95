//! The findings of the self-test, one for each thing that it tried.

use serde::Serialize;

/// The result of one part of the self-test.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The name of the part.
    pub name: String,
    /// True where the instrument did as it should.
    pub passed: bool,
    /// True where that could be told: noise of the machine may leave it undecided, which is not a
    /// pass.
    pub decided: bool,
    /// The figures that show it.
    pub says: String,
}

impl Finding {
    pub(super) fn new(name: impl Into<String>, passed: bool, says: impl Into<String>) -> Self {
        Self { name: name.into(), passed, decided: true, says: says.into() }
    }

    pub(super) fn new_undecided(name: impl Into<String>, says: impl Into<String>) -> Self {
        Self { decided: false, ..Self::new(name, false, says) }
    }

    /// Tells whether the instrument did what it must not do.
    pub fn has_failed(&self) -> bool {
        self.decided && !self.passed
    }

    /// Formats the result as one line: `ok        A/A, 20 blocks: …`.
    pub fn line(&self) -> String {
        let mark = match (self.passed, self.decided) {
            (true, _) => "ok",
            (false, true) => "FAILED",
            (false, false) => "undecided",
        };
        format!("{mark:<9} {}: {}", self.name, self.says)
    }
}

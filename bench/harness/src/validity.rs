//! What counts nowhere, and what the A/A rows say of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pair or block that counts nowhere, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Void {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) block: u32,
    pub(crate) arm: String,
    pub(crate) reason: String,
}

/// What the A/A rows say of the run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Validity {
    /// Every headline A/A row was judged, and no more failed than chance allows.
    Valid {
        /// How many.
        judged: usize,
        /// How many of them lie outside their margin; the rows beside them are marked invalid.
        failed: usize,
    },
    /// The A/A rows found differences where there are none.
    Invalid {
        /// Which, and how.
        reasons: Vec<String>,
    },
    /// Nothing was found, but at least one row had too few blocks to be judged.
    NotJudged {
        /// What was missing.
        reason: String,
    },
}

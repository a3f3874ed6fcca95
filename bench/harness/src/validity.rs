//! Runs and blocks that do not count, and the judgement of a run by its A/A rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A slice or block that is left out of every estimate, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Exclusion {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) block: u32,
    pub(crate) arm: String,
    pub(crate) reason: String,
}

/// The judgement of a run by its A/A rows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Validity {
    /// Every headline A/A row was judged, and no more failed than chance allows.
    Valid {
        /// The number of headline A/A rows.
        judged: usize,
        /// The number of them that lie outside their margin; the rows that they belong to are
        /// marked invalid.
        failed: usize,
    },
    /// The A/A rows found differences where there are none.
    Invalid {
        /// One reason for each row that failed.
        reasons: Vec<String>,
    },
    /// Nothing was found, but at least one row had too few blocks to be judged.
    NotJudged {
        /// The reason why they were not judged.
        reason: String,
    },
}

impl Default for Validity {
    fn default() -> Self {
        Self::NotJudged { reason: "no row was computed".into() }
    }
}

//! The page.

use crate::{
    Record,
    samples::{Sample, Slice},
};

/// Stub.
pub(crate) fn render(record: &Record, _samples: &[Sample], _slices: &[Slice]) -> String {
    format!("<pre>{}</pre>", crate::table(record))
}

//! The check of a count against the expected one.

/// A count differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: wanted {wanted}, got {got}")]
pub struct CountError {
    /// The name of what is counted.
    pub what: &'static str,
    /// The count that was expected.
    pub wanted: usize,
    /// The count that was given.
    pub got: usize,
}

pub(crate) fn check_count(what: &'static str, wanted: usize, got: usize) -> Result<(), CountError> {
    if wanted == got { Ok(()) } else { Err(CountError { what, wanted, got }) }
}

//! Exit statuses of `confide bench`.

/// A bench could not be run, a row is outside its margin, or the self-test failed.
pub(super) const FAILED: u8 = 1;
/// Everything ran, but its figures are not reliable: the A/A rows found a difference where there is none, or the client
/// was the limit.
pub(super) const UNRELIABLE: u8 = 3;
/// No verdict is possible: an interval crosses a margin, or nothing could be compared.
pub(super) const UNDECIDED: u8 = 4;
/// The run was interrupted, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

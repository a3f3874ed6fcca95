//! A fetched answer, and the bounds of one.

use std::time::Duration;

/// The deadline of every step, far above what a loaded machine needs.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// The longest answer that is requested: below what a notary takes by default.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 20;

/// One answer, with what was spent on it apart from the waiting.
pub(super) struct FetchedAnswer {
    pub(super) body: Vec<u8>,
    pub(super) figures: Vec<(&'static str, f64)>,
}

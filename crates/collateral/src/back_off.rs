//! The waits between attempts.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The wait after a number of failures: `first` doubled that often, at most `most`, times a random
/// factor from one half to one, so that clients that failed together do not return together.
pub(crate) fn back_off(first: Duration, most: Duration, failures: u32) -> Duration {
    let whole = first.saturating_mul(1u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX));
    jitter(whole.min(most))
}

/// A random duration between one half of `whole` and all of it.
pub(crate) fn jitter(whole: Duration) -> Duration {
    let half = whole / 2;
    half + half.mul_f64(random_fraction())
}

/// A random number from 0 to 1. The keys of a fresh `RandomState` are random enough to spread
/// requests.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0u8) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_are_at_least_half_of_it() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(2));
        for (failures, whole_ms) in [(0, 100), (1, 200), (4, 1600), (5, 2000), (40, 2000)] {
            let wait = back_off(first, most, failures);
            let whole = Duration::from_millis(whole_ms);
            assert!(wait >= whole / 2 && wait <= whole, "{failures}: {wait:?}");
        }
    }
}

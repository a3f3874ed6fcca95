//! Measures the steps of a connection, where there is a monotonic clock.

use std::time::Duration;

/// The start of a step. Without the feature `native` there is no clock, and every step lasts zero.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    #[cfg(feature = "native")]
    began: std::time::Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "native")]
            began: std::time::Instant::now(),
        }
    }

    /// The time since the start.
    pub(crate) fn read(self) -> Duration {
        #[cfg(feature = "native")]
        return self.began.elapsed();
        #[cfg(not(feature = "native"))]
        Duration::ZERO
    }
}

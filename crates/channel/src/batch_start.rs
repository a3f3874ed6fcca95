//! When a free device starts on the sessions that wait for a quote.
//!
//! A device that always started at once would serve a crowd badly. Clients that share a quote are
//! answered at the same moment, and those that open further sessions come back one after the other
//! within the next few milliseconds: the first of them would get a quote alone, and the rest would
//! wait for the next one. A device that always waited would delay a lone session for nothing. The
//! last quote tells which of the two is likely.

use std::time::{Duration, Instant};

/// The gap after which no more sessions are expected: five times the mean gap at 20,000 sessions a
/// second, and long enough for a wake-up of one thread by another. It costs 0.6 % of a quote of
/// 39 ms.
const ARRIVAL_GAP: Duration = Duration::from_micros(250);

/// The longest wait of a free device, since sessions that arrive at a steady rate leave no gap: 5 %
/// of a quote of 39 ms.
const COLLECTING_MAX: Duration = Duration::from_millis(2);

/// The sessions that wait for a shared quote: how many, and when the first and the last arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    pub(crate) count: usize,
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

/// The times that decide when a free device starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartTimes {
    pub(crate) gap: Duration,
    pub(crate) longest: Duration,
}

impl StartTimes {
    /// The instant at which a device that is free since `free_since` starts on `waiting`; the
    /// arrival of another session may put it off, but never beyond the longest wait. A device whose
    /// last quote was for at most one session starts on a lone session at once.
    pub(crate) fn start_instant(
        self,
        last_batch: usize,
        free_since: Instant,
        waiting: Arrivals,
    ) -> Instant {
        let began = free_since.max(waiting.first);
        if last_batch <= 1 && waiting.count <= 1 {
            return began;
        }
        let gap_end = free_since.max(waiting.last) + self.gap;
        gap_end.min(began + self.longest)
    }
}

impl Default for StartTimes {
    fn default() -> Self {
        Self { gap: ARRIVAL_GAP, longest: COLLECTING_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// The wait in microseconds from the later of the instant at which the device is free and the
    /// first arrival; `arrivals` are microseconds after the start of the test.
    fn wait_us(last_batch: usize, free_us: u32, arrivals: &[u32]) -> u128 {
        let zero = Instant::now();
        let at = |us: u32| zero + us * US;
        let (first, last) = (at(arrivals[0]), at(arrivals[arrivals.len() - 1]));
        let waiting = Arrivals { count: arrivals.len(), first, last };
        let start = StartTimes::default().start_instant(last_batch, at(free_us), waiting);
        start.duration_since(at(free_us).max(first)).as_micros()
    }

    #[test]
    fn a_lone_session_starts_at_once_unless_the_last_quote_was_shared() {
        for last_batch in [0, 1] {
            assert_eq!(wait_us(last_batch, 0, &[10_000]), 0, "an idle device");
            assert_eq!(wait_us(last_batch, 39_000, &[5_000]), 0, "it came during the quote");
        }
        assert_eq!(wait_us(2, 0, &[10_000]), 250);
        assert_eq!(wait_us(1024, 39_000, &[5_000]), 250);
    }

    #[test]
    fn several_sessions_start_when_arrivals_pause() {
        assert_eq!(wait_us(1, 39_000, &[1_000, 2_000]), 250, "after the device was free");
        assert_eq!(wait_us(7, 39_000, &[1_000, 39_100]), 350);
        assert_eq!(wait_us(7, 39_000, &[39_500, 39_700, 39_900]), 650);
    }

    #[test]
    fn sessions_without_a_gap_start_after_two_milliseconds() {
        assert_eq!(wait_us(7, 39_000, &[1_000, 40_750]), 2_000);
        assert_eq!(wait_us(7, 39_000, &[1_000, 40_999]), 2_000);
        assert_eq!(wait_us(7, 39_000, &[39_400, 41_399]), 2_000, "from the first arrival");
    }
}

//! Percentiles that the client's own delays may have moved.
//!
//! A client thread that turns to one in twenty-five bytes too late moves the 95th percentile to the
//! 99th of the true one: where the tail is long that is far, although the mean delay is small.

use confide_estimate::{quantile, supported_quantile};

use crate::event::RequestRecord;

/// A delay below this share of a percentile is no delay to it.
const DELAY_SHARE_MAX: f64 = 0.01;
/// A percentile may be moved by this share of it.
const MOVED_SHARE_MAX: f64 = 0.01;
const PERCENTILES: [(&str, f64); 4] =
    [("p50_ms", 0.5), ("p90_ms", 0.9), ("p95_ms", 0.95), ("p99_ms", 0.99)];

/// The percentiles of these requests that the client's delays may have moved by more than 2 %, by
/// their names in the summary: `ttft.p95_ms`.
pub(crate) fn find_unresolved(events: &[RequestRecord], loop_delays_s: &[f64]) -> Vec<String> {
    let complete: Vec<&RequestRecord> = events.iter().filter(|it| it.is_complete()).collect();
    if complete.is_empty() {
        return Vec::new();
    }
    let dispatch_s: Vec<f64> = events.iter().map(RequestRecord::dispatch_delay_s).collect();
    let stages = |event: &&RequestRecord| {
        let stages = [event.connected_s, event.handshake_s, event.attested_s];
        stages.into_iter().flatten().count()
    };
    // A thread turns to a request once for each stage of its connection, and once for its bytes.
    let opened = complete.iter().map(stages).sum::<usize>() as f64 / complete.len() as f64;
    let of_request = Delays { turns: 1.0 + opened, dispatch_s: &dispatch_s, loop_s: loop_delays_s };
    let of_gap = Delays { turns: 1.0, dispatch_s: &[], loop_s: loop_delays_s };
    let ttft_s: Vec<f64> = complete.iter().filter_map(|event| event.ttft_s()).collect();
    let e2e_s: Vec<f64> = complete.iter().filter_map(|event| event.e2e_s()).collect();
    let gaps_s: Vec<f64> = complete.iter().flat_map(|event| event.inter_token_gaps_s()).collect();
    let mut found = Vec::new();
    for (name, values, delays) in
        [("ttft", ttft_s, &of_request), ("e2e", e2e_s, &of_request), ("itl", gaps_s, &of_gap)]
    {
        let unresolved = PERCENTILES.iter().filter(|(_, p)| !delays.can_resolve(&values, *p));
        found.extend(unresolved.map(|(percentile, _)| format!("{name}.{percentile}")));
    }
    found
}

/// The client's delays that are part of a figure, in seconds.
struct Delays<'a> {
    /// How often a thread turned to it.
    turns: f64,
    dispatch_s: &'a [f64],
    loop_s: &'a [f64],
}

impl Delays<'_> {
    /// Whether the percentile at `p` of these values can be told from what it is without the delays;
    /// true where there is no such percentile.
    fn can_resolve(&self, values: &[f64], p: f64) -> bool {
        let Some(value) = supported_quantile(values, p) else { return true };
        let limit_s = value * DELAY_SHARE_MAX;
        let late = upper_share_above(self.loop_s, limit_s) * self.turns
            + upper_share_above(self.dispatch_s, limit_s);
        // If all late ones lie above it, it is the percentile of what is lower by their share.
        let unmoved = quantile(values, (p - late).max(0.0));
        unmoved.is_some_and(|unmoved| unmoved >= value * (1.0 - MOVED_SHARE_MAX))
    }
}

/// The share of values above a limit, by two standard errors more than it was seen to be.
fn upper_share_above(values: &[f64], limit: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let count = values.len() as f64;
    let share = values.iter().filter(|value| **value > limit).count() as f64 / count;
    share + 2.0 * (share * (1.0 - share) / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::tests::events_of_known_truth;

    /// Two thousand pings, of which every `every`-th came `late_s` too late.
    fn pings_late_by(every: usize, late_s: f64) -> Vec<f64> {
        (0..2_000).map(|ping| if ping % every == 0 { late_s } else { 0.00002 }).collect()
    }

    #[test]
    fn a_percentile_in_a_steep_tail_is_moved_by_a_few_late_reads() {
        // Every tenth request takes longer, the later the longer: from 40 ms to 240 ms.
        let mut events = events_of_known_truth(1_000, 5);
        for event in events.iter_mut().filter(|event| event.index % 10 == 0) {
            let more_s = event.index as f64 / 1_000.0 * 0.2;
            event.chunks_s.iter_mut().for_each(|at| *at += more_s);
            event.last_s = event.chunks_s.last().copied();
        }
        assert_eq!(find_unresolved(&events, &[0.00002; 2_000]), [""; 0]);
        let found = find_unresolved(&events, &pings_late_by(25, 0.01));
        assert_eq!(found, ["ttft.p95_ms", "ttft.p99_ms", "e2e.p95_ms", "e2e.p99_ms"]);
    }

    #[test]
    fn gaps_are_not_resolved_by_a_client_that_is_late_by_more_than_a_hundredth_of_them() {
        let mut events = events_of_known_truth(300, 5);
        for event in &mut events {
            for (number, at) in event.chunks_s.iter_mut().enumerate() {
                *at += (event.index * 7 + number as u64 * 3) as f64 % 10.0 * 0.0001;
            }
        }
        assert_eq!(find_unresolved(&events, &[0.00002; 2_000]), [""; 0]);
        let found = find_unresolved(&events, &[0.0003; 500]);
        assert!(found.contains(&"itl.p95_ms".to_owned()), "{found:?}");
        assert!(!found.contains(&"ttft.p50_ms".to_owned()), "{found:?}");
        assert_eq!(find_unresolved(&[], &[0.0003; 500]), [""; 0]);
    }
}

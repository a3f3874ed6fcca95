//! As `vllm bench serve` (0.33.0) reports.

use super::{
    Answer, Quantiles, Quantity, Tool, View, answers, last_instant_s, ms, per_token_after,
    pooled_gaps_ms, rate,
};
use crate::event::Event;

/// Its clock starts where a request is handed to the HTTP client: behind the semaphore of
/// `--max-concurrency`, before a connection is made. Throughput is over the time from the start of
/// the schedule to the end of the last request, failed ones included.
pub(super) fn view(events: &[Event]) -> View {
    let (answers, failed) = answers(events);
    let mut view = View::new(Tool::Vllm);
    (view.completed, view.failed) = (Some(answers.len() as u64), Some(failed));
    if answers.is_empty() {
        return view;
    }
    let start = |answer: &Answer<'_>| answer.event.dispatched_s;
    let each =
        |value: &dyn Fn(&Answer<'_>) -> f64| Quantiles::linear(answers.iter().map(value).collect());
    view.put(Quantity::First, each(&|answer| ms(start(answer), answer.first_s)));
    view.put(Quantity::ChunkGap, Quantiles::linear(pooled_gaps_ms(&answers)));
    let after = answers.iter().filter_map(|answer| per_token_after(answer, 1)).collect();
    view.put(Quantity::PerTokenAfterFirst, Quantiles::linear(after));
    view.put(Quantity::Whole, each(&|answer| ms(start(answer), answer.last_chunk_s)));
    let seconds = last_instant_s(events);
    view.put(Quantity::Requests, rate(answers.len() as u64, seconds));
    view.put(Quantity::Tokens, rate(answers.iter().map(|answer| answer.tokens).sum(), seconds));
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::{close, log, one, spread};

    #[test]
    fn the_clock_starts_at_dispatch_and_stops_at_the_last_chunk() {
        let view = view(&log());
        assert_eq!((view.completed, view.failed), (Some(2), Some(1)));
        let ttft = spread(&view, Quantity::First);
        close(ttft.mean, 150.0);
        close(ttft.p50, 150.0);
        close(ttft.p99, 199.0);
        let whole = spread(&view, Quantity::Whole);
        close(whole.min, 160.0);
        close(whole.max, 240.0);
    }

    #[test]
    fn itl_pools_gaps_and_tpot_is_of_requests() {
        let view = view(&log());
        let itl = spread(&view, Quantity::ChunkGap);
        close(itl.mean, 100.0 / 3.0);
        close(itl.p50, 40.0);
        let tpot = spread(&view, Quantity::PerTokenAfterFirst);
        assert_eq!(tpot.count, Some(2));
        close(tpot.mean, 25.0);
    }

    #[test]
    fn throughput_is_over_the_whole_run() {
        let view = view(&log());
        close(one(&view, Quantity::Requests), 1.0);
        close(one(&view, Quantity::Tokens), 3.0);
    }
}

//! As AIPerf (0.13.0) reports, with `--use-server-token-count`.

use super::{
    Answer, Quantiles, Quantity, Tool, View, answers, ms, per_token_after, pooled_gaps_ms, rate,
};
use crate::event::Event;

/// Its clock starts where a request is handed to the HTTP client, before a connection is taken from
/// the pool or made, and stops at the last content. Rates are over the time from the first start to
/// the last content of the requests that count.
pub(super) fn view(events: &[Event]) -> View {
    let (answers, failed) = answers(events);
    let mut view = View::new(Tool::AiPerf);
    (view.completed, view.failed) = (Some(answers.len() as u64), Some(failed));
    if answers.is_empty() {
        return view;
    }
    let start = |answer: &Answer<'_>| answer.event.dispatched_s;
    let each =
        |value: &dyn Fn(&Answer<'_>) -> f64| Quantiles::linear(answers.iter().map(value).collect());
    view.put(Quantity::First, each(&|answer| ms(start(answer), answer.first_s)));
    view.put(Quantity::ChunkGap, Quantiles::linear(pooled_gaps_ms(&answers)));
    let after: Vec<f64> = answers.iter().filter_map(after_first_chunk).collect();
    let of_one = after.iter().filter(|itl| **itl > 0.0).map(|itl| 1e3 / itl).collect();
    view.put(Quantity::PerTokenAfterFirst, Quantiles::linear(after));
    view.put(Quantity::Whole, each(&|answer| ms(start(answer), answer.last_chunk_s)));
    // Its credits are issued on schedule; the log knows the schedule alone.
    let scheduled = |answer: &Answer<'_>| answer.event.scheduled_s;
    view.put(
        Quantity::WholeFromSchedule,
        each(&|answer| ms(scheduled(answer), answer.last_chunk_s)),
    );
    view.put(Quantity::DispatchDelay, each(&|answer| ms(scheduled(answer), start(answer))));
    let begin = answers.iter().map(start).fold(f64::INFINITY, f64::min);
    let end = answers.iter().map(|answer| answer.last_chunk_s).fold(0.0, f64::max);
    view.put(Quantity::Requests, rate(answers.len() as u64, end - begin));
    view.put(Quantity::Tokens, rate(answers.iter().map(|answer| answer.tokens).sum(), end - begin));
    view.put(Quantity::TokensOfOne, Quantiles::linear(of_one));
    view
}

/// Tokens of the first chunk are left out of the divisor, however many the server says it had; one
/// where it does not say, or says all of them.
fn after_first_chunk(answer: &Answer<'_>) -> Option<f64> {
    if answer.tokens < 2 {
        return None;
    }
    let first = answer.event.chunk_tokens.as_ref().and_then(|tokens| tokens.first());
    let first = first.map_or(1, |tokens| u64::from(*tokens));
    let first = if (1..answer.tokens).contains(&first) { first } else { 1 };
    per_token_after(answer, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::{close, log, one, spread};

    #[test]
    fn itl_is_of_requests_and_icl_pools_gaps() {
        let view = view(&log());
        let ttft = spread(&view, Quantity::First);
        close(ttft.mean, 150.0);
        close(ttft.p90, 190.0);
        let itl = spread(&view, Quantity::PerTokenAfterFirst);
        assert_eq!(itl.count, Some(2));
        close(itl.min, 20.0);
        close(itl.max, 30.0);
        close(spread(&view, Quantity::ChunkGap).mean, 100.0 / 3.0);
        close(spread(&view, Quantity::TokensOfOne).mean, (50.0 + 100.0 / 3.0) / 2.0);
        close(spread(&view, Quantity::Whole).max, 240.0);
        close(spread(&view, Quantity::WholeFromSchedule).min, 170.0);
        close(spread(&view, Quantity::DispatchDelay).max, 10.0);
    }

    #[test]
    fn a_first_chunk_of_several_tokens_is_left_out_of_the_divisor() {
        let mut events = log();
        events[1].chunk_tokens = Some(vec![2, 1]);
        close(spread(&view(&events), Quantity::PerTokenAfterFirst).max, 40.0);
        events[1].chunk_tokens = Some(vec![3, 0]);
        close(spread(&view(&events), Quantity::PerTokenAfterFirst).min, 20.0);
    }

    #[test]
    fn rates_are_over_the_time_of_requests_that_count() {
        let view = view(&log());
        close(one(&view, Quantity::Requests), 2.0 / 1.23);
        close(one(&view, Quantity::Tokens), 6.0 / 1.23);
    }
}

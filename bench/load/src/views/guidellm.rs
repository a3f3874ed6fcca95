//! As GuideLLM (0.8.1) reports.

use super::{Answer, Figure, Quantiles, Quantity, Tool, View, answers, last_instant_s, ms, rate};
use crate::event::Event;

/// Its clock starts with the first header written, so behind TCP and TLS, and stops at the end of
/// the stream. Figures per token are weighted by tokens; a percentile is the value at which the
/// weights reach it, without a line between neighbours.
pub(super) fn view(events: &[Event]) -> View {
    let (answers, failed) = answers(events);
    let mut view = View::new(Tool::GuideLlm);
    (view.completed, view.failed) = (Some(answers.len() as u64), Some(failed));
    if answers.is_empty() {
        return view;
    }
    let each = |value: &dyn Fn(&Answer<'_>) -> f64| {
        stepped(answers.iter().map(|answer| (value(answer), 1.0)).collect())
    };
    let start = |answer: &Answer<'_>| start_s(answer.event);
    view.put(Quantity::First, each(&|answer| ms(start(answer), answer.first_s)));
    view.put(Quantity::PerTokenAfterFirst, after_first(&answers));
    view.put(Quantity::PerToken, first_included(&answers));
    view.put(Quantity::Whole, each(&|answer| ms(start(answer), answer.last_s)));
    let scheduled = |answer: &Answer<'_>| answer.event.scheduled_s;
    view.put(Quantity::WholeFromSchedule, each(&|answer| ms(scheduled(answer), answer.last_s)));
    view.put(Quantity::DispatchDelay, each(&|answer| ms(scheduled(answer), start(answer))));
    let begin = events.iter().map(start_s).fold(f64::INFINITY, f64::min);
    let seconds = last_instant_s(events) - begin;
    view.put(Quantity::Requests, rate(answers.len() as u64, seconds));
    view.put(Quantity::Tokens, rate(answers.iter().map(|answer| answer.tokens).sum(), seconds));
    view
}

/// When the session could carry the first byte of the request.
fn start_s(event: &Event) -> f64 {
    let stages = [event.connected_s, event.handshake_s, event.attested_s];
    stages.into_iter().flatten().fold(event.dispatched_s, f64::max)
}

fn after_first(answers: &[Answer<'_>]) -> Option<Figure> {
    let several = answers.iter().filter(|answer| answer.tokens > 1);
    let weighed = several.map(|answer| {
        let after = (answer.tokens - 1) as f64;
        (ms(answer.first_s, answer.last_chunk_s) / after, after)
    });
    stepped(weighed.collect())
}

fn first_included(answers: &[Answer<'_>]) -> Option<Figure> {
    let some = answers.iter().filter(|answer| answer.tokens > 0);
    let weighed = some.map(|answer| {
        let tokens = answer.tokens as f64;
        (ms(start_s(answer.event), answer.last_chunk_s) / tokens, tokens)
    });
    stepped(weighed.collect())
}

/// Values with their weights. Shares are added up one after the other, so that rounding puts a
/// percentile on the same side of a step as theirs.
fn stepped(mut weighed: Vec<(f64, f64)>) -> Option<Figure> {
    weighed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut steps: Vec<(f64, f64)> = Vec::with_capacity(weighed.len());
    for (value, weight) in weighed {
        match steps.last_mut() {
            Some(last) if last.0 == value => last.1 += weight,
            _ => steps.push((value, weight)),
        }
    }
    let (min, max) = (steps.first()?.0, steps.last()?.0);
    let total: f64 = steps.iter().map(|step| step.1).sum();
    let mut below = 0.0;
    let mut mean = 0.0;
    for step in &mut steps {
        let share = step.1 / total;
        mean += step.0 * share;
        below += share;
        step.1 = below;
    }
    let at = |p: f64| {
        let index = steps.partition_point(|step| step.1 < p).min(steps.len() - 1);
        Some(steps[index].0)
    };
    Some(Figure::Spread(Quantiles {
        count: Some(total.round() as u64),
        mean: Some(mean),
        min: Some(min),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        max: Some(max),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::{close, log, one, spread};

    #[test]
    fn the_clock_starts_behind_the_connection_and_stops_at_the_end_of_the_stream() {
        let view = view(&log());
        let ttft = spread(&view, Quantity::First);
        close(ttft.mean, 149.0);
        close(ttft.p50, 98.0);
        close(ttft.p99, 200.0);
        let whole = spread(&view, Quantity::Whole);
        close(whole.min, 163.0);
        close(whole.max, 250.0);
        let scheduled = spread(&view, Quantity::WholeFromSchedule);
        close(scheduled.min, 175.0);
        let delay = spread(&view, Quantity::DispatchDelay);
        close(delay.max, 12.0);
    }

    #[test]
    fn figures_per_token_are_weighed_by_tokens() {
        let mut events = log();
        events[1].output_tokens = Some(5);
        let view = view(&events);
        // 60 ms over 2 tokens, 40 ms over 4.
        let itl = spread(&view, Quantity::PerTokenAfterFirst);
        assert_eq!(itl.count, Some(6));
        close(itl.mean, 100.0 / 6.0);
        close(itl.p50, 10.0);
        close(itl.p90, 30.0);
        // 158 ms over 3 tokens, 240 ms over 5.
        let tpot = spread(&view, Quantity::PerToken);
        close(tpot.mean, 398.0 / 8.0);
    }

    #[test]
    fn a_percentile_is_a_value_and_rounding_may_take_the_next_one() {
        let ten = (1..=10).map(|value| (f64::from(value), 1.0)).collect();
        let Some(Figure::Spread(spread)) = stepped(ten) else { panic!("a spread") };
        close(spread.p50, 5.0);
        // Nine shares of a tenth add up to less than 0.9.
        close(spread.p90, 10.0);
    }

    #[test]
    fn rates_are_over_the_time_from_the_first_start_to_the_last_end() {
        let view = view(&log());
        close(one(&view, Quantity::Requests), 2.0 / 1.988);
        close(one(&view, Quantity::Tokens), 6.0 / 1.988);
    }
}

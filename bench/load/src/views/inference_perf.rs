//! As inference-perf (0.7.0) reports, with the server's token counts.

use super::{
    Answer, Quantiles, Quantity, Tool, View, answers, last_instant_s, ms, per_token_after, rate,
};
use crate::event::Event;

/// Its clock starts where a request is handed to the HTTP client and stops at the end of the stream.
/// All tokens of a chunk count as come together: gaps within a chunk are zero. Rates are over the
/// time from the first start to the last end, failed requests included.
pub(super) fn view(events: &[Event]) -> View {
    let (answers, failed) = answers(events);
    let mut view = View::new(Tool::InferencePerf);
    (view.completed, view.failed) = (Some(answers.len() as u64), Some(failed));
    if answers.is_empty() {
        return view;
    }
    let start = |answer: &Answer<'_>| answer.event.dispatched_s;
    let streamed = || answers.iter().filter(|answer| answer.tokens > 1);
    let ttft = streamed().map(|answer| ms(start(answer), answer.first_s));
    view.put(Quantity::First, Quantiles::linear(ttft.collect()));
    view.put(
        Quantity::ChunkGap,
        Quantiles::linear(answers.iter().flat_map(token_gaps_ms).collect()),
    );
    let after = streamed().filter_map(|answer| per_token_after(answer, 1));
    view.put(Quantity::PerTokenAfterFirst, Quantiles::linear(after.collect()));
    let whole = |answer: &Answer<'_>| ms(start(answer), answer.last_s);
    let normalised = answers.iter().filter(|answer| answer.tokens > 0);
    let normalised = normalised.map(|answer| whole(answer) / answer.tokens as f64);
    view.put(Quantity::PerToken, Quantiles::linear(normalised.collect()));
    view.put(Quantity::Whole, Quantiles::linear(answers.iter().map(whole).collect()));
    let delays = events.iter().map(|event| ms(event.scheduled_s, event.dispatched_s));
    view.put(Quantity::DispatchDelay, Quantiles::linear(delays.collect()));
    let begin = events.iter().map(|event| event.dispatched_s).fold(f64::INFINITY, f64::min);
    let seconds = last_instant_s(events) - begin;
    view.put(Quantity::Requests, rate(answers.len() as u64, seconds));
    view.put(Quantity::Tokens, rate(answers.iter().map(|answer| answer.tokens).sum(), seconds));
    view
}

/// A chunk of three tokens has two gaps of zero behind the gap to the chunk before it.
fn token_gaps_ms(answer: &Answer<'_>) -> Vec<f64> {
    let chunks = &answer.event.chunks_s;
    let tokens = answer.event.chunk_tokens.as_ref();
    let mut gaps = Vec::with_capacity(chunks.len());
    for (index, chunk_s) in chunks.iter().enumerate() {
        if let Some(before) = index.checked_sub(1).and_then(|before| chunks.get(before)) {
            gaps.push(ms(*before, *chunk_s));
        }
        let more = tokens.and_then(|tokens| tokens.get(index)).map_or(0, |n| n.saturating_sub(1));
        let more = more.min(CHUNK_TOKENS_MAX);
        gaps.extend(std::iter::repeat_n(0.0, more as usize));
    }
    gaps
}

/// A log that says more tokens in one chunk is wrong, and shall not fill the memory.
const CHUNK_TOKENS_MAX: u32 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::{close, log, one, spread};

    #[test]
    fn tokens_of_one_chunk_come_together() {
        let view = view(&log());
        let itl = spread(&view, Quantity::ChunkGap);
        // 20 and 40 ms; then 40 ms and, within the second chunk, 0.
        assert_eq!(itl.count, Some(4));
        close(itl.mean, 25.0);
        close(itl.min, 0.0);
        close(spread(&view, Quantity::PerTokenAfterFirst).mean, 25.0);
    }

    #[test]
    fn a_request_ends_with_its_stream_and_delays_count_failed_ones_too() {
        let view = view(&log());
        close(spread(&view, Quantity::Whole).min, 165.0);
        close(spread(&view, Quantity::PerToken).max, 250.0 / 3.0);
        assert_eq!(spread(&view, Quantity::DispatchDelay).count, Some(3));
        close(one(&view, Quantity::Requests), 2.0 / 1.99);
    }
}

//! Views of one small log, figure by figure.

use std::collections::BTreeSet;

use super::*;
use crate::figure::DEFINITIONS;

/// Two requests and a failed one: over a connection of its own, over a kept one, refused.
fn events() -> Vec<RequestRecord> {
    vec![
        RequestRecord {
            scheduled_s: 0.0,
            dispatched_s: 0.010,
            connected_s: Some(0.012),
            chunks_s: vec![0.110, 0.130, 0.170],
            last_s: Some(0.175),
            output_tokens: Some(3),
            ..RequestRecord::default()
        },
        RequestRecord {
            index: 1,
            scheduled_s: 1.0,
            dispatched_s: 1.0,
            chunks_s: vec![1.2, 1.24],
            chunk_tokens: Some(vec![1, 2]),
            last_s: Some(1.25),
            ..RequestRecord::default()
        },
        RequestRecord {
            index: 2,
            scheduled_s: 1.5,
            dispatched_s: 1.5,
            last_s: Some(2.0),
            error: Some("503".into()),
            ..RequestRecord::default()
        },
    ]
}

fn spread(view: &ToolView, quantity: Quantity) -> Quantiles {
    match view.figure(quantity) {
        Some((_, Figure::Spread(spread))) => spread,
        other => panic!("{quantity:?}: {other:?}"),
    }
}

fn rate(view: &ToolView, quantity: Quantity) -> f64 {
    match view.figure(quantity) {
        Some((_, Figure::Rate(rate))) => rate,
        other => panic!("{quantity:?}: {other:?}"),
    }
}

#[track_caller]
fn assert_near(got: impl Into<Option<f64>>, wanted: f64) {
    let got = got.into().expect("a figure");
    assert!((got - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{got}, wanted {wanted}");
}

#[test]
fn every_id_is_explained_in_the_definitions_and_used_once() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../MODELS.md");
    let models = std::fs::read_to_string(path).expect("bench/MODELS.md");
    let mut seen = BTreeSet::new();
    for definition in &DEFINITIONS.figure {
        let id = &definition.id;
        assert!(models.contains(&format!("`{id}`")), "{id} is not in MODELS.md");
        assert!(seen.insert(id), "{id} twice");
    }
}

#[test]
fn a_log_without_answers_gives_no_figures() {
    for tool in Tool::OTHERS {
        for events in [Vec::new(), events().split_off(2)] {
            let view = ToolView::from_events(tool, &events);
            assert_eq!((view.completed, view.failed), (Some(0), Some(events.len() as u64)));
            assert_eq!(view.figures, []);
        }
    }
}

#[test]
fn the_first_gap_is_in_no_ones_gaps() {
    for tool in [Tool::Vllm, Tool::AiPerf] {
        let gaps = spread(&ToolView::from_events(tool, &events()), Quantity::ChunkGap);
        assert_eq!(gaps.count, Some(3));
        assert_near(gaps.max, 40.0);
    }
}

#[test]
fn the_clock_starts_at_dispatch_and_stops_at_the_last_chunk() {
    let view = ToolView::from_events(Tool::Vllm, &events());
    assert_eq!((view.completed, view.failed), (Some(2), Some(1)));
    let ttft = spread(&view, Quantity::TimeToFirst);
    assert_near(ttft.mean, 150.0);
    assert_near(ttft.p50, 150.0);
    assert_near(ttft.p99, 199.0);
    let whole = spread(&view, Quantity::Latency);
    assert_near(whole.min, 160.0);
    assert_near(whole.max, 240.0);
}

#[test]
fn itl_pools_gaps_and_tpot_is_of_requests() {
    let view = ToolView::from_events(Tool::Vllm, &events());
    let itl = spread(&view, Quantity::ChunkGap);
    assert_near(itl.mean, 100.0 / 3.0);
    assert_near(itl.p50, 40.0);
    let tpot = spread(&view, Quantity::PerTokenAfterFirst);
    assert_eq!(tpot.count, Some(2));
    assert_near(tpot.mean, 25.0);
}

#[test]
fn throughput_is_over_the_whole_run() {
    let view = ToolView::from_events(Tool::Vllm, &events());
    assert_near(rate(&view, Quantity::RequestRate), 1.0);
    assert_near(rate(&view, Quantity::TokenRate), 3.0);
}

#[test]
fn the_clock_starts_behind_the_connection_and_stops_at_the_end_of_the_stream() {
    let view = ToolView::from_events(Tool::GuideLlm, &events());
    let ttft = spread(&view, Quantity::TimeToFirst);
    assert_near(ttft.mean, 149.0);
    assert_near(ttft.p50, 98.0);
    assert_near(ttft.p99, 200.0);
    let whole = spread(&view, Quantity::Latency);
    assert_near(whole.min, 163.0);
    assert_near(whole.max, 250.0);
    let scheduled = spread(&view, Quantity::ScheduledLatency);
    assert_near(scheduled.min, 175.0);
    let delay = spread(&view, Quantity::DispatchDelay);
    assert_near(delay.max, 12.0);
}

#[test]
fn figures_per_token_are_weighed_by_tokens() {
    let mut events = events();
    events[1].output_tokens = Some(5);
    let view = ToolView::from_events(Tool::GuideLlm, &events);
    // 60 ms over 2 tokens, 40 ms over 4.
    let itl = spread(&view, Quantity::PerTokenAfterFirst);
    assert_eq!(itl.count, Some(6));
    assert_near(itl.mean, 100.0 / 6.0);
    assert_near(itl.p50, 10.0);
    assert_near(itl.p90, 30.0);
    // 158 ms over 3 tokens, 240 ms over 5.
    let tpot = spread(&view, Quantity::PerToken);
    assert_near(tpot.mean, 398.0 / 8.0);
}

#[test]
fn a_percentile_is_a_value_and_rounding_may_take_the_next_one() {
    let ten = (1..=10).map(|value| (f64::from(value), 1.0)).collect();
    let Some(Figure::Spread(spread)) = step_quantiles(ten) else { panic!("a spread") };
    assert_near(spread.p50, 5.0);
    // Nine shares of a tenth add up to less than 0.9.
    assert_near(spread.p90, 10.0);
}

#[test]
fn rates_are_over_the_time_from_the_first_start_to_the_last_end() {
    let view = ToolView::from_events(Tool::GuideLlm, &events());
    assert_near(rate(&view, Quantity::RequestRate), 2.0 / 1.988);
    assert_near(rate(&view, Quantity::TokenRate), 6.0 / 1.988);
}

#[test]
fn itl_is_of_requests_and_icl_pools_gaps() {
    let view = ToolView::from_events(Tool::AiPerf, &events());
    let ttft = spread(&view, Quantity::TimeToFirst);
    assert_near(ttft.mean, 150.0);
    assert_near(ttft.p90, 190.0);
    let itl = spread(&view, Quantity::PerTokenAfterFirst);
    assert_eq!(itl.count, Some(2));
    assert_near(itl.min, 20.0);
    assert_near(itl.max, 30.0);
    assert_near(spread(&view, Quantity::ChunkGap).mean, 100.0 / 3.0);
    assert_near(spread(&view, Quantity::RequestTokenRate).mean, (50.0 + 100.0 / 3.0) / 2.0);
    assert_near(spread(&view, Quantity::Latency).max, 240.0);
    assert_near(spread(&view, Quantity::ScheduledLatency).min, 170.0);
    assert_near(spread(&view, Quantity::DispatchDelay).max, 10.0);
}

#[test]
fn a_first_chunk_of_several_tokens_is_left_out_of_the_divisor() {
    let mut events = events();
    events[1].chunk_tokens = Some(vec![2, 1]);
    assert_near(
        spread(&ToolView::from_events(Tool::AiPerf, &events), Quantity::PerTokenAfterFirst).max,
        40.0,
    );
    events[1].chunk_tokens = Some(vec![3, 0]);
    assert_near(
        spread(&ToolView::from_events(Tool::AiPerf, &events), Quantity::PerTokenAfterFirst).min,
        20.0,
    );
}

#[test]
fn rates_are_over_the_time_of_requests_that_count() {
    let view = ToolView::from_events(Tool::AiPerf, &events());
    assert_near(rate(&view, Quantity::RequestRate), 2.0 / 1.23);
    assert_near(rate(&view, Quantity::TokenRate), 6.0 / 1.23);
}

#[test]
fn tokens_of_one_chunk_come_together() {
    let view = ToolView::from_events(Tool::InferencePerf, &events());
    let itl = spread(&view, Quantity::ChunkGap);
    // 20 and 40 ms; then 40 ms and, within the second chunk, 0.
    assert_eq!(itl.count, Some(4));
    assert_near(itl.mean, 25.0);
    assert_near(itl.min, 0.0);
    assert_near(spread(&view, Quantity::PerTokenAfterFirst).mean, 25.0);
}

#[test]
fn a_request_ends_with_its_stream_and_delays_count_failed_ones_too() {
    let view = ToolView::from_events(Tool::InferencePerf, &events());
    assert_near(spread(&view, Quantity::Latency).min, 165.0);
    assert_near(spread(&view, Quantity::PerToken).max, 250.0 / 3.0);
    assert_eq!(spread(&view, Quantity::DispatchDelay).count, Some(3));
    assert_near(rate(&view, Quantity::RequestRate), 2.0 / 1.99);
}

//! The same event log by the definitions of other tools.
//!
//! Tools disagree about words: what `vllm bench serve` calls ITL is what AIPerf calls ICL. Each view
//! is a pure function of the log that gives the figures which that tool would have reported, under its
//! own names. Definitions, ids and where each starts its clock: `bench/MODELS.md`.
//! Written from reading vllm 0.33.0, guidellm 0.8.1, aiperf 0.13.0 and inference-perf 0.7.0.

mod aiperf;
mod guidellm;
mod inference_perf;
mod vllm;

use confide_estimate::quantile;

use crate::event::Event;

/// A load generator whose definitions are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `vllm bench serve`.
    Vllm,
    /// GuideLLM.
    GuideLlm,
    /// AIPerf, the successor of GenAI-Perf.
    AiPerf,
    /// inference-perf of the Kubernetes serving group.
    InferencePerf,
}

/// What a figure is about, across the tools' names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// To the first content of an answer.
    First,
    /// Between one chunk and the next.
    ChunkGap,
    /// For each token after the first, one figure for each request.
    PerTokenAfterFirst,
    /// For each token, the first included, one figure for each request.
    PerToken,
    /// The whole request.
    Whole,
    /// The whole request, from the instant that the plan wanted it sent.
    WholeFromSchedule,
    /// From that instant to the request's start.
    DispatchDelay,
    /// Requests per second.
    Requests,
    /// Tokens of answers per second, of all requests together.
    Tokens,
    /// Tokens per second within one answer, the first not counted.
    TokensOfOne,
}

impl Quantity {
    /// In the order in which tables show them.
    pub const ALL: [Self; 10] = [
        Self::First,
        Self::ChunkGap,
        Self::PerTokenAfterFirst,
        Self::PerToken,
        Self::Whole,
        Self::WholeFromSchedule,
        Self::DispatchDelay,
        Self::Requests,
        Self::Tokens,
        Self::TokensOfOne,
    ];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::First => "to the first token",
            Self::ChunkGap => "between chunks",
            Self::PerTokenAfterFirst => "per token after the first",
            Self::PerToken => "per token, the first included",
            Self::Whole => "whole request",
            Self::WholeFromSchedule => "whole request, from schedule",
            Self::DispatchDelay => "dispatch delay",
            Self::Requests => "requests",
            Self::Tokens => "output tokens",
            Self::TokensOfOne => "output tokens of one request",
        }
    }

    /// The unit of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Requests | Self::Tokens | Self::TokensOfOne => "/s",
            _ => "ms",
        }
    }
}

/// One figure of one tool: its id in `bench/MODELS.md` and the name that the tool gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Whose it is.
    pub tool: Tool,
    /// What it is about.
    pub quantity: Quantity,
    /// Stands beside the number.
    pub id: &'static str,
    /// Its name in the tool's own report.
    pub name: &'static str,
}

/// Every definition that a view computes or a reader reads.
pub const DEFINITIONS: &[Definition] = &[
    define(Tool::Vllm, Quantity::First, "vllm.ttft", "ttft"),
    define(Tool::Vllm, Quantity::ChunkGap, "vllm.itl", "itl"),
    define(Tool::Vllm, Quantity::PerTokenAfterFirst, "vllm.tpot", "tpot"),
    define(Tool::Vllm, Quantity::Whole, "vllm.e2el", "e2el"),
    define(Tool::Vllm, Quantity::Requests, "vllm.requests", "request_throughput"),
    define(Tool::Vllm, Quantity::Tokens, "vllm.tokens", "output_throughput"),
    define(Tool::GuideLlm, Quantity::First, "guidellm.ttft", "time_to_first_token_ms"),
    define(Tool::GuideLlm, Quantity::PerTokenAfterFirst, "guidellm.itl", "inter_token_latency_ms"),
    define(Tool::GuideLlm, Quantity::PerToken, "guidellm.tpot", "time_per_output_token_ms"),
    define(Tool::GuideLlm, Quantity::Whole, "guidellm.latency", "request_latency"),
    define(
        Tool::GuideLlm,
        Quantity::WholeFromSchedule,
        "guidellm.scheduled-latency",
        "request_scheduled_latency",
    ),
    define(
        Tool::GuideLlm,
        Quantity::DispatchDelay,
        "guidellm.dispatch-delay",
        "request_dispatch_delay",
    ),
    define(Tool::GuideLlm, Quantity::Requests, "guidellm.requests", "requests_per_second"),
    define(Tool::GuideLlm, Quantity::Tokens, "guidellm.tokens", "output_tokens_per_second"),
    define(Tool::AiPerf, Quantity::First, "aiperf.ttft", "time_to_first_token"),
    define(Tool::AiPerf, Quantity::ChunkGap, "aiperf.icl", "inter_chunk_latency"),
    define(Tool::AiPerf, Quantity::PerTokenAfterFirst, "aiperf.itl", "inter_token_latency"),
    define(Tool::AiPerf, Quantity::Whole, "aiperf.latency", "request_latency"),
    define(
        Tool::AiPerf,
        Quantity::WholeFromSchedule,
        "aiperf.effective-latency",
        "effective_latency",
    ),
    define(Tool::AiPerf, Quantity::DispatchDelay, "aiperf.credit-delay", "credit_to_start_latency"),
    define(Tool::AiPerf, Quantity::Requests, "aiperf.requests", "request_throughput"),
    define(Tool::AiPerf, Quantity::Tokens, "aiperf.tokens", "output_token_throughput"),
    define(
        Tool::AiPerf,
        Quantity::TokensOfOne,
        "aiperf.tokens-per-user",
        "output_token_throughput_per_user",
    ),
    define(Tool::InferencePerf, Quantity::First, "inference-perf.ttft", "time_to_first_token"),
    define(Tool::InferencePerf, Quantity::ChunkGap, "inference-perf.itl", "inter_token_latency"),
    define(
        Tool::InferencePerf,
        Quantity::PerTokenAfterFirst,
        "inference-perf.tpot",
        "time_per_output_token",
    ),
    define(
        Tool::InferencePerf,
        Quantity::PerToken,
        "inference-perf.ntpot",
        "normalized_time_per_output_token",
    ),
    define(Tool::InferencePerf, Quantity::Whole, "inference-perf.latency", "request_latency"),
    define(
        Tool::InferencePerf,
        Quantity::DispatchDelay,
        "inference-perf.schedule-delay",
        "schedule_delay",
    ),
    define(Tool::InferencePerf, Quantity::Requests, "inference-perf.requests", "requests_per_sec"),
    define(Tool::InferencePerf, Quantity::Tokens, "inference-perf.tokens", "output_tokens_per_sec"),
];

const fn define(
    tool: Tool,
    quantity: Quantity,
    id: &'static str,
    name: &'static str,
) -> Definition {
    Definition { tool, quantity, id, name }
}

/// How values of a run are spread, as far as the tool tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// How many values there were: requests, or gaps where they are pooled.
    pub count: Option<u64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Least.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// Of 100 values, 90 are below.
    pub p90: Option<f64>,
    /// Of 100 values, 95 are below.
    pub p95: Option<f64>,
    /// Of 100 values, 99 are below.
    pub p99: Option<f64>,
    /// Greatest.
    pub max: Option<f64>,
}

/// A figure of a view: how values are spread, or one number of the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Of values, in the quantity's unit.
    Spread(Quantiles),
    /// Of the run.
    Rate(f64),
}

/// What one tool reports, or would report, about one run.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// By whose definitions.
    pub tool: Tool,
    /// The tool's version, where a file tells it.
    pub version: Option<String>,
    /// Requests that count.
    pub completed: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
    /// Its figures; what it does not tell is not there.
    pub figures: Vec<(Definition, Figure)>,
}

impl View {
    /// The figures which `tool` would report about these requests.
    pub fn of(tool: Tool, events: &[Event]) -> Self {
        match tool {
            Tool::Vllm => vllm::view(events),
            Tool::GuideLlm => guidellm::view(events),
            Tool::AiPerf => aiperf::view(events),
            Tool::InferencePerf => inference_perf::view(events),
        }
    }

    /// The figure about `quantity`, where this tool has one.
    pub fn about(&self, quantity: Quantity) -> Option<(Definition, Figure)> {
        self.figures.iter().find(|(definition, _)| definition.quantity == quantity).copied()
    }

    pub(crate) fn new(tool: Tool) -> Self {
        Self { tool, version: None, completed: None, failed: None, figures: Vec::new() }
    }

    /// Keeps a figure unless it says nothing: a tool's 0 for "no value" does not become a number.
    pub(crate) fn put(&mut self, quantity: Quantity, figure: impl Into<Option<Figure>>) {
        let known = DEFINITIONS.iter().find(|d| d.tool == self.tool && d.quantity == quantity);
        if let (Some(definition), Some(figure)) = (known, figure.into()) {
            self.figures.push((*definition, figure));
        }
    }
}

impl Tool {
    /// All, in the order in which tables show them.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::GuideLlm, Self::AiPerf, Self::InferencePerf];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Vllm => "vllm bench serve",
            Self::GuideLlm => "GuideLLM",
            Self::AiPerf => "AIPerf",
            Self::InferencePerf => "inference-perf",
        }
    }
}

impl Quantiles {
    /// Percentiles on the straight line between neighbours (definition 7 of Hyndman and Fan), as
    /// numpy has them; nothing where there is no value.
    fn linear(mut values: Vec<f64>) -> Option<Figure> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Figure::Spread(Self {
            count: Some(values.len() as u64),
            mean: Some(values.iter().sum::<f64>() / values.len() as f64),
            min: Some(min),
            p50: quantile(&values, 0.5),
            p90: quantile(&values, 0.9),
            p95: quantile(&values, 0.95),
            p99: quantile(&values, 0.99),
            max: Some(max),
        }))
    }
}

/// A rate, where there is a time to divide by.
fn rate(count: u64, seconds: f64) -> Option<Figure> {
    (seconds > 0.0 && seconds.is_finite()).then(|| Figure::Rate(count as f64 / seconds))
}

/// A request that all three count: no error, content, and an end.
struct Answer<'a> {
    event: &'a Event,
    first_s: f64,
    last_chunk_s: f64,
    last_s: f64,
    tokens: u64,
}

/// Those that count, and how many do not.
fn answers(events: &[Event]) -> (Vec<Answer<'_>>, u64) {
    let whole: Vec<Answer<'_>> = events.iter().filter_map(answer).collect();
    let failed = (events.len() - whole.len()) as u64;
    (whole, failed)
}

fn answer(event: &Event) -> Option<Answer<'_>> {
    if event.error.is_some() {
        return None;
    }
    let (first_s, last_chunk_s) = (*event.chunks_s.first()?, *event.chunks_s.last()?);
    let tokens = match (event.output_tokens, &event.chunk_tokens) {
        (Some(tokens), _) => u64::from(tokens),
        (None, Some(tokens)) => tokens.iter().copied().map(u64::from).sum(),
        (None, None) => event.chunks_s.len() as u64,
    };
    Some(Answer { event, first_s, last_chunk_s, last_s: event.last_s?, tokens })
}

/// Milliseconds from one instant to another.
fn ms(from_s: f64, to_s: f64) -> f64 {
    (to_s - from_s) * 1e3
}

/// The time between each chunk and the one before it, of all requests in one heap.
fn pooled_gaps_ms(answers: &[Answer<'_>]) -> Vec<f64> {
    let pairs = answers.iter().flat_map(|answer| answer.event.chunks_s.windows(2));
    pairs.map(|pair| ms(pair[0], pair[1])).collect()
}

/// Milliseconds per token after those of the first chunk, where there are any.
fn per_token_after(answer: &Answer<'_>, first_chunk_tokens: u64) -> Option<f64> {
    let after = answer.tokens.checked_sub(first_chunk_tokens).filter(|tokens| *tokens > 0)?;
    Some(ms(answer.first_s, answer.last_chunk_s) / after as f64)
}

/// The last instant that the log knows, from its origin.
fn last_instant_s(events: &[Event]) -> f64 {
    let ends = events.iter().map(|event| event.last_s.unwrap_or(event.dispatched_s));
    ends.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Two requests and a failed one: over a connection of its own, over a kept one, refused.
    pub(super) fn log() -> Vec<Event> {
        vec![
            Event {
                scheduled_s: 0.0,
                dispatched_s: 0.010,
                connected_s: Some(0.012),
                chunks_s: vec![0.110, 0.130, 0.170],
                last_s: Some(0.175),
                output_tokens: Some(3),
                ..Event::default()
            },
            Event {
                index: 1,
                scheduled_s: 1.0,
                dispatched_s: 1.0,
                chunks_s: vec![1.2, 1.24],
                chunk_tokens: Some(vec![1, 2]),
                last_s: Some(1.25),
                ..Event::default()
            },
            Event {
                index: 2,
                scheduled_s: 1.5,
                dispatched_s: 1.5,
                last_s: Some(2.0),
                error: Some("503".into()),
                ..Event::default()
            },
        ]
    }

    pub(super) fn spread(view: &View, quantity: Quantity) -> Quantiles {
        match view.about(quantity) {
            Some((_, Figure::Spread(spread))) => spread,
            other => panic!("{quantity:?}: {other:?}"),
        }
    }

    pub(super) fn one(view: &View, quantity: Quantity) -> f64 {
        match view.about(quantity) {
            Some((_, Figure::Rate(rate))) => rate,
            other => panic!("{quantity:?}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn close(got: impl Into<Option<f64>>, wanted: f64) {
        let got = got.into().expect("a figure");
        assert!((got - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{got}, wanted {wanted}");
    }

    #[test]
    fn every_id_is_explained_in_the_definitions_and_used_once() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../MODELS.md");
        let models = std::fs::read_to_string(path).expect("bench/MODELS.md");
        let mut seen = BTreeSet::new();
        for definition in DEFINITIONS {
            let id = definition.id;
            assert!(models.contains(&format!("`{id}`")), "{id} is not in MODELS.md");
            assert!(seen.insert(id), "{id} twice");
        }
    }

    #[test]
    fn a_log_without_answers_gives_no_figures() {
        for tool in Tool::ALL {
            for events in [Vec::new(), log().split_off(2)] {
                let view = View::of(tool, &events);
                assert_eq!((view.completed, view.failed), (Some(0), Some(events.len() as u64)));
                assert_eq!(view.figures, []);
            }
        }
    }

    #[test]
    fn the_first_gap_is_in_no_ones_gaps() {
        for tool in [Tool::Vllm, Tool::AiPerf] {
            let gaps = spread(&View::of(tool, &log()), Quantity::ChunkGap);
            assert_eq!(gaps.count, Some(3));
            close(gaps.max, 40.0);
        }
    }
}

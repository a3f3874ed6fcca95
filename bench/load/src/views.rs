//! The same event log by the definitions of other tools.
//!
//! Tools disagree about words: what `vllm bench serve` calls ITL is what AIPerf calls ICL. A view is a pure function of
//! the log that gives the figures which that tool would have reported, under its own names. Definitions, ids and where
//! each starts its clock: `bench/MODELS.md`.
//!
//! - `vllm bench serve` starts its clock where a request is handed to the HTTP client: behind the semaphore of
//!   `--max-concurrency`, before a connection is made. Throughput is over the time from the start of the schedule to
//!   the end of the last request, failed ones included.
//! - GuideLLM's clock starts with the first header written, so behind TCP and TLS, and stops at the end of the stream.
//!   Figures per token are weighted by tokens; a percentile is the value at which the weights reach it, without a line
//!   between neighbours.
//! - AIPerf's clock (with `--use-server-token-count`) starts where a request is handed to the HTTP client, before a
//!   connection is taken from the pool or made, and stops at the last content. Its credits are issued on schedule; the
//!   log knows the schedule alone. Rates are over the time from the first start to the last content of the requests
//!   that count.
//! - inference-perf's clock (with the server's token counts) starts where a request is handed to the HTTP client and
//!   stops at the end of the stream. All tokens of a chunk count as come together: gaps within a chunk are zero. Rates
//!   are over the time from the first start to the last end, failed requests included.

#[cfg(test)]
mod tests;

use confide_estimate::quantile;

use crate::{
    definitions::{GoodputLimits, LatencyDistribution, Summary},
    event::RequestRecord,
    figure::{Definition, Figure, Quantiles, Quantity, Tool, ToolView},
};

/// The most tokens in one chunk that are counted: a log that says more is wrong and must not fill the memory.
const CHUNK_TOKENS_MAX: u32 = 4_096;

impl ToolView {
    /// The figures which `tool` would report about these requests.
    pub fn from_events(tool: Tool, events: &[RequestRecord]) -> Self {
        if tool == Tool::Confide {
            return Self::from_summary(&Summary::from_events(events, GoodputLimits::default()));
        }
        let run = ToolRun {
            tool,
            events,
            answers: events.iter().filter_map(CompleteAnswer::new).collect(),
        };
        let completed = run.answers.len() as u64;
        let mut figures = Vec::new();
        if completed > 0 {
            for definition in Definition::of_tool(tool) {
                figures.extend(run.figure(definition.quantity).map(|figure| (definition, figure)));
            }
        }
        let failed = Some(events.len() as u64 - completed);
        Self { tool, version: None, completed: Some(completed), failed, figures }
    }

    fn from_summary(summary: &Summary) -> Self {
        let own = |quantity| match quantity {
            Quantity::TimeToFirst => spread_figure(&summary.ttft),
            Quantity::ChunkGap => spread_figure(&summary.itl),
            Quantity::PerTokenAfterFirst => spread_figure(&summary.tpot),
            Quantity::PerToken => spread_figure(&summary.ntpot),
            Quantity::ScheduledLatency => spread_figure(&summary.e2e),
            Quantity::DispatchDelay => spread_figure(&summary.dispatch_delay),
            Quantity::RequestRate => summary.qps.map(Figure::Rate),
            Quantity::TokenRate => summary.tps.map(Figure::Rate),
            Quantity::Latency | Quantity::RequestTokenRate => None,
        };
        let definitions = Definition::of_tool(Tool::Confide);
        let figures = definitions.filter_map(|it| Some((it, own(it.quantity)?))).collect();
        let (completed, failed) = (Some(summary.complete), Some(summary.failed));
        Self { tool: Tool::Confide, version: None, completed, failed, figures }
    }
}

/// A request that all tools count: no error, content, and an end.
struct CompleteAnswer<'a> {
    event: &'a RequestRecord,
    first_s: f64,
    last_chunk_s: f64,
    last_s: f64,
    tokens: u64,
}

impl<'a> CompleteAnswer<'a> {
    fn new(event: &'a RequestRecord) -> Option<Self> {
        if event.error.is_some() {
            return None;
        }
        let (first_s, last_chunk_s) = (*event.chunks_s.first()?, *event.chunks_s.last()?);
        let tokens = match (event.output_tokens, &event.chunk_tokens) {
            (Some(tokens), _) => u64::from(tokens),
            (None, Some(tokens)) => tokens.iter().copied().map(u64::from).sum(),
            (None, None) => event.chunks_s.len() as u64,
        };
        Some(Self { event, first_s, last_chunk_s, last_s: event.last_s?, tokens })
    }

    /// The tokens of the first chunk, as the server says them; one where it does not say, or says all of the answer's.
    fn first_chunk_tokens(&self) -> u64 {
        let first = self.event.chunk_tokens.as_ref().and_then(|tokens| tokens.first());
        let first = first.map_or(1, |tokens| u64::from(*tokens));
        if (1..self.tokens).contains(&first) { first } else { 1 }
    }

    /// The time between each token and the one before it, in milliseconds, where all tokens of a chunk come together:
    /// a chunk of three tokens has two gaps of zero behind the gap to the chunk before it.
    fn token_gaps_ms(&self) -> Vec<f64> {
        let chunks = &self.event.chunks_s;
        let tokens = self.event.chunk_tokens.as_ref();
        let mut gaps = Vec::with_capacity(chunks.len());
        for (index, chunk_s) in chunks.iter().enumerate() {
            if let Some(before) = index.checked_sub(1).and_then(|before| chunks.get(before)) {
                gaps.push(elapsed_ms(*before, *chunk_s));
            }
            let more =
                tokens.and_then(|tokens| tokens.get(index)).map_or(0, |n| n.saturating_sub(1));
            gaps.extend(std::iter::repeat_n(0.0, more.min(CHUNK_TOKENS_MAX) as usize));
        }
        gaps
    }
}

/// A value and its weight.
type Weighted = (f64, f64);

/// The requests of one run as one tool sees them.
struct ToolRun<'a> {
    tool: Tool,
    events: &'a [RequestRecord],
    answers: Vec<CompleteAnswer<'a>>,
}

impl ToolRun<'_> {
    fn figure(&self, quantity: Quantity) -> Option<Figure> {
        match quantity {
            Quantity::RequestRate => self.rate(self.answers.len() as u64),
            Quantity::TokenRate => self.rate(self.answers.iter().map(|answer| answer.tokens).sum()),
            _ if self.tool == Tool::GuideLlm => step_quantiles(self.values(quantity)),
            _ => linear_quantiles(self.values(quantity)),
        }
    }

    /// The values of a quantity, in its unit, each with its weight.
    fn values(&self, quantity: Quantity) -> Vec<Weighted> {
        let start_s = |answer: &CompleteAnswer<'_>| self.start_s(answer.event);
        let is_streamed = |answer: &CompleteAnswer<'_>| answer.tokens > 1;
        let is_inference_perf = self.tool == Tool::InferencePerf;
        match quantity {
            Quantity::TimeToFirst => self.answer_values(|answer| {
                let counts = !is_inference_perf || is_streamed(answer);
                counts.then(|| (elapsed_ms(start_s(answer), answer.first_s), 1.0))
            }),
            Quantity::ChunkGap if is_inference_perf => {
                let gaps = self.answers.iter().flat_map(CompleteAnswer::token_gaps_ms);
                gaps.map(|gap| (gap, 1.0)).collect()
            }
            Quantity::ChunkGap => {
                let pairs = self.answers.iter().flat_map(|answer| answer.event.chunks_s.windows(2));
                pairs.map(|pair| (elapsed_ms(pair[0], pair[1]), 1.0)).collect()
            }
            Quantity::PerTokenAfterFirst => self.answer_values(|answer| {
                let is_aiperf = self.tool == Tool::AiPerf;
                let first = if is_aiperf { answer.first_chunk_tokens() } else { 1 };
                let after = answer.tokens.checked_sub(first).filter(|after| *after > 0)? as f64;
                Some((elapsed_ms(answer.first_s, answer.last_chunk_s) / after, after))
            }),
            Quantity::PerToken => self.answer_values(|answer| {
                let end_s = if is_inference_perf { answer.last_s } else { answer.last_chunk_s };
                let tokens = answer.tokens as f64;
                (answer.tokens > 0).then(|| (elapsed_ms(start_s(answer), end_s) / tokens, tokens))
            }),
            Quantity::Latency => self.answer_values(|answer| {
                Some((elapsed_ms(start_s(answer), self.end_s(answer)), 1.0))
            }),
            Quantity::ScheduledLatency => self.answer_values(|answer| {
                Some((elapsed_ms(answer.event.scheduled_s, self.end_s(answer)), 1.0))
            }),
            Quantity::DispatchDelay if is_inference_perf => {
                let delay = |event: &RequestRecord| {
                    (elapsed_ms(event.scheduled_s, event.dispatched_s), 1.0)
                };
                self.events.iter().map(delay).collect()
            }
            Quantity::DispatchDelay => self.answer_values(|answer| {
                Some((elapsed_ms(answer.event.scheduled_s, start_s(answer)), 1.0))
            }),
            Quantity::RequestTokenRate => {
                let per_token = self.values(Quantity::PerTokenAfterFirst).into_iter();
                per_token.filter(|(ms, _)| *ms > 0.0).map(|(ms, _)| (1e3 / ms, 1.0)).collect()
            }
            Quantity::RequestRate | Quantity::TokenRate => Vec::new(),
        }
    }

    fn answer_values(
        &self,
        value: impl Fn(&CompleteAnswer<'_>) -> Option<Weighted>,
    ) -> Vec<Weighted> {
        self.answers.iter().filter_map(value).collect()
    }

    /// The instant at which the tool's clock for a request starts, in seconds.
    fn start_s(&self, event: &RequestRecord) -> f64 {
        if self.tool != Tool::GuideLlm {
            return event.dispatched_s;
        }
        // The instant at which the session could carry the first byte of the request.
        let stages = [event.connected_s, event.handshake_s, event.attested_s];
        stages.into_iter().flatten().fold(event.dispatched_s, f64::max)
    }

    /// The instant at which the tool's clock for a request stops, in seconds.
    fn end_s(&self, answer: &CompleteAnswer<'_>) -> f64 {
        match self.tool {
            Tool::Vllm | Tool::AiPerf => answer.last_chunk_s,
            Tool::Confide | Tool::GuideLlm | Tool::InferencePerf => answer.last_s,
        }
    }

    /// A rate over the tool's time, where there is a time to divide by.
    fn rate(&self, count: u64) -> Option<Figure> {
        let first = |starts: &mut dyn Iterator<Item = f64>| starts.fold(f64::INFINITY, f64::min);
        let last = |ends: &mut dyn Iterator<Item = f64>| ends.fold(0.0, f64::max);
        let every_start = || first(&mut self.events.iter().map(|event| self.start_s(event)));
        let begin_s = match self.tool {
            Tool::Confide | Tool::Vllm => 0.0,
            Tool::GuideLlm | Tool::InferencePerf => every_start(),
            Tool::AiPerf => first(&mut self.answers.iter().map(|a| self.start_s(a.event))),
        };
        let end_s = match self.tool {
            Tool::AiPerf => last(&mut self.answers.iter().map(|answer| answer.last_chunk_s)),
            _ => last(&mut self.events.iter().map(|e| e.last_s.unwrap_or(e.dispatched_s))),
        };
        let seconds = end_s - begin_s;
        (seconds > 0.0 && seconds.is_finite()).then(|| Figure::Rate(count as f64 / seconds))
    }
}

/// A distribution by our definitions, where there are samples.
fn spread_figure(spread: &LatencyDistribution) -> Option<Figure> {
    let quantiles = Quantiles {
        count: Some(spread.count),
        mean: spread.mean_ms,
        min: None,
        p50: spread.p50_ms,
        p90: spread.p90_ms,
        p95: spread.p95_ms,
        p99: spread.p99_ms,
        max: spread.max_ms,
    };
    (spread.count > 0).then_some(Figure::Spread(quantiles))
}

/// Milliseconds from one instant to another.
fn elapsed_ms(from_s: f64, to_s: f64) -> f64 {
    (to_s - from_s) * 1e3
}

/// Percentiles on the straight line between neighbours (definition 7 of Hyndman and Fan), as numpy has them; nothing
/// where there is no value. Weights do not count.
fn linear_quantiles(weighted: Vec<Weighted>) -> Option<Figure> {
    let mut values: Vec<f64> = weighted.into_iter().map(|(value, _)| value).collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    Some(Figure::Spread(Quantiles {
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

/// Percentiles at which the weights reach them. Shares are added up one after the other, so that rounding puts a
/// percentile on the same side of a step as GuideLLM does.
fn step_quantiles(mut weighted: Vec<Weighted>) -> Option<Figure> {
    weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut steps: Vec<Weighted> = Vec::with_capacity(weighted.len());
    for (value, weight) in weighted {
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
    let value_at = |p: f64| {
        let index = steps.partition_point(|step| step.1 < p).min(steps.len() - 1);
        Some(steps[index].0)
    };
    Some(Figure::Spread(Quantiles {
        count: Some(total.round() as u64),
        mean: Some(mean),
        min: Some(min),
        p50: value_at(0.5),
        p90: value_at(0.9),
        p95: value_at(0.95),
        p99: value_at(0.99),
        max: Some(max),
    }))
}

//! Figures of an event log, by the definitions of `bench/MODELS.md`, "Definitions of a load".

use confide_estimate::{mean, supported_quantile};
use serde::{Deserialize, Serialize};

use crate::{event::RequestRecord, options::TokenCounter};

impl RequestRecord {
    /// Whether the answer came whole: no error, at least one piece of content, a last byte.
    pub fn is_complete(&self) -> bool {
        self.error.is_none() && !self.chunks_s.is_empty() && self.last_s.is_some()
    }

    /// `llm.ttft`: from the scheduled instant to the first content that is not empty, in seconds.
    pub fn ttft_s(&self) -> Option<f64> {
        Some(self.chunks_s.first()? - self.scheduled_s)
    }

    /// `llm.e2e`: from the scheduled instant to the last byte of the answer, in seconds.
    pub fn e2e_s(&self) -> Option<f64> {
        Some(self.last_s? - self.scheduled_s)
    }

    /// When it ended, in whichever way: it was in flight until then.
    pub fn end_s(&self) -> f64 {
        self.ended_s.or(self.last_s).unwrap_or(self.dispatched_s)
    }

    /// The latency that this request shows of `figure`: a complete answer's own, or the time until
    /// its deadline, which the true one exceeds.
    fn observe_latency(&self, figure: impl Fn(&Self) -> Option<f64>) -> Option<Observation> {
        if self.is_complete() {
            return figure(self).map(Observation::exact);
        }
        self.timed_out.then(|| Observation::at_least(self.end_s() - self.scheduled_s))
    }

    /// `llm.ttft` as [`Self::observe_latency`] gives it; an answer that began before its deadline has its own.
    fn observed_ttft(&self) -> Option<Observation> {
        match self.ttft_s() {
            Some(ttft_s) if self.timed_out => Some(Observation::exact(ttft_s)),
            _ => self.observe_latency(Self::ttft_s),
        }
    }

    /// `llm.dispatch-delay`: how much later than planned the client took it up, in seconds.
    pub fn dispatch_delay_s(&self) -> f64 {
        self.dispatched_s - self.scheduled_s
    }

    /// Tokens of the answer: as the server counts them where that is plausible, else as the
    /// client's tokenizer counts them where it was given one, else one for each piece of content.
    pub fn tokens(&self) -> u64 {
        let counted = self.plausible_usage().or(self.counted_tokens.map(u64::from));
        counted.unwrap_or(self.chunks_s.len() as u64)
    }

    /// Counts the tokens of the text by `counter` unless the server names a plausible number; drops the text.
    pub(crate) fn count_tokens(&mut self, counter: &TokenCounter) {
        let text = self.text.take();
        if self.is_complete() && self.plausible_usage().is_none() {
            self.counted_tokens = text.and_then(|text| counter.count(&text));
        }
    }

    /// The server's count of tokens, unless it is implausible.
    fn plausible_usage(&self) -> Option<u64> {
        self.output_tokens.filter(|_| !self.has_implausible_usage()).map(u64::from)
    }

    /// Whether the server counts more tokens than the answer can have: more than were asked for, or
    /// more than its text has bytes.
    pub fn has_implausible_usage(&self) -> bool {
        self.output_tokens.is_some_and(|tokens| {
            let asked = self.wanted_tokens > 0 && tokens > self.wanted_tokens;
            asked || self.text_bytes.is_some_and(|bytes| u64::from(tokens) > bytes)
        })
    }

    /// `llm.tpot`: time per token after the first, in seconds; absent below two tokens.
    pub fn tpot_s(&self) -> Option<f64> {
        let after_first = self.tokens().checked_sub(1).filter(|tokens| *tokens > 0)?;
        let (first, last) = (self.chunks_s.first()?, self.chunks_s.last()?);
        // All tokens in one piece have no time between them to speak of.
        (self.chunks_s.len() > 1).then(|| (last - first) / after_first as f64)
    }

    /// `llm.itl`: the gaps between pieces of content, in seconds.
    pub fn inter_token_gaps_s(&self) -> impl Iterator<Item = f64> {
        self.chunks_s.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// `llm.ntpot`: `llm.e2e` over the tokens of the answer, in seconds.
    pub fn ntpot_s(&self) -> Option<f64> {
        let tokens = self.tokens();
        Some(self.e2e_s()? / tokens as f64).filter(|_| tokens > 0)
    }
}

/// The limits that an answer must meet to count towards the goodput. An absent limit is not demanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GoodputLimits {
    /// The longest `llm.ttft`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// The longest mean of a request's `llm.itl`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itl_ms: Option<f64>,
    /// The longest `llm.tpot`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// The longest `llm.e2e`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
}

impl GoodputLimits {
    /// Reads `ttft=200,itl=50,tpot=50,e2e=5000`, milliseconds, each at most once.
    pub fn parse(text: &str) -> Option<Self> {
        let mut limits = Self::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=')?;
            let place = match name.trim() {
                "ttft" => &mut limits.ttft_ms,
                "itl" => &mut limits.itl_ms,
                "tpot" => &mut limits.tpot_ms,
                "e2e" => &mut limits.e2e_ms,
                _ => return None,
            };
            let value: f64 = value.trim().parse().ok()?;
            if place.replace(value).is_some() || !value.is_finite() || value <= 0.0 {
                return None;
            }
        }
        Some(limits)
    }

    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the answer is complete and meets all limits.
    pub fn are_met_by(&self, event: &RequestRecord) -> bool {
        let within = |limit: Option<f64>, seconds: Option<f64>| match (limit, seconds) {
            (None, _) => true,
            // An answer of one token has no gap that could be too long.
            (Some(_), None) => true,
            (Some(limit_ms), Some(seconds)) => seconds * 1e3 <= limit_ms,
        };
        event.is_complete()
            && within(self.ttft_ms, event.ttft_s())
            && within(self.itl_ms, mean(&event.inter_token_gaps_s().collect::<Vec<_>>()))
            && within(self.tpot_ms, event.tpot_s())
            && within(self.e2e_ms, event.e2e_s())
    }
}

/// A duration in seconds, or the least that it can be (a censored observation).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Observation {
    seconds: f64,
    is_censored: bool,
}

impl Observation {
    fn exact(seconds: f64) -> Self {
        Self { seconds, is_censored: false }
    }

    fn at_least(seconds: f64) -> Self {
        Self { seconds, is_censored: true }
    }
}

/// A distribution in milliseconds. A percentile is there only where its tail holds ten samples.
///
/// Requests that hit their deadline count with the time until then. Figures from
/// `at_least_from_ms` on, and the mean, are then lower bounds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LatencyDistribution {
    /// The id of the definition in `bench/MODELS.md`.
    pub id: String,
    /// The number of samples.
    pub count: u64,
    /// The arithmetic mean.
    pub mean_ms: Option<f64>,
    /// The median; absent below 20 samples.
    pub p50_ms: Option<f64>,
    /// The 90th percentile; absent below 100 samples.
    pub p90_ms: Option<f64>,
    /// The 95th percentile; absent below 200 samples.
    pub p95_ms: Option<f64>,
    /// The 99th percentile; absent below 1,000 samples.
    pub p99_ms: Option<f64>,
    /// The longest value, which is not an estimate of a percentile.
    pub max_ms: Option<f64>,
    /// The number of samples that are only known to be at least their value.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub censored: u64,
    /// The least of those values: percentiles from here on are lower bounds, and so is the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least_from_ms: Option<f64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LatencyDistribution {
    /// The distribution of values in seconds, by the definition with this id.
    pub fn from_seconds(id: &str, seconds: &[f64]) -> Self {
        let values: Vec<f64> = seconds.iter().map(|value| value * 1e3).collect();
        let at = |p| supported_quantile(&values, p);
        Self {
            id: id.to_owned(),
            count: values.len() as u64,
            mean_ms: mean(&values),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            max_ms: values.iter().copied().reduce(f64::max),
            ..Self::default()
        }
    }

    /// The distribution of observations, some of which may be lower bounds.
    fn from_observations(id: &str, observations: &[Observation]) -> Self {
        let seconds: Vec<f64> = observations.iter().map(|one| one.seconds).collect();
        let censored = observations.iter().filter(|one| one.is_censored);
        Self {
            censored: censored.clone().count() as u64,
            at_least_from_ms: censored.map(|one| one.seconds * 1e3).reduce(f64::min),
            ..Self::from_seconds(id, &seconds)
        }
    }

    /// Whether a percentile or the longest value of this distribution is only a lower bound.
    pub fn is_lower_bound(&self, value_ms: f64) -> bool {
        self.at_least_from_ms.is_some_and(|from_ms| value_ms >= from_ms)
    }

    /// The highest of p99, p95 and p90 that its tail supports, with its name; `None` below
    /// 100 samples.
    pub fn tail_percentile_ms(&self) -> Option<(&'static str, f64)> {
        let named = [("p99", self.p99_ms), ("p95", self.p95_ms), ("p90", self.p90_ms)];
        named.into_iter().find_map(|(name, value)| Some((name, value?)))
    }

    /// The middle: the median where it is supported, else the mean.
    pub fn median_or_mean_ms(&self) -> Option<f64> {
        self.p50_ms.or(self.mean_ms)
    }
}

/// Every figure of one run. A figure is absent if there was nothing to count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests whose answer came whole.
    pub complete: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cut by the end of the run: neither complete nor failed.
    pub cut: u64,
    /// Requests that were sent again because the server had closed an idle connection.
    #[serde(default)]
    pub repeated: u64,
    /// The time from the first scheduled instant to the end of the last request, or to the end that was planned, in
    /// seconds.
    pub duration_s: Option<f64>,
    /// The distribution of `llm.ttft`.
    pub ttft: LatencyDistribution,
    /// The distribution of `llm.itl`, over the gaps of all answers.
    pub itl: LatencyDistribution,
    /// The distribution of `llm.tpot`.
    pub tpot: LatencyDistribution,
    /// The distribution of `llm.ntpot`.
    pub ntpot: LatencyDistribution,
    /// The distribution of `llm.e2e`.
    pub e2e: LatencyDistribution,
    /// The distribution of `llm.dispatch-delay`, over all requests.
    pub dispatch_delay: LatencyDistribution,
    /// `llm.connect`: from dispatch to a connection that takes a request, where one was opened.
    pub connect: LatencyDistribution,
    /// `llm.queue`: the time that a request waited in the server, where the server says it.
    pub server_queue: LatencyDistribution,
    /// `llm.qps`: complete answers / duration.
    pub qps: Option<f64>,
    /// `llm.tps`: output tokens of complete answers / duration.
    pub tps: Option<f64>,
    /// `llm.tps-in`: prompt tokens of complete answers, where the server counts them / duration.
    pub tps_in: Option<f64>,
    /// The limits of the goodput.
    pub limits: GoodputLimits,
    /// `llm.goodput`: complete answers within all limits / duration.
    pub goodput_per_s: Option<f64>,
    /// The share of good answers: complete answers within all limits / requests that were not cut.
    pub good_ratio: Option<f64>,
    /// `llm.streams`: requests in flight, the mean over the duration.
    pub streams_mean: Option<f64>,
    /// The most requests in flight at one instant.
    pub streams_peak: u64,
    /// Output tokens of complete answers.
    pub output_tokens: u64,
    /// Pieces of content of complete answers; fewer than tokens where the server sends several at once.
    pub chunks: u64,
    /// Complete answers that are shorter or longer than what was asked for.
    pub other_length: u64,
    /// Complete answers whose tokens the client's tokenizer counted, because the server gave no plausible number.
    #[serde(default)]
    pub counted_by_tokenizer: u64,
    /// Complete answers whose pieces of content were counted, because neither server nor tokenizer gave a number.
    #[serde(default)]
    pub counted_by_chunks: u64,
    /// Complete answers for which the server named more tokens than there can be.
    #[serde(default)]
    pub implausible_usage: u64,
}

/// The error of a request that the end of its run cut off.
pub const CUT: &str = "cut: the run ended";

impl Summary {
    /// Computes all figures of these requests.
    pub fn from_events(events: &[RequestRecord], limits: GoodputLimits) -> Self {
        Self::from_run(events, limits, None)
    }

    /// Computes all figures of a run, whose requests were planned to start within `planned_s`
    /// seconds of its origin: a server that stops answering does not shorten it.
    pub fn from_run(
        events: &[RequestRecord],
        limits: GoodputLimits,
        planned_s: Option<f64>,
    ) -> Self {
        let complete: Vec<&RequestRecord> =
            events.iter().filter(|event| event.is_complete()).collect();
        let cut = events.iter().filter(|event| event.error.as_deref() == Some(CUT)).count();
        let spread = |id, figure: &dyn Fn(&RequestRecord) -> Option<f64>| {
            let seconds: Vec<f64> = complete.iter().filter_map(|event| figure(event)).collect();
            LatencyDistribution::from_seconds(id, &seconds)
        };
        let observed = |id, figure: &dyn Fn(&RequestRecord) -> Option<Observation>| {
            let seen: Vec<Observation> = events.iter().filter_map(figure).collect();
            LatencyDistribution::from_observations(id, &seen)
        };
        let gaps: Vec<f64> = complete.iter().flat_map(|event| event.inter_token_gaps_s()).collect();
        let delays: Vec<f64> = events.iter().map(RequestRecord::dispatch_delay_s).collect();
        let output_tokens = complete.iter().map(|event| event.tokens()).sum::<u64>();
        let count = |is_counted: &dyn Fn(&RequestRecord) -> bool| {
            complete.iter().filter(|event| is_counted(event)).count() as u64
        };
        let asked = |event: &&&RequestRecord| event.tokens() != u64::from(event.wanted_tokens);
        let mut summary = Self {
            requests: events.len() as u64,
            complete: complete.len() as u64,
            failed: (events.len() - complete.len() - cut) as u64,
            cut: cut as u64,
            repeated: events.iter().map(|event| u64::from(event.repeats)).sum(),
            ttft: observed("llm.ttft", &RequestRecord::observed_ttft),
            itl: LatencyDistribution::from_seconds("llm.itl", &gaps),
            tpot: spread("llm.tpot", &RequestRecord::tpot_s),
            ntpot: spread("llm.ntpot", &RequestRecord::ntpot_s),
            e2e: observed("llm.e2e", &|event| event.observe_latency(RequestRecord::e2e_s)),
            dispatch_delay: LatencyDistribution::from_seconds("llm.dispatch-delay", &delays),
            connect: spread("llm.connect", &connect_s),
            server_queue: spread("llm.queue", &|event| event.server_queue_s),
            limits,
            streams_peak: peak_streams(events),
            output_tokens,
            chunks: complete.iter().map(|event| event.chunks_s.len() as u64).sum(),
            other_length: complete.iter().filter(asked).count() as u64,
            counted_by_tokenizer: count(&|event| {
                event.plausible_usage().is_none() && event.counted_tokens.is_some()
            }),
            counted_by_chunks: count(&|event| {
                event.plausible_usage().is_none() && event.counted_tokens.is_none()
            }),
            implausible_usage: count(&RequestRecord::has_implausible_usage),
            ..Self::default()
        };
        summary.add_rates(events, &complete, planned_s);
        summary
    }

    fn add_rates(
        &mut self,
        events: &[RequestRecord],
        complete: &[&RequestRecord],
        planned_s: Option<f64>,
    ) {
        let first = events.iter().map(|event| event.scheduled_s).reduce(f64::min);
        let ends = events.iter().map(RequestRecord::end_s);
        let last = ends.chain(planned_s).reduce(f64::max);
        let Some(duration_s) = first.zip(last).map(|(first, last)| last - first) else { return };
        if duration_s <= 0.0 || complete.is_empty() {
            return;
        }
        self.duration_s = Some(duration_s);
        let per_s = |count: u64| Some(count as f64 / duration_s);
        self.qps = per_s(self.complete);
        self.tps = per_s(self.output_tokens);
        let prompts: Option<u64> =
            complete.iter().map(|event| event.prompt_tokens.map(u64::from)).sum();
        self.tps_in = prompts.and_then(per_s);
        let in_flight: f64 = events.iter().map(|event| event.end_s() - event.scheduled_s).sum();
        self.streams_mean = Some(in_flight / duration_s);
        if !self.limits.is_empty() {
            let good = complete.iter().filter(|event| self.limits.are_met_by(event)).count() as u64;
            self.goodput_per_s = per_s(good);
            let counted = self.requests - self.cut;
            self.good_ratio = (counted > 0).then(|| good as f64 / counted as f64);
        }
    }
}

/// The time from dispatch to the last stage of opening a connection, in seconds; `None` if none was opened.
fn connect_s(event: &RequestRecord) -> Option<f64> {
    let opened = event.attested_s.or(event.handshake_s).or(event.connected_s)?;
    Some(opened - event.dispatched_s)
}

/// The most requests in flight at one instant: one that ends when another starts does not overlap it.
fn peak_streams(events: &[RequestRecord]) -> u64 {
    let mut steps: Vec<(f64, i64)> = Vec::with_capacity(events.len() * 2);
    for event in events {
        steps.extend([(event.scheduled_s, 1), (event.end_s(), -1)]);
    }
    steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A log of known truth: request `i` at `i` × 100 ms, first token after 40 ms, then `tokens`
    /// in all at 10 ms each, the last byte with the last token.
    pub(crate) fn events_of_known_truth(requests: u32, tokens: u32) -> Vec<RequestRecord> {
        let event = |index: u32| {
            let scheduled_s = f64::from(index) * 0.1;
            let first = scheduled_s + 0.040;
            let chunks_s: Vec<f64> =
                (0..tokens).map(|token| first + f64::from(token) * 0.010).collect();
            RequestRecord {
                index: u64::from(index),
                scheduled_s,
                dispatched_s: scheduled_s + 0.0001,
                connected_s: Some(scheduled_s + 0.0004),
                last_s: chunks_s.last().copied(),
                chunks_s,
                wanted_tokens: tokens,
                output_tokens: Some(tokens),
                prompt_tokens: Some(7),
                ..RequestRecord::default()
            }
        };
        (0..requests).map(event).collect()
    }

    fn assert_near(got: Option<f64>, wanted: f64) {
        assert!(got.is_some_and(|got| (got - wanted).abs() < 1e-6 * wanted.max(1.0)), "{got:?}");
    }

    #[test]
    fn a_log_of_known_truth_gives_what_it_was_made_of() {
        let summary =
            Summary::from_events(&events_of_known_truth(30, 11), GoodputLimits::default());
        assert_eq!((summary.requests, summary.complete, summary.failed), (30, 30, 0));
        assert_near(summary.ttft.p50_ms, 40.0);
        assert_near(summary.tpot.mean_ms, 10.0);
        assert_near(summary.itl.p99_ms.or(summary.itl.p95_ms), 10.0);
        assert_near(summary.e2e.p50_ms, 140.0);
        assert_near(summary.ntpot.p50_ms, 140.0 / 11.0);
        assert_near(summary.dispatch_delay.mean_ms, 0.1);
        assert_near(summary.connect.mean_ms, 0.3);
        assert_near(summary.duration_s, 2.9 + 0.14);
        assert_near(summary.qps, 30.0 / 3.04);
        assert_near(summary.tps, 330.0 / 3.04);
        assert_near(summary.tps_in, 210.0 / 3.04);
        // Little's law holds by construction, and is not used for a latency.
        assert_near(summary.streams_mean, 30.0 * 0.14 / 3.04);
        assert_eq!((summary.streams_peak, summary.other_length), (2, 0));
        assert_eq!((summary.goodput_per_s, summary.good_ratio), (None, None));
    }

    #[test]
    fn a_percentile_without_ten_samples_in_its_tail_is_absent() {
        let summary =
            Summary::from_events(&events_of_known_truth(199, 2), GoodputLimits::default());
        assert!(summary.ttft.p90_ms.is_some() && summary.ttft.p95_ms.is_none());
        assert_eq!(
            Summary::from_events(&events_of_known_truth(19, 2), GoodputLimits::default())
                .ttft
                .p50_ms,
            None
        );
        assert_eq!(summary.ttft.tail_percentile_ms().map(|(name, _)| name), Some("p90"));
    }

    #[test]
    fn latency_counts_from_the_schedule_so_that_a_stall_is_paid_by_all_behind_it() {
        // Ten requests each 100 ms apart, all taken up and answered only after a stall of a second.
        let mut events = events_of_known_truth(10, 2);
        for event in &mut events {
            let stall = 1.0 - event.scheduled_s;
            event.dispatched_s += stall;
            event.chunks_s.iter_mut().for_each(|at| *at += stall);
            event.last_s = event.last_s.map(|at| at + stall);
        }
        let summary = Summary::from_events(&events, GoodputLimits::default());
        assert_near(summary.ttft.mean_ms, 40.0 + 550.0);
        assert_near(summary.dispatch_delay.max_ms, 1000.1);
    }

    #[test]
    fn goodput_counts_answers_within_all_limits_and_failures_against_them() {
        let mut events = events_of_known_truth(20, 11);
        events[3].chunks_s.iter_mut().for_each(|at| *at += 0.05);
        events[4].error = Some("reset".into());
        events[5].error = Some(CUT.into());
        let limits = GoodputLimits::parse("ttft=50,tpot=11").unwrap();
        let summary = Summary::from_events(&events, limits);
        assert_eq!((summary.complete, summary.failed, summary.cut), (18, 1, 1));
        assert_near(summary.good_ratio, 17.0 / 19.0);
        assert_near(summary.goodput_per_s, 17.0 / summary.duration_s.unwrap());
        for text in ["", "ttft", "ttft=0", "ttft=1,ttft=2", "x=1", "itl=inf"] {
            assert_eq!(GoodputLimits::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_server_that_stops_answering_does_not_shorten_the_run() {
        // Answers for three of ten seconds, then refusals at once.
        let mut events = events_of_known_truth(100, 2);
        for event in &mut events[30..] {
            let at = event.dispatched_s + 0.001;
            (event.chunks_s, event.last_s) = (Vec::new(), None);
            (event.ended_s, event.status, event.error) = (Some(at), Some(503), Some("busy".into()));
        }
        let limits = GoodputLimits::parse("ttft=50").unwrap();
        let summary = Summary::from_events(&events, limits);
        assert_eq!((summary.complete, summary.failed), (30, 70));
        assert_near(summary.duration_s, 9.9 + 0.0011);
        assert_near(summary.qps, 30.0 / 9.9011);
        assert_near(summary.goodput_per_s, 30.0 / 9.9011);
        // It was planned for twelve seconds, of which the last two had no arrival.
        assert_near(Summary::from_run(&events, limits, Some(12.0)).qps, 30.0 / 12.0);
    }

    #[test]
    fn a_request_that_hits_its_deadline_is_at_least_as_long() {
        // Three of ten hang for five seconds; one of these had begun to answer.
        let mut events = events_of_known_truth(100, 2);
        for event in events.iter_mut().filter(|event| event.index % 10 < 3) {
            let began = event.index % 10 == 0;
            event.chunks_s.truncate(usize::from(began));
            (event.last_s, event.timed_out) = (None, true);
            (event.ended_s, event.error) = (Some(event.scheduled_s + 5.0), Some("late".into()));
        }
        let summary = Summary::from_events(&events, GoodputLimits::default());
        assert_eq!((summary.complete, summary.failed), (70, 30));
        assert_eq!((summary.ttft.count, summary.ttft.censored), (100, 20));
        assert_eq!((summary.e2e.count, summary.e2e.censored), (100, 30));
        assert_near(summary.ttft.p50_ms, 40.0);
        assert_near(summary.ttft.p90_ms, 5000.0);
        assert_near(summary.e2e.mean_ms, 0.7 * 50.0 + 0.3 * 5000.0);
        let bound = |value: Option<f64>| summary.ttft.is_lower_bound(value.unwrap());
        assert!(!bound(summary.ttft.p50_ms) && bound(summary.ttft.p90_ms));
        // Five seconds of arrivals are in flight at the end, 30 % of them and one that is answered.
        assert_eq!(summary.streams_peak, 16);
        assert_near(summary.streams_mean, (70.0 * 0.05 + 30.0 * 5.0) / summary.duration_s.unwrap());
    }

    #[test]
    fn tokens_that_come_together_are_counted_as_the_server_counts() {
        let mut event = events_of_known_truth(1, 4).remove(0);
        (event.output_tokens, event.wanted_tokens) = (Some(7), 8);
        assert_eq!(event.tokens(), 7);
        assert_near(event.tpot_s(), 0.030 / 6.0);
        event.chunks_s.truncate(1);
        assert_eq!(event.tpot_s(), None);
        let summary = Summary::from_events(&[event], GoodputLimits::default());
        assert_eq!((summary.other_length, summary.chunks, summary.output_tokens), (1, 1, 7));
    }

    #[test]
    fn tokens_that_cannot_be_are_not_believed_and_said() {
        let mut events = events_of_known_truth(4, 4);
        // Ten times what was asked for, more than the text has bytes, and no count at all.
        events[0].output_tokens = Some(40);
        (events[1].output_tokens, events[1].text_bytes) = (Some(4), Some(3));
        events[2].output_tokens = None;
        events[3].text_bytes = Some(9);
        let summary = Summary::from_events(&events, GoodputLimits::default());
        assert_eq!((summary.implausible_usage, summary.counted_by_chunks), (2, 3));
        assert_eq!(summary.output_tokens, 16);
        // A tokenizer's count takes the place of chunks, and of nothing that the server plausibly says.
        events.iter_mut().for_each(|event| event.counted_tokens = Some(6));
        let summary = Summary::from_events(&events, GoodputLimits::default());
        assert_eq!((summary.counted_by_tokenizer, summary.counted_by_chunks), (3, 0));
        assert_eq!(summary.output_tokens, 3 * 6 + 4);
    }

    #[test]
    fn nothing_complete_has_no_figures_and_no_zero() {
        let mut events = events_of_known_truth(3, 2);
        events.iter_mut().for_each(|event| event.error = Some("refused".into()));
        let summary = Summary::from_events(&events, GoodputLimits::parse("ttft=1").unwrap());
        assert_eq!((summary.failed, summary.qps, summary.duration_s), (3, None, None));
        assert_eq!(summary.ttft.mean_ms, None);
        assert_eq!(Summary::from_events(&[], GoodputLimits::default()).requests, 0);
    }
}

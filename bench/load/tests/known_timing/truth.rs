//! What a run's figures should be, from the server's log and the plan alone.

use std::{cmp::Reverse, collections::BinaryHeap, collections::HashMap, time::Duration};

use confide_load::{Clock, Plan};

use crate::server::{CHUNKS, End, Fault, Served, Written};

/// The least and the greatest that a figure can truly be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Range {
    fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), high: change(self.high) }
    }

    /// The time from `start` to this, in milliseconds.
    fn since_ms(self, start: Self) -> Self {
        Self { low: (self.low - start.high) * 1e3, high: (self.high - start.low) * 1e3 }
    }
}

/// One request of the plan as it truly was, in seconds of the client's clock.
struct Request {
    scheduled_s: Range,
    chunks_s: Vec<Range>,
    /// The end of the answer, of the failure or of the deadline.
    end_s: Range,
    is_complete: bool,
    is_hung: bool,
}

/// The limits of a good answer, in milliseconds.
pub(crate) const TTFT_LIMIT_MS: f64 = 100.0;
pub(crate) const E2E_LIMIT_MS: f64 = 200.0;
/// How far from a limit the client may already judge otherwise, as a share.
const NEAR_LIMIT: f64 = 0.02;

/// The true figures of a run. A request that hangs has a latency without an end.
pub(crate) struct Truth {
    requests: Vec<Request>,
    duration_s: Range,
    pub(crate) tokens_per_chunk: u32,
}

impl Truth {
    pub(crate) fn new(
        plan: &Plan,
        log: &[Served],
        clock: Clock,
        fault: Fault,
        deadline: Duration,
    ) -> Self {
        // A request that was repeated counts as it was answered.
        let by_prompt: HashMap<&str, &Served> =
            log.iter().map(|served| (served.prompt.as_str(), served)).collect();
        let deadline_s = deadline.as_secs_f64();
        let mut users: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut requests = Vec::new();
        for (index, planned) in plan.requests.iter().enumerate() {
            let served = by_prompt.get(plan.prompt(index).as_str()).copied();
            let scheduled_s = match (plan.users, planned.scheduled_s) {
                (None, at_s) => at_s.map(Range::exactly),
                // A user's next request: after the earliest end that nobody went on from, before it came.
                (Some(_), first_s) => {
                    let ready_s = first_s.unwrap_or_else(|| {
                        users.pop().map_or(0.0, |Reverse(nanos)| nanos as f64 / 1e9)
                    });
                    let came_s = served.map_or(ready_s, |served| clock.seconds_at(served.arrived));
                    Some(Range { low: ready_s, high: came_s.max(ready_s) })
                }
            };
            let request = Request::new(scheduled_s.expect("an instant"), served, clock, deadline_s);
            // The loop ends at its planned time; a server that is gone hears of no request.
            let is_over = plan.duration_s.is_some_and(|end_s| request.scheduled_s.low >= end_s);
            if plan.users.is_some() && served.is_none() && (fault != Fault::Death || is_over) {
                break;
            }
            users.push(Reverse((request.end_s.low.max(0.0) * 1e9) as u64));
            requests.push(request);
        }
        let first_s =
            requests.iter().map(|request| request.scheduled_s.low).fold(f64::MAX, f64::min);
        let end = |side: fn(&Range) -> f64| {
            let ends = requests.iter().map(|request| side(&request.end_s));
            ends.chain(plan.duration_s).fold(0.0, f64::max) - first_s
        };
        let duration_s = Range { low: end(|range| range.low), high: end(|range| range.high) };
        Self { duration_s, requests, tokens_per_chunk: fault.tokens_per_chunk() }
    }

    fn complete(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_complete)
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn complete_count(&self) -> usize {
        self.complete().count()
    }

    pub(crate) fn hung_count(&self) -> usize {
        self.requests.iter().filter(|request| request.is_hung).count()
    }

    /// From the scheduled instant to the first chunk, in milliseconds.
    pub(crate) fn ttft_ms(&self) -> Vec<Range> {
        let counted = self.requests.iter().filter(|request| request.is_complete || request.is_hung);
        counted.map(Request::ttft_ms).collect()
    }

    /// From the scheduled instant to the last byte, in milliseconds.
    pub(crate) fn e2e_ms(&self) -> Vec<Range> {
        let counted = self.requests.iter().filter(|request| request.is_complete || request.is_hung);
        counted.map(Request::e2e_ms).collect()
    }

    /// From chunk to chunk, in milliseconds.
    pub(crate) fn gaps_ms(&self) -> Vec<Range> {
        let pairs = self.complete().flat_map(|request| request.chunks_s.windows(2));
        pairs.map(|pair| pair[1].since_ms(pair[0])).collect()
    }

    /// The mean time from chunk to chunk, in milliseconds: from the first to the last of each answer.
    pub(crate) fn gap_mean_ms(&self) -> Range {
        let spans: Vec<Range> = self.complete().map(Request::span_ms).collect();
        mean(&spans).map(|ms| ms / f64::from(CHUNKS - 1))
    }

    /// The mean time per token after the first, with `tokens` in an answer, in milliseconds.
    pub(crate) fn tpot_mean_ms(&self, tokens: u32) -> Range {
        let spans: Vec<Range> = self.complete().map(Request::span_ms).collect();
        mean(&spans).map(|ms| ms / f64::from(tokens - 1))
    }

    /// A count over the duration, per second.
    pub(crate) fn rate(&self, count: usize) -> Range {
        let per_s = |duration_s: f64| count as f64 / duration_s;
        Range { low: per_s(self.duration_s.high), high: per_s(self.duration_s.low) }
    }

    /// Complete answers within the limits: those that surely are, and those that may be.
    pub(crate) fn good_counts(&self) -> [usize; 2] {
        [1.0 - NEAR_LIMIT, 1.0 + NEAR_LIMIT].map(|share| {
            let within = |ms: Range, limit_ms: f64| {
                let ms = if share < 1.0 { ms.high } else { ms.low };
                ms <= limit_ms * share
            };
            let good = |request: &&Request| {
                within(request.ttft_ms(), TTFT_LIMIT_MS) && within(request.e2e_ms(), E2E_LIMIT_MS)
            };
            self.complete().filter(good).count()
        })
    }

    pub(crate) fn goodput(&self) -> Range {
        let [low, high] = self.good_counts();
        Range { low: self.rate(low).low, high: self.rate(high).high }
    }

    /// Requests in flight, the mean over the duration.
    pub(crate) fn streams_mean(&self) -> Range {
        let sum = |side: fn(Range) -> f64| -> f64 {
            self.requests.iter().map(|it| side(it.end_s.since_ms(it.scheduled_s)) / 1e3).sum()
        };
        Range {
            low: sum(|range| range.low) / self.duration_s.high,
            high: sum(|range| range.high) / self.duration_s.low,
        }
    }
}

impl Request {
    fn new(scheduled_s: Range, served: Option<&Served>, clock: Clock, deadline_s: f64) -> Self {
        let range = |written: Written| Range {
            low: clock.seconds_at(written.before),
            high: clock.seconds_at(written.after),
        };
        let (end_s, is_complete, is_hung) = match served.map(|served| served.end) {
            Some(End::Complete(written)) => (range(written), true, false),
            Some(End::Failure(written)) => (range(written), false, false),
            Some(End::Hang) => (scheduled_s.map(|at_s| at_s + deadline_s), false, true),
            // The server was gone, before the request or before its end.
            Some(End::Open) | None => (scheduled_s, false, false),
        };
        let chunks = served.map_or(&[][..], |served| &served.chunks);
        let chunks_s = chunks.iter().copied().map(range).collect();
        Self { scheduled_s, chunks_s, end_s, is_complete, is_hung }
    }

    fn ttft_ms(&self) -> Range {
        let never = Range::exactly(f64::INFINITY);
        self.chunks_s.first().map_or(never, |first| first.since_ms(self.scheduled_s))
    }

    fn e2e_ms(&self) -> Range {
        let never = Range::exactly(f64::INFINITY);
        if self.is_hung { never } else { self.end_s.since_ms(self.scheduled_s) }
    }

    /// From the first chunk to the last, in milliseconds.
    fn span_ms(&self) -> Range {
        let (first, last) = (self.chunks_s.first(), self.chunks_s.last());
        first.zip(last).map_or(Range::default(), |(first, last)| last.since_ms(*first))
    }
}

pub(crate) fn mean(values: &[Range]) -> Range {
    let of = |side: fn(&Range) -> f64| values.iter().map(side).sum::<f64>() / values.len() as f64;
    Range { low: of(|range| range.low), high: of(|range| range.high) }
}

/// The quantile at `p`, on the straight line between neighbours.
pub(crate) fn quantile(values: &[Range], p: f64) -> Range {
    let of = |side: fn(&Range) -> f64| {
        let mut sorted: Vec<f64> = values.iter().map(side).collect();
        sorted.sort_by(f64::total_cmp);
        let place = p * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[place as usize], sorted[place.ceil() as usize]);
        // Between a number and infinity there is no line.
        if above.is_finite() { below + (above - below) * place.fract() } else { above }
    };
    Range { low: of(|range| range.low), high: of(|range| range.high) }
}

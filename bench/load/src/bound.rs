//! The signs that a run measured its client and not the server.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ceiling::{Ceiling, ClientWork},
    definitions::{LatencyDistribution, Summary},
};

/// The busiest client thread may use this share of its time.
pub const CLIENT_CPU_MAX: f64 = 0.8;
/// A run may ask for this share of what the client can do.
const CEILING_RATIO_MAX: f64 = 0.8;
/// The largest share of a time to first token that the client's own delay may make up.
const DELAY_SHARE_MAX: f64 = 0.01;
/// The limit of a delay's tail is never below this, because one tick of the scheduler is not the
/// client's fault. The mean has no such allowance.
const DELAY_TAIL_MS_MIN: f64 = 0.5;

/// The client's own use of time in a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClientFigures {
    /// The number of threads that send and read.
    pub threads: u32,
    /// The time from the origin to the end of the last request, in seconds.
    pub wall_s: f64,
    /// The CPU time of these threads and of the one that keeps the schedule, in seconds.
    pub cpu_s: f64,
    /// The CPU time of the busiest of them, divided by the wall time.
    pub busiest_ratio: f64,
    /// `llm.loop-delay`: how long a client thread took to turn to something that had just come.
    pub loop_delay: LatencyDistribution,
    /// Requests sent per second of this CPU time.
    #[serde(default)]
    pub requests_per_cpu_s: Option<f64>,
    /// Pieces of content that came in a read of their own, per second of this CPU time.
    #[serde(default)]
    pub tokens_per_cpu_s: Option<f64>,
    /// The ceiling by which the run is judged; absent in older logs.
    #[serde(default)]
    pub ceiling: Option<Ceiling>,
    /// The CPU time that the run's requests, connections and tokens take by that ceiling, divided by the wall time
    /// of all threads.
    #[serde(default)]
    pub ceiling_ratio: f64,
    /// The percentiles that the client's delays may have moved by more than 2 %, by their names in the summary.
    #[serde(default)]
    pub unresolved: Vec<String>,
}

impl ClientFigures {
    /// Adds what the client did, in the wall and CPU time that stand here.
    pub(crate) fn add_work(&mut self, work: ClientWork, ceiling: Ceiling) {
        let per_cpu_s = |count: u64| (self.cpu_s > 0.0).then(|| count as f64 / self.cpu_s);
        self.requests_per_cpu_s = per_cpu_s(work.requests);
        self.tokens_per_cpu_s = per_cpu_s(work.tokens);
        self.ceiling = Some(ceiling);
        let threads_s = self.wall_s * f64::from(self.threads);
        if threads_s > 0.0 {
            self.ceiling_ratio = ceiling.estimated_cpu_s(work) / threads_s;
        }
    }
}

/// A reason for which a run is client-bound.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "bound")]
pub enum ClientBound {
    /// A client thread was busy for too much of the time.
    Cpu {
        /// The share of its time in which it was busy.
        ratio: f64,
        /// The largest share allowed.
        limit: f64,
    },
    /// The run asked for too much of what the client can do.
    Ceiling {
        /// The share of its ceiling.
        ratio: f64,
        /// The largest share allowed.
        limit: f64,
    },
    /// Requests were taken up too late.
    Dispatch(ExceededDelay),
    /// Bytes waited too long for a thread to read them.
    Loop(ExceededDelay),
    /// No request was complete, so the client cannot be judged.
    #[serde(rename = "nothing")]
    NoAnswer,
}

/// A delay of the client that is longer than its limit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ExceededDelay {
    /// The figure of the delay: `mean`, or a percentile such as `p99`.
    pub figure: String,
    /// The delay in milliseconds.
    pub delay_ms: f64,
    /// The longest allowed, in milliseconds.
    pub limit_ms: f64,
}

impl ClientBound {
    /// Every reason to take this run for a measurement of its client; empty if there is none.
    ///
    /// A delay of the client is part of every latency that it reports. So its mean may be 1 % of
    /// the mean time to first token, and its highest supported percentile 1 % of the median, or
    /// half a millisecond where that is less: the client says so before it errs by 2 %.
    pub fn find_all(summary: &Summary, client: &ClientFigures) -> Vec<Self> {
        let (Some(middle_ms), Some(mean_ms)) =
            (summary.ttft.median_or_mean_ms(), summary.ttft.mean_ms)
        else {
            return vec![Self::NoAnswer];
        };
        let mut found = Vec::new();
        if client.busiest_ratio > CLIENT_CPU_MAX {
            found.push(Self::Cpu { ratio: client.busiest_ratio, limit: CLIENT_CPU_MAX });
        }
        if client.ceiling_ratio > CEILING_RATIO_MAX {
            found.push(Self::Ceiling { ratio: client.ceiling_ratio, limit: CEILING_RATIO_MAX });
        }
        let tail_limit_ms = (middle_ms * DELAY_SHARE_MAX).max(DELAY_TAIL_MS_MIN);
        let mean_limit_ms = mean_ms * DELAY_SHARE_MAX;
        let exceeded = |delay: &LatencyDistribution| {
            let mean = delay.mean_ms.map(|mean| ("mean", mean, mean_limit_ms));
            let tail = delay.tail_percentile_ms().map(|(name, tail)| (name, tail, tail_limit_ms));
            let found = mean.into_iter().chain(tail).find(|(_, delay, limit)| delay > limit);
            found.map(|(figure, delay_ms, limit_ms)| ExceededDelay {
                figure: figure.to_owned(),
                delay_ms,
                limit_ms,
            })
        };
        found.extend(exceeded(&summary.dispatch_delay).map(Self::Dispatch));
        found.extend(exceeded(&client.loop_delay).map(Self::Loop));
        found
    }

    /// All reasons in one text, `client-bound: …`; `None` if there are no reasons.
    pub fn describe_all(found: &[Self]) -> Option<String> {
        let texts: Vec<String> = found.iter().map(Self::to_string).collect();
        (!texts.is_empty()).then(|| format!("client-bound: {}", texts.join("; ")))
    }
}

impl fmt::Display for ClientBound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { ratio, limit } => write!(
                out,
                "the busiest client thread used {:.0} % of its time, limit {:.0} %",
                ratio * 1e2,
                limit * 1e2
            ),
            Self::Ceiling { ratio, limit } => write!(
                out,
                "requests, connections and tokens are {:.0} % of the client's ceiling, limit {:.0} %",
                ratio * 1e2,
                limit * 1e2
            ),
            Self::Dispatch(delay) => write!(out, "dispatch delay {delay}"),
            Self::Loop(delay) => write!(out, "loop delay {delay}"),
            Self::NoAnswer => write!(out, "no request was complete"),
        }
    }
}

impl fmt::Display for ExceededDelay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, delay_ms, limit_ms } = self;
        write!(out, "{figure} {delay_ms:.3} ms, limit {limit_ms:.3} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GoodputLimits, definitions::tests::events_of_known_truth};

    fn idle() -> ClientFigures {
        let loop_delay = LatencyDistribution::from_seconds("llm.loop-delay", &[0.00002; 2000]);
        ClientFigures {
            threads: 1,
            wall_s: 3.0,
            cpu_s: 0.3,
            busiest_ratio: 0.1,
            loop_delay,
            ..ClientFigures::default()
        }
    }

    #[test]
    fn a_client_with_time_to_spare_is_not_bound() {
        let summary =
            Summary::from_events(&events_of_known_truth(200, 5), GoodputLimits::default());
        assert_eq!(ClientBound::find_all(&summary, &idle()), []);
        assert_eq!(ClientBound::describe_all(&[]), None);
    }

    #[test]
    fn each_rule_marks_by_itself() {
        let summary =
            Summary::from_events(&events_of_known_truth(200, 5), GoodputLimits::default());
        let busy = ClientFigures { busiest_ratio: 0.81, ..idle() };
        assert!(matches!(ClientBound::find_all(&summary, &busy)[..], [ClientBound::Cpu { .. }]));
        // 11 of 1,000 are late by a millisecond: the mean stays small, p99 does not.
        let mut delays = vec![0.00001; 989];
        delays.extend([0.001; 11]);
        let late = LatencyDistribution::from_seconds("llm.loop-delay", &delays);
        let late = ClientFigures { loop_delay: late, ..idle() };
        assert!(matches!(ClientBound::find_all(&summary, &late)[..], [ClientBound::Loop { .. }]));
        let mut events = events_of_known_truth(200, 5);
        events.iter_mut().for_each(|event| event.dispatched_s += 0.0004);
        let summary = Summary::from_events(&events, GoodputLimits::default());
        assert!(matches!(
            ClientBound::find_all(&summary, &idle())[..],
            [ClientBound::Dispatch { .. }]
        ));
        let none = Summary::from_events(&[], GoodputLimits::default());
        assert_eq!(ClientBound::find_all(&none, &idle()), [ClientBound::NoAnswer]);
    }

    #[test]
    fn a_run_above_the_clients_ceiling_is_marked() {
        let summary =
            Summary::from_events(&events_of_known_truth(200, 5), GoodputLimits::default());
        // In three seconds of two threads: a third of what they can do by each of the two, then more.
        for (tokens, ratio, is_bound) in [(100_000, 2.0 / 3.0, false), (150_000, 5.0 / 6.0, true)] {
            let mut client = ClientFigures { threads: 2, ..idle() };
            let work = ClientWork { requests: 20_000, connections: 0, tokens };
            client.add_work(work, Ceiling::STATED);
            assert!((client.ceiling_ratio - ratio).abs() < 1e-9, "{}", client.ceiling_ratio);
            assert_eq!(client.requests_per_cpu_s.map(f64::round), Some(66_667.0));
            let found = ClientBound::find_all(&summary, &client);
            assert_eq!(matches!(found[..], [ClientBound::Ceiling { .. }]), is_bound, "{found:?}");
            assert_eq!(found.len(), usize::from(is_bound));
        }
    }

    /// The promise: by whatever even delay the client adds, it is marked before it errs by 2 %.
    #[test]
    fn no_delay_makes_an_error_of_two_percent_unmarked() {
        for truth_ms in [0.2, 1.0, 5.0, 40.0, 500.0] {
            for percent in 0..40 {
                let delay_s = truth_ms / 1e3 * f64::from(percent) / 1e3;
                let mut events = events_of_known_truth(300, 5);
                for event in &mut events {
                    let early = 0.040 - truth_ms / 1e3 - delay_s;
                    event.chunks_s.iter_mut().for_each(|at| *at -= early);
                    event.dispatched_s = event.scheduled_s + delay_s;
                }
                let summary = Summary::from_events(&events, GoodputLimits::default());
                let error = summary.ttft.p50_ms.unwrap() / truth_ms - 1.0;
                let loop_delay = LatencyDistribution::from_seconds("llm.loop-delay", &[0.0; 100]);
                let client = ClientFigures { loop_delay, ..idle() };
                let marked = !ClientBound::find_all(&summary, &client).is_empty();
                assert!(marked || error < 0.02, "{truth_ms} ms, {percent}: {error}");
                assert!(!marked || error > 0.009, "{truth_ms} ms, {percent}: {error}");
            }
        }
    }
}

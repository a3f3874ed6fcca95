//! Five kinds of arrivals by ten faults, against a server of known timing.
//!
//! Each figure of the client is within 2 % of what the server's log and the plan give, or the client
//! marks it itself. No assertion is on a speed: where the machine is too busy, the client has to say
//! so.

mod server;
mod truth;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    thread,
    time::Duration,
};

use confide_load::{
    Arrivals, ClientBound, Clock, ConnectionReuse, GoodputLimits, LatencyDistribution, LoadOptions,
    Opening, Plan, Summary, Target, TcpTransport, TokenLengths, TraceRow, Transport, Workload, run,
};

use self::{
    server::{CHUNKS, Fault, Server},
    truth::{E2E_LIMIT_MS, Range, TTFT_LIMIT_MS, Truth, mean, quantile},
};

/// The error that the instrument promises not to exceed without a mark, as a share.
const WITHIN: f64 = 0.02;
/// Requests of a run: enough for a 95th percentile.
const REQUESTS: usize = 230;
const RATE_PER_S: f64 = 160.0;
/// The planned time of a run, in seconds: longer than the arrivals, so that rates show who ends early.
const PLANNED_S: f64 = 1.5;
/// The further runs of a scenario whose first run was wrong; all of them have to be right. A fault of the client shows
/// in more than one run of three, a delay of the machine that nobody saw does not.
const REPEATS: usize = 2;
/// Runs at once: most of the time each of them sleeps.
const AT_ONCE: usize = 3;

/// Kinds of arrivals, and whether connections are kept.
const ARRIVALS: [(&str, bool); 5] =
    [("constant", false), ("poisson", true), ("closed", true), ("closed", false), ("bursts", true)];
const FAULTS: [Fault; 10] = [
    Fault::None,
    Fault::Freeze,
    Fault::Hang,
    Fault::Refuse,
    Fault::BreakMidStream,
    Fault::DropUnanswered,
    Fault::FourTokensCounted,
    Fault::FourTokensUncounted,
    Fault::UsageTimesTen,
    Fault::Death,
];

#[derive(Clone, Copy, Debug)]
struct Scenario {
    arrivals: &'static str,
    keeps: bool,
    fault: Fault,
}

impl Scenario {
    fn plan(self) -> Plan {
        let arrivals = match self.arrivals {
            "constant" => Arrivals::Constant { rate_per_s: RATE_PER_S },
            "poisson" => Arrivals::Poisson { rate_per_s: RATE_PER_S },
            "closed" => Arrivals::Closed { users: 16, ramp_s: 0.1 },
            _ => {
                // Four at once, 40 times a second.
                let at_s = |row: usize| (row / 4) as f64 * 0.025;
                let row =
                    |row| TraceRow { at_s: at_s(row), prompt_tokens: None, output_tokens: None };
                Arrivals::Trace { rows: (0..REQUESTS).map(row).collect(), speed: 1.0 }
            }
        };
        let workload = Workload {
            arrivals,
            requests: REQUESTS,
            duration_s: Some(PLANNED_S),
            prompt_tokens: TokenLengths::of_tokens(16),
            output_tokens: TokenLengths::of_tokens(CHUNKS * self.fault.tokens_per_chunk()),
            seed: 7,
        };
        Plan::new(&workload).unwrap()
    }

    /// The time that a request may take: one that hangs has to end within the run.
    fn deadline(self) -> Duration {
        Duration::from_millis(if self.fault == Fault::Hang { 400 } else { 2_000 })
    }
}

/// A figure of the client next to the truth.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    got: f64,
    truth: Range,
    /// The largest error, as a share.
    within: f64,
    /// What the client says of this figure.
    mark: Mark,
}

#[derive(Debug, PartialEq)]
enum Mark {
    None,
    /// It is a lower bound.
    LowerBound,
    /// It counts chunks.
    Chunks,
    /// The client's delays may have moved it.
    Unresolved,
}

impl Figure {
    fn is_right(&self) -> bool {
        let Self { got, truth, within, .. } = *self;
        let is_low = got < truth.low * (1.0 - within);
        let is_high = got > truth.high * (1.0 + within);
        match self.mark {
            Mark::None => !is_low && !is_high,
            Mark::LowerBound => !is_high,
            Mark::Chunks | Mark::Unresolved => true,
        }
    }
}

/// What came of one run.
struct Measurement {
    figures: Vec<Figure>,
    bounds: Vec<ClientBound>,
}

impl Measurement {
    fn wrong(&self) -> Vec<&Figure> {
        self.figures.iter().filter(|figure| !figure.is_right()).collect()
    }
}

#[test]
fn every_figure_is_within_two_percent_of_the_servers_log_or_marked() {
    let scenarios: VecDeque<Scenario> = ARRIVALS
        .into_iter()
        .flat_map(|(arrivals, keeps)| {
            FAULTS.into_iter().map(move |fault| Scenario { arrivals, keeps, fault })
        })
        .collect();
    let count = scenarios.len();
    let (waiting, failures) = (Mutex::new(scenarios), Mutex::new(Vec::new()));
    let unmarked = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(scenario) = next else { break };
                    match judge(scenario) {
                        Ok(is_unmarked) => *unmarked.lock().unwrap() += usize::from(is_unmarked),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
    });
    let (failures, unmarked) = (failures.into_inner().unwrap(), unmarked.into_inner().unwrap());
    println!("{unmarked} of {count} scenarios within 2 %, the others client-bound");
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Whether a scenario is right without the client being bound; an error where it is wrong and not marked, in the first
/// run and in one of those after it.
fn judge(scenario: Scenario) -> Result<bool, String> {
    let first = match judge_run(scenario) {
        Ok(is_unmarked) => return Ok(is_unmarked),
        Err(first) => first,
    };
    let mut is_unmarked = false;
    for _ in 0..REPEATS {
        is_unmarked = judge_run(scenario).map_err(|again| format!("{first}\nagain: {again}"))?;
    }
    Ok(is_unmarked)
}

/// The result of one run: whether the client was not bound, or the figures that are wrong and not marked.
fn judge_run(scenario: Scenario) -> Result<bool, String> {
    let measurement = measure(scenario);
    let reason = ClientBound::describe_all(&measurement.bounds);
    let found = measurement.wrong();
    let names: Vec<&str> = found.iter().map(|figure| figure.name).collect();
    println!("{scenario:?}: bound by {reason:?}, wrong: {names:?}");
    // What is counted is right whoever is late.
    let is_miscounted = found.iter().any(|figure| figure.within == 0.0);
    if found.is_empty() || (reason.is_some() && !is_miscounted) {
        return Ok(reason.is_none());
    }
    Err(format!("{scenario:?}: {found:#?}"))
}

fn measure(scenario: Scenario) -> Measurement {
    let plan = Arc::new(scenario.plan());
    let server = Server::start(scenario.fault, plan.requests.len());
    let target = Target::parse(&format!("http://127.0.0.1:{}", server.port), "m").unwrap();
    let origin = Arc::new(Mutex::new(None));
    let tcp = TcpTransport::new("127.0.0.1", server.port);
    let transport: Arc<dyn Transport> = Arc::new(ClockWitness { tcp, origin: Arc::clone(&origin) });
    let options = LoadOptions {
        sessions: if scenario.keeps {
            ConnectionReuse::Reused { first: 0 }
        } else {
            ConnectionReuse::New
        },
        deadline: scenario.deadline(),
        ..LoadOptions::default()
    };
    let stop = AtomicBool::new(false);
    let outcome = run(&plan, &Arc::new(target), &transport, &options, &stop, &mut |_| {}).unwrap();
    let log = server.end();
    let limits = GoodputLimits {
        ttft_ms: Some(TTFT_LIMIT_MS),
        e2e_ms: Some(E2E_LIMIT_MS),
        ..GoodputLimits::default()
    };
    let summary = Summary::from_run(&outcome.events, limits, plan.duration_s);
    let clock = origin.lock().unwrap().expect("a connection was opened");
    let truth = Truth::new(&plan, &log, clock, scenario.fault, scenario.deadline());
    let mut figures = latencies(&summary, &truth, &outcome.client.unresolved);
    figures.extend(counts(&summary, &truth, scenario.fault));
    figures.extend(rates(&summary, &truth, scenario.fault));
    Measurement { figures, bounds: ClientBound::find_all(&summary, &outcome.client) }
}

/// Latencies, those that are not supported left out.
fn latencies(summary: &Summary, truth: &Truth, unresolved: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut put =
        |spread: &LatencyDistribution, name: &'static str, got: Option<f64>, truth: Range| {
            let Some(got) = got else { return };
            let is_bound = match name.ends_with("mean_ms") {
                true => spread.censored > 0,
                false => spread.is_lower_bound(got),
            };
            let mark = match () {
                () if is_bound => Mark::LowerBound,
                () if unresolved.iter().any(|unresolved| unresolved == name) => Mark::Unresolved,
                () => Mark::None,
            };
            figures.push(Figure { name, got, truth, within: WITHIN, mark });
        };
    let (ttft, ttft_ms) = (&summary.ttft, truth.ttft_ms());
    put(ttft, "ttft.mean_ms", ttft.mean_ms, mean(&ttft_ms));
    put(ttft, "ttft.p50_ms", ttft.p50_ms, quantile(&ttft_ms, 0.5));
    put(ttft, "ttft.p95_ms", ttft.p95_ms, quantile(&ttft_ms, 0.95));
    let (e2e, e2e_ms) = (&summary.e2e, truth.e2e_ms());
    put(e2e, "e2e.mean_ms", e2e.mean_ms, mean(&e2e_ms));
    put(e2e, "e2e.p50_ms", e2e.p50_ms, quantile(&e2e_ms, 0.5));
    put(e2e, "e2e.p95_ms", e2e.p95_ms, quantile(&e2e_ms, 0.95));
    let (itl, gaps_ms) = (&summary.itl, truth.gaps_ms());
    put(itl, "itl.mean_ms", itl.mean_ms, truth.gap_mean_ms());
    put(itl, "itl.p50_ms", itl.p50_ms, quantile(&gaps_ms, 0.5));
    put(itl, "itl.p95_ms", itl.p95_ms, quantile(&gaps_ms, 0.95));
    figures
}

/// Counts, which are exact.
fn counts(summary: &Summary, truth: &Truth, fault: Fault) -> Vec<Figure> {
    let (requests, complete) = (truth.request_count(), truth.complete_count());
    let all_if = |condition| if condition { complete } else { 0 };
    let uncounted = matches!(fault, Fault::FourTokensUncounted | Fault::UsageTimesTen);
    [
        ("requests", summary.requests, requests),
        ("failed", summary.failed, requests - complete),
        ("cut", summary.cut, 0),
        ("censored", summary.e2e.censored, truth.hung_count()),
        ("counted by chunks", summary.counted_by_chunks, all_if(uncounted)),
        ("implausible usage", summary.implausible_usage, all_if(fault == Fault::UsageTimesTen)),
    ]
    .into_iter()
    .map(|(name, got, truth)| {
        let truth = Range { low: truth as f64, high: truth as f64 };
        Figure { name, got: got as f64, truth, within: 0.0, mark: Mark::None }
    })
    .collect()
}

/// Rates, and what is counted per token.
fn rates(summary: &Summary, truth: &Truth, fault: Fault) -> Vec<Figure> {
    let complete = truth.complete_count();
    let chunks = complete * CHUNKS as usize;
    let tokens_per_chunk = truth.tokens_per_chunk;
    let is_in_chunks = summary.counted_by_chunks > 0;
    let unit = |truth_in_tokens: Range, truth_in_chunks: Range| {
        // A figure that is called one of chunks has to be right as such.
        if is_in_chunks { truth_in_chunks } else { truth_in_tokens }
    };
    let mark = || if is_in_chunks { Mark::Chunks } else { Mark::None };
    let tokens_s = truth.rate(chunks * tokens_per_chunk as usize);
    let tpot_ms = truth.tpot_mean_ms(CHUNKS * tokens_per_chunk);
    let mut figures = Vec::new();
    let mut put = |name, got: Option<f64>, truth, mark| {
        let got = got.unwrap_or(f64::NAN);
        figures.push(Figure { name, got, truth, within: WITHIN, mark });
    };
    put("answers/s", summary.qps, truth.rate(complete), Mark::None);
    put("tokens/s", summary.tps, tokens_s, mark());
    put("tokens or chunks/s", summary.tps, unit(tokens_s, truth.rate(chunks)), Mark::None);
    put("time per token", summary.tpot.mean_ms, tpot_ms, mark());
    let in_chunks_ms = truth.tpot_mean_ms(CHUNKS);
    put("per token or chunk", summary.tpot.mean_ms, unit(tpot_ms, in_chunks_ms), Mark::None);
    put("goodput/s", summary.goodput_per_s, truth.goodput(), Mark::None);
    // Where the server is gone, it cannot know how long its failures took.
    if fault != Fault::Death {
        put("streams", summary.streams_mean, truth.streams_mean(), Mark::None);
    }
    figures
}

/// Plain TCP that remembers the run's clock.
struct ClockWitness {
    tcp: TcpTransport,
    origin: Arc<Mutex<Option<Clock>>>,
}

impl Transport for ClockWitness {
    fn open(&self, clock: Clock) -> Opening<'_> {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
        self.tcp.open(clock)
    }

    fn describe(&self) -> String {
        "tcp".into()
    }
}

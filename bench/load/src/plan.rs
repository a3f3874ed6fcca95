//! What is sent, and when: all of it from one seed, so that every arm gets the same work.

use std::sync::Arc;

use confide_estimate::Random;
use serde::{Deserialize, Serialize};

use crate::{
    event::REQUESTS_MAX,
    trace::{TOKENS_MAX, TraceRow},
};

/// The fastest arrivals per second: the gaps of faster ones are finer than the dispatcher's sleep.
const RATE_PER_S_MAX: f64 = 100_000.0;
/// The most users of a closed loop: with one connection each they stay below the ports of one address.
const USERS_MAX: u32 = 20_000;

/// The work of a run: arrivals, prompts and lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The instants at which requests start.
    pub arrivals: Arrivals,
    /// The most requests of the run.
    pub requests: usize,
    /// Arrivals at or after this many seconds are left out.
    pub duration_s: Option<f64>,
    /// Words of each prompt; a word is one token of most vocabularies.
    pub prompt_tokens: TokenLengths,
    /// Tokens asked for in each answer.
    pub output_tokens: TokenLengths,
    /// The same seed means the same work.
    pub seed: u64,
}

/// The rule by which requests start.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// An open loop with independent exponential gaps.
    Poisson {
        /// The mean number of arrivals per second.
        rate_per_s: f64,
    },
    /// An open loop with equal gaps, whose first request starts at 0.
    Constant {
        /// The number of arrivals per second.
        rate_per_s: f64,
    },
    /// An open loop with the instants of a trace, and its lengths where it has them.
    Trace {
        /// The rows of the trace, in order of time.
        rows: Arc<[TraceRow]>,
        /// The factor by which the trace is played faster: 2 takes half the time.
        speed: f64,
    },
    /// A closed loop: each user sends the next request when its last answer is complete.
    Closed {
        /// The number of users at once.
        users: u32,
        /// The time over which the users start evenly, in seconds.
        ramp_s: f64,
    },
}

impl Arrivals {
    /// Its name in event logs: `poisson`, `constant`, `trace` or `closed`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Poisson { .. } => "poisson",
            Self::Constant { .. } => "constant",
            Self::Trace { .. } => "trace",
            Self::Closed { .. } => "closed",
        }
    }
}

/// Lengths of prompts or answers, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct TokenLengths {
    /// The shortest length.
    pub min: u32,
    /// The longest length; all lengths between the two are equally likely.
    pub max: u32,
}

impl TokenLengths {
    /// Lengths that are all `tokens`.
    pub fn of_tokens(tokens: u32) -> Self {
        Self { min: tokens, max: tokens }
    }

    /// Reads `128` or `64..256`, both ends included.
    pub fn parse(text: &str) -> Option<Self> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let lengths = Self { min: min.trim().parse().ok()?, max: max.trim().parse().ok()? };
        lengths.is_valid().then_some(lengths)
    }

    fn is_valid(self) -> bool {
        (1..=TOKENS_MAX).contains(&self.min) && (self.min..=TOKENS_MAX).contains(&self.max)
    }

    fn draw(self, random: &mut Random) -> u32 {
        let span = u64::from(self.max) - u64::from(self.min) + 1;
        // Below a span of 32-bit numbers.
        self.min + random.next_below(span) as u32
    }
}

/// One request of a plan: when it starts and how long it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedRequest {
    /// The instant in seconds after the run's origin; in a closed loop only the first request of a
    /// user has one.
    pub scheduled_s: Option<f64>,
    /// The number of words in the prompt.
    pub prompt_tokens: u32,
    /// The number of tokens that are asked for.
    pub output_tokens: u32,
}

/// The plan of a run: all its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The requests in order of arrival.
    pub requests: Vec<PlannedRequest>,
    /// The number of users of a closed loop; absent in an open one.
    pub users: Option<u32>,
    /// The time from the origin within which arrivals were wanted, in seconds.
    pub duration_s: Option<f64>,
    seed: u64,
}

impl Plan {
    /// Lays out `workload`.
    ///
    /// # Errors
    /// [`PlanError`] if a figure is out of its range or nothing would be sent.
    pub fn new(workload: &Workload) -> Result<Self, PlanError> {
        check_workload(workload)?;
        let mut plan = Self {
            requests: Vec::new(),
            users: None,
            duration_s: workload.duration_s,
            seed: workload.seed,
        };
        // A stream of numbers of its own for each purpose: a longer prompt moves no arrival.
        let mut lengths = Random::new(derive_seed(workload.seed, SeedPurpose::TokenLengths));
        let mut instants = ArrivalInstants::new(workload);
        while plan.requests.len() < workload.requests {
            let Some(scheduled_s) = instants.next() else { break };
            if workload.duration_s.is_some_and(|end| scheduled_s.is_some_and(|at| at >= end)) {
                break;
            }
            let drawn = PlannedRequest {
                scheduled_s,
                prompt_tokens: workload.prompt_tokens.draw(&mut lengths),
                output_tokens: workload.output_tokens.draw(&mut lengths),
            };
            plan.requests.push(with_trace_lengths(&workload.arrivals, plan.requests.len(), drawn));
        }
        if let Arrivals::Closed { users, .. } = workload.arrivals {
            plan.users = Some(users);
        }
        if plan.requests.is_empty() { Err(PlanError::Empty) } else { Ok(plan) }
    }

    /// The prompt of request `index`: words drawn by the seed, none of which another prompt begins
    /// with often enough for a prefix cache to help.
    pub fn prompt(&self, index: usize) -> String {
        let tokens = self.requests.get(index).map_or(0, |planned| planned.prompt_tokens);
        let place = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Random::new(derive_seed(self.seed, SeedPurpose::Prompts) ^ place);
        let mut text = String::with_capacity(tokens as usize * 5);
        for number in 0..tokens {
            if number > 0 {
                text.push(' ');
            }
            text.push_str(WORDS[random.next_below(WORDS.len() as u64) as usize]);
        }
        text
    }

    /// The arrivals per second: those of the plan over its duration, or over the time to its last
    /// arrival; absent in a closed loop.
    pub fn offered_rate_per_s(&self) -> Option<f64> {
        if self.users.is_some() {
            return None;
        }
        if let Some(duration_s) = self.duration_s {
            return Some(self.requests.len() as f64 / duration_s);
        }
        let last = self.requests.last()?.scheduled_s?;
        (last > 0.0).then(|| (self.requests.len() - 1) as f64 / last)
    }
}

/// The reason for which no plan can be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A figure is out of its range.
    #[error("{name}: wanted {wanted}, got {got}")]
    Range {
        /// The name of the figure.
        name: &'static str,
        /// Its range.
        wanted: &'static str,
        /// The value that was given.
        got: String,
    },
    /// The duration ends before the first arrival, or the trace is empty.
    #[error("plan has no request: wanted a longer duration or a higher rate")]
    Empty,
}

fn check_workload(workload: &Workload) -> Result<(), PlanError> {
    let range = |name, wanted, got: String, ok: bool| {
        if ok { Ok(()) } else { Err(PlanError::Range { name, wanted, got }) }
    };
    let requests = workload.requests;
    range(
        "requests",
        "1 to 1000000",
        requests.to_string(),
        (1..=REQUESTS_MAX).contains(&requests),
    )?;
    for (name, lengths) in
        [("prompt tokens", workload.prompt_tokens), ("output tokens", workload.output_tokens)]
    {
        let got = format!("{}..{}", lengths.min, lengths.max);
        range(name, "1 to 4000000, shortest first", got, lengths.is_valid())?;
    }
    if let Some(duration_s) = workload.duration_s {
        let ok = duration_s.is_finite() && duration_s > 0.0;
        range("duration", "seconds above 0", duration_s.to_string(), ok)?;
    }
    match &workload.arrivals {
        Arrivals::Poisson { rate_per_s } | Arrivals::Constant { rate_per_s } => {
            let ok = *rate_per_s > 0.0 && *rate_per_s <= RATE_PER_S_MAX;
            range("rate", "above 0, at most 100000 in a second", rate_per_s.to_string(), ok)
        }
        Arrivals::Trace { speed, .. } => {
            let ok = speed.is_finite() && *speed > 0.0;
            range("speed of the trace", "above 0", speed.to_string(), ok)
        }
        Arrivals::Closed { users, ramp_s } => {
            range("users", "1 to 20000", users.to_string(), (1..=USERS_MAX).contains(users))?;
            let ok = ramp_s.is_finite() && *ramp_s >= 0.0;
            range("ramp", "seconds, at least 0", ramp_s.to_string(), ok)
        }
    }
}

/// The instants of arrivals, one after the other.
struct ArrivalInstants<'a> {
    arrivals: &'a Arrivals,
    random: Random,
    index: usize,
    last_s: f64,
}

impl<'a> ArrivalInstants<'a> {
    fn new(workload: &'a Workload) -> Self {
        let random = Random::new(derive_seed(workload.seed, SeedPurpose::Arrivals));
        Self { arrivals: &workload.arrivals, random, index: 0, last_s: 0.0 }
    }
}

impl Iterator for ArrivalInstants<'_> {
    /// Within a closed loop all but each user's first request have no instant of their own.
    type Item = Option<f64>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        self.index += 1;
        let at_s = match self.arrivals {
            Arrivals::Poisson { rate_per_s } => {
                // 1 - u is above 0, so that the logarithm is finite.
                self.last_s - (1.0 - self.random.uniform()).ln() / rate_per_s
            }
            Arrivals::Constant { rate_per_s } => index as f64 / rate_per_s,
            Arrivals::Trace { rows, speed } => rows.get(index)?.at_s / speed,
            Arrivals::Closed { users, ramp_s } => {
                let share = index as f64 / f64::from(*users);
                return Some((share < 1.0).then_some(ramp_s * share));
            }
        };
        self.last_s = at_s;
        Some(Some(at_s))
    }
}

/// The trace's own lengths, where it has them, instead of those drawn.
fn with_trace_lengths(arrivals: &Arrivals, index: usize, drawn: PlannedRequest) -> PlannedRequest {
    let Arrivals::Trace { rows, .. } = arrivals else { return drawn };
    let Some(row) = rows.get(index) else { return drawn };
    PlannedRequest {
        prompt_tokens: row.prompt_tokens.unwrap_or(drawn.prompt_tokens),
        output_tokens: row.output_tokens.unwrap_or(drawn.output_tokens),
        ..drawn
    }
}

#[derive(Clone, Copy)]
enum SeedPurpose {
    Arrivals = 1,
    TokenLengths = 2,
    Prompts = 3,
}

fn derive_seed(seed: u64, purpose: SeedPurpose) -> u64 {
    Random::new(seed ^ (purpose as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}

/// Short, common words: one token each in most vocabularies, with the space before them.
#[rustfmt::skip]
const WORDS: [&str; 64] = [
    "able", "air", "area", "art", "bank", "base", "bird", "blue", "boat", "body", "book", "box",
    "case", "city", "cold", "cost", "dark", "data", "day", "door", "east", "edge", "face", "fact",
    "farm", "field", "fire", "fish", "form", "game", "gold", "green", "hand", "hard", "head",
    "home", "hour", "idea", "king", "land", "law", "life", "line", "list", "love", "map", "mind",
    "moon", "name", "news", "north", "note", "page", "park", "plan", "rain", "road", "rock",
    "room", "sea", "ship", "song", "star", "tree",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(arrivals: Arrivals) -> Workload {
        Workload {
            arrivals,
            requests: 1000,
            duration_s: None,
            prompt_tokens: TokenLengths { min: 4, max: 9 },
            output_tokens: TokenLengths::of_tokens(16),
            seed: 7,
        }
    }

    fn instants(plan: &Plan) -> Vec<f64> {
        plan.requests.iter().filter_map(|planned| planned.scheduled_s).collect()
    }

    #[test]
    fn the_same_seed_is_the_same_work_and_another_seed_another() {
        let poisson = workload(Arrivals::Poisson { rate_per_s: 10.0 });
        let plan = Plan::new(&poisson).unwrap();
        let again = Plan::new(&poisson).unwrap();
        assert_eq!(plan, again);
        assert_eq!(plan.prompt(3), again.prompt(3));
        let other = Plan::new(&Workload { seed: 8, ..poisson }).unwrap();
        assert_ne!(plan.requests, other.requests);
        assert_ne!(plan.prompt(3), other.prompt(3));
    }

    #[test]
    fn longer_prompts_move_no_arrival_and_another_rate_changes_no_length() {
        let short = workload(Arrivals::Poisson { rate_per_s: 10.0 });
        let long = Workload { prompt_tokens: TokenLengths { min: 50, max: 90 }, ..short.clone() };
        let [short, long] = [short, long].map(|workload| Plan::new(&workload).unwrap());
        assert_eq!(instants(&short), instants(&long));
        let fast = Plan::new(&workload(Arrivals::Poisson { rate_per_s: 20.0 })).unwrap();
        for (slow, fast) in short.requests.iter().zip(&fast.requests) {
            assert_eq!(slow.prompt_tokens, fast.prompt_tokens);
            let [slow, fast] = [slow, fast].map(|planned| planned.scheduled_s.unwrap());
            assert!((slow - 2.0 * fast).abs() < 1e-9);
        }
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let mut workload = workload(Arrivals::Poisson { rate_per_s: 50.0 });
        workload.requests = 20_000;
        let at = instants(&Plan::new(&workload).unwrap());
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{variance}");
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
    }

    #[test]
    fn constant_arrivals_do_not_drift_and_end_before_the_duration() {
        let mut workload = workload(Arrivals::Constant { rate_per_s: 30.0 });
        workload.duration_s = Some(2.0);
        let plan = Plan::new(&workload).unwrap();
        assert_eq!(plan.requests.len(), 60);
        assert_eq!(plan.requests[30].scheduled_s, Some(1.0));
        assert_eq!(plan.offered_rate_per_s(), Some(30.0));
    }

    #[test]
    fn a_trace_gives_instants_and_lengths() {
        let rows: Arc<[TraceRow]> = Arc::new([
            TraceRow { at_s: 0.0, prompt_tokens: Some(3), output_tokens: None },
            TraceRow { at_s: 4.0, prompt_tokens: None, output_tokens: Some(5) },
        ]);
        let plan = Plan::new(&workload(Arrivals::Trace { rows, speed: 2.0 })).unwrap();
        assert_eq!(instants(&plan), [0.0, 2.0]);
        assert_eq!((plan.requests[0].prompt_tokens, plan.requests[0].output_tokens), (3, 16));
        assert_eq!(plan.requests[1].output_tokens, 5);
        assert_eq!(plan.prompt(0).split(' ').count(), 3);
    }

    #[test]
    fn in_a_closed_loop_only_first_requests_have_an_instant() {
        let plan = Plan::new(&workload(Arrivals::Closed { users: 4, ramp_s: 2.0 })).unwrap();
        assert_eq!(instants(&plan), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!((plan.users, plan.requests.len()), (Some(4), 1000));
        assert_eq!(plan.offered_rate_per_s(), None);
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let poisson = |rate_per_s| workload(Arrivals::Poisson { rate_per_s });
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(matches!(Plan::new(&poisson(rate)), Err(PlanError::Range { .. })), "{rate}");
        }
        let none = Workload { requests: 0, ..poisson(1.0) };
        assert!(matches!(Plan::new(&none), Err(PlanError::Range { .. })));
        let brief = Workload { duration_s: Some(1e-9), ..poisson(1.0) };
        assert_eq!(Plan::new(&brief), Err(PlanError::Empty));
        for text in ["", "0", "9..4", "1..", "x", "5000000"] {
            assert_eq!(TokenLengths::parse(text), None, "{text}");
        }
        assert_eq!(TokenLengths::parse("4..9"), Some(TokenLengths { min: 4, max: 9 }));
    }
}

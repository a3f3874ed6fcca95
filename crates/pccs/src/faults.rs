//! The deliberate faults of a simulated service.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// The faults in the answers of a simulated service; none by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// The delay before each answer.
    pub latency: Latency,
    /// The share of requests, 0 to 1, that are answered with status 500.
    pub failure_rate: f64,
    /// The share of requests, 0 to 1, whose answer breaks off in the middle of its body.
    pub truncated_rate: f64,
    /// The share of requests, 0 to 1, that are never answered.
    pub hanging_rate: f64,
    /// The seed of the random draws: the same seed fails the same requests.
    pub seed: u64,
    /// The limit on requests beyond which the answer has status 429; `None` for no limit.
    pub limit: Option<RequestLimit>,
    /// The edition of the endorsements that is served.
    pub edition: ServedEdition,
}

/// A delay before each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// No delay.
    #[default]
    None,
    /// The same delay for all answers, in milliseconds.
    Ms(u64),
    /// The delay of Intel's service: 225 to 300 ms a call, so that the four calls of a quote take
    /// the 1.0 to 1.1 s that attested-tls-benchmarks published. Simulated.
    Real,
}

/// A limit on requests, such as the vendors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLimit {
    /// The number of requests that are answered in a window.
    pub requests: u64,
    /// The length of the window in seconds; `Retry-After` has the rest of it.
    pub window_s: u64,
}

/// The edition of the simulated endorsements that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServedEdition {
    /// The current endorsements, which are valid.
    #[default]
    Current,
    /// The revocation lists are overdue: their `nextUpdate` has passed, as if a vendor were late.
    LateCrls,
    /// The revocation lists are valid, but have an older number and date than before, as Intel's
    /// had on 2026-07-16.
    RolledBackCrls,
    /// All endorsements have expired.
    Expired,
    /// The TCB evaluation data number is one higher: the former early set is the standard one.
    NextEvaluation,
}

/// The reason for which faults are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// The text is not JSON, or has an unknown field.
    #[error("faults: {0}")]
    Json(#[from] serde_json::Error),
    /// A share is not from 0 to 1.
    #[error("faults: {name}: wanted a share from 0 to 1, got {got}")]
    Share {
        /// The name of the field.
        name: &'static str,
        /// The value of the field.
        got: f64,
    },
    /// A time is out of its range.
    #[error("faults: {name}: wanted {wanted}, got {got}")]
    Time {
        /// The name of the field.
        name: &'static str,
        /// The values that are accepted.
        wanted: &'static str,
        /// The value of the field.
        got: u64,
    },
}

/// The longest delay in milliseconds; for longer ones there is `hanging_rate`.
const LATENCY_MAX_MS: u64 = 60_000;

/// The longest window of a limit, in seconds.
const WINDOW_MAX_S: u64 = 86_400;

impl Faults {
    /// Parses the JSON of `/simulate`; faults of fields that are left out do not occur.
    ///
    /// # Errors
    /// A [`FaultsError`] if the text is not JSON, or a field is unknown or out of its range.
    pub fn from_json(text: &[u8]) -> Result<Self, FaultsError> {
        let faults: Self = serde_json::from_slice(text)?;
        faults.validate()
    }

    /// Returns the same faults, if every field is in its range.
    ///
    /// # Errors
    /// A [`FaultsError`] that names the first field out of its range.
    pub fn validate(self) -> Result<Self, FaultsError> {
        for (name, got) in [
            ("failure_rate", self.failure_rate),
            ("truncated_rate", self.truncated_rate),
            ("hanging_rate", self.hanging_rate),
        ] {
            if !(0.0..=1.0).contains(&got) {
                return Err(FaultsError::Share { name, got });
            }
        }
        if let Latency::Ms(got) = self.latency
            && got > LATENCY_MAX_MS
        {
            return Err(FaultsError::Time { name: "latency", wanted: "at most 60000 ms", got });
        }
        if let Some(RequestLimit { window_s: got, .. }) = self.limit
            && !(1..=WINDOW_MAX_S).contains(&got)
        {
            return Err(FaultsError::Time { name: "window_s", wanted: "1 to 86400 s", got });
        }
        Ok(self)
    }
}

/// The simulated outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedOutcome {
    Answer,
    Fail,
    Truncate,
    Hang,
    TooMany { retry_after_s: u64 },
}

/// The faults, and the counters from which the outcome of the next request follows.
#[derive(Default)]
pub(crate) struct FaultSchedule(Mutex<FaultState>);

#[derive(Default)]
struct FaultState {
    faults: Faults,
    requests: u64,
    window: Option<(Instant, u64)>,
}

impl FaultSchedule {
    pub(crate) fn new(faults: Faults) -> Self {
        Self(Mutex::new(FaultState { faults, ..FaultState::default() }))
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }

    /// Replaces the faults and restarts the random draws.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *self.lock() = FaultState { faults, ..FaultState::default() };
    }

    /// Draws the next request's delay and outcome.
    pub(crate) fn next_outcome(&self) -> (Duration, SimulatedOutcome) {
        let mut state = self.lock();
        let number = state.requests;
        state.requests += 1;
        let faults = state.faults.clone();
        let draw = |salt: u64| random_fraction(faults.seed, number * 4 + salt);
        let latency = match faults.latency {
            Latency::None => Duration::ZERO,
            Latency::Ms(ms) => Duration::from_millis(ms),
            Latency::Real => Duration::from_secs_f64((225.0 + 75.0 * draw(3)) / 1000.0),
        };
        if let Some(retry_after_s) = state.count_request() {
            return (latency, SimulatedOutcome::TooMany { retry_after_s });
        }
        let outcome = if draw(0) < faults.hanging_rate {
            SimulatedOutcome::Hang
        } else if draw(1) < faults.failure_rate {
            SimulatedOutcome::Fail
        } else if draw(2) < faults.truncated_rate {
            SimulatedOutcome::Truncate
        } else {
            SimulatedOutcome::Answer
        };
        (latency, outcome)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FaultState> {
        // No code can panic in the middle of a change to the state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultState {
    /// Counts a request; returns the seconds until the next window if it is over the limit.
    fn count_request(&mut self) -> Option<u64> {
        let limit = self.faults.limit?;
        let window = Duration::from_secs(limit.window_s);
        let now = Instant::now();
        let current = self.window.filter(|(began, _)| now.duration_since(*began) < window);
        let (began, answered) = current.unwrap_or((now, 0));
        if answered < limit.requests {
            self.window = Some((began, answered + 1));
            return None;
        }
        self.window = Some((began, answered));
        let left = window.saturating_sub(now.duration_since(began));
        Some(left.as_secs().max(1))
    }
}

/// Draws a number from 0 up to 1, which follows from seed and position (SplitMix64).
fn random_fraction(seed: u64, position: u64) -> f64 {
    let mut z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    // 53 bits fit a double exactly.
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: Faults, count: usize) -> Vec<SimulatedOutcome> {
        let schedule = FaultSchedule::new(faults);
        (0..count).map(|_| schedule.next_outcome().1).collect()
    }

    #[test]
    fn nothing_is_wrong_by_default() {
        let schedule = FaultSchedule::default();
        assert!(
            (0..100).all(|_| schedule.next_outcome() == (Duration::ZERO, SimulatedOutcome::Answer))
        );
    }

    #[test]
    fn half_the_answers_fail_and_the_seed_says_which() {
        let faults = |seed| Faults { failure_rate: 0.5, seed, ..Faults::default() };
        let first = fates(faults(1), 1000);
        let failed = first.iter().filter(|outcome| **outcome == SimulatedOutcome::Fail).count();
        assert!((400..600).contains(&failed), "{failed}");
        assert_eq!(first, fates(faults(1), 1000));
        assert_ne!(first, fates(faults(2), 1000));
    }

    #[test]
    fn a_limit_answers_its_number_of_requests() {
        let limit = Some(RequestLimit { requests: 2, window_s: 3600 });
        let fates = fates(Faults { limit, ..Faults::default() }, 4);
        assert_eq!(fates[..2], [SimulatedOutcome::Answer, SimulatedOutcome::Answer]);
        assert!(matches!(fates[2], SimulatedOutcome::TooMany { retry_after_s: 3000..=3600 }));
        assert!(matches!(fates[3], SimulatedOutcome::TooMany { .. }));
    }

    #[test]
    fn the_real_services_latency_has_its_range() {
        let schedule = FaultSchedule::new(Faults { latency: Latency::Real, ..Faults::default() });
        for _ in 0..1000 {
            let ms = schedule.next_outcome().0.as_secs_f64() * 1000.0;
            assert!((225.0..=300.0).contains(&ms), "{ms}");
        }
    }

    #[test]
    fn faults_are_read_and_checked() {
        let text = br#"{"latency": {"ms": 250}, "failure_rate": 0.5, "seed": 7,
            "limit": {"requests": 10, "window_s": 60}, "edition": "rolled_back_crls"}"#;
        let faults = Faults::from_json(text).unwrap();
        assert_eq!(faults.latency, Latency::Ms(250));
        assert_eq!(faults.edition, ServedEdition::RolledBackCrls);
        assert_eq!(Faults::from_json(br#"{"latency": "real"}"#).unwrap().latency, Latency::Real);
        assert_eq!(Faults::from_json(b"{}").unwrap(), Faults::default());
        let refused = |text: &str| Faults::from_json(text.as_bytes()).unwrap_err();
        assert!(matches!(refused(r#"{"latencies": 1}"#), FaultsError::Json(_)));
        let share = refused(r#"{"failure_rate": 1.5}"#);
        assert!(matches!(share, FaultsError::Share { name: "failure_rate", .. }));
        let time = refused(r#"{"latency": {"ms": 60001}}"#);
        assert!(matches!(time, FaultsError::Time { name: "latency", .. }));
        let window = refused(r#"{"limit": {"requests": 1, "window_s": 0}}"#);
        assert!(matches!(window, FaultsError::Time { name: "window_s", .. }));
    }
}

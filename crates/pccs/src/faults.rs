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
    /// The delay of each answer beyond its own time.
    pub latency: Latency,
    /// Share of requests, 0 to 1, that are answered with status 500.
    pub failure_rate: f64,
    /// Share of requests, 0 to 1, whose body ends in the middle.
    pub truncated_rate: f64,
    /// Share of requests, 0 to 1, that are never answered.
    pub hanging_rate: f64,
    /// The seed of the random draws: the same seed fails the same requests.
    pub seed: u64,
    /// The number of requests after which the service answers with status 429; `None` for no limit.
    pub limit: Option<RequestLimit>,
    /// The edition of the endorsements that is served.
    pub edition: Edition,
}

/// A delay before each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// No delay.
    #[default]
    None,
    /// The same delay for all.
    Ms(u64),
    /// As long as Intel's service takes: 225 to 300 ms a call, so that the four calls of a quote
    /// take the 1.0 to 1.1 s that attested-tls-benchmarks published. Simulated.
    Real,
}

/// A limit on requests, as the vendors have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLimit {
    /// Requests in a window that are answered.
    pub requests: u64,
    /// Length of the window in seconds; `Retry-After` says what is left of it.
    pub window_s: u64,
}

/// The edition of the simulated endorsements that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Edition {
    /// The endorsements of now, which are good.
    #[default]
    Current,
    /// The revocation lists are overdue: their `nextUpdate` has passed, as when a vendor re-issues
    /// late.
    LateCrls,
    /// The revocation lists hold, but have an older number and date than before, as Intel served on
    /// 2026-07-16.
    RolledBackCrls,
    /// All endorsements have ended.
    Expired,
    /// The TCB evaluation data number has gone up: what was the early set is the standard one.
    NextEvaluation,
}

/// The reason for which faults are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// The text is not JSON, or has an unknown field.
    #[error("faults: {0}")]
    Json(#[from] serde_json::Error),
    /// A share is not between 0 and 1.
    #[error("faults: {name}: wanted a share from 0 to 1, got {got}")]
    Share {
        /// The name of the field.
        name: &'static str,
        /// The value of the field.
        got: f64,
    },
    /// A time is too long.
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

/// The longest delay in milliseconds: above it an answer may as well hang.
const LATENCY_MAX_MS: u64 = 60_000;

/// The longest window of a limit, in seconds.
const WINDOW_MAX_S: u64 = 86_400;

impl Faults {
    /// Reads the JSON of `/simulate`; a field that is left out is a fault that does not occur.
    ///
    /// # Errors
    /// A [`FaultsError`] for text that is not JSON and for a field that is out of its range.
    pub fn from_json(text: &[u8]) -> Result<Self, FaultsError> {
        let faults: Self = serde_json::from_slice(text)?;
        faults.validate()
    }

    /// The same faults, if every field is in its range.
    ///
    /// # Errors
    /// A [`FaultsError`] for the first field that is out of its range.
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

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answer,
    Fail,
    Truncate,
    Hang,
    TooMany { retry_after_s: u64 },
}

/// The faults, and the state of their draws: the number of requests, in all and in this window.
#[derive(Default)]
pub(crate) struct Dice(Mutex<FaultDraws>);

#[derive(Default)]
struct FaultDraws {
    faults: Faults,
    requests: u64,
    window: Option<(Instant, u64)>,
}

impl Dice {
    pub(crate) fn new(faults: Faults) -> Self {
        Self(Mutex::new(FaultDraws { faults, ..FaultDraws::default() }))
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }

    /// Replaces the faults; the draws begin again.
    pub(crate) fn set(&self, faults: Faults) {
        *self.lock() = FaultDraws { faults, ..FaultDraws::default() };
    }

    /// Draws the next request's delay and fate.
    pub(crate) fn next(&self) -> (Duration, Fate) {
        let mut state = self.lock();
        let number = state.requests;
        state.requests += 1;
        let faults = state.faults.clone();
        let draw = |salt: u64| draw(faults.seed, number * 4 + salt);
        let latency = match faults.latency {
            Latency::None => Duration::ZERO,
            Latency::Ms(ms) => Duration::from_millis(ms),
            Latency::Real => Duration::from_secs_f64((225.0 + 75.0 * draw(3)) / 1000.0),
        };
        if let Some(retry_after_s) = state.count_request() {
            return (latency, Fate::TooMany { retry_after_s });
        }
        let fate = if draw(0) < faults.hanging_rate {
            Fate::Hang
        } else if draw(1) < faults.failure_rate {
            Fate::Fail
        } else if draw(2) < faults.truncated_rate {
            Fate::Truncate
        } else {
            Fate::Answer
        };
        (latency, fate)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FaultDraws> {
        // No code that holds it can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultDraws {
    /// Counts a request; returns the seconds until the next window where it is over the limit.
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

/// SplitMix64 at `position`, as a number from 0 up to 1: every draw follows from seed and position.
fn draw(seed: u64, position: u64) -> f64 {
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

    fn fates(faults: Faults, count: usize) -> Vec<Fate> {
        let dice = Dice::new(faults);
        (0..count).map(|_| dice.next().1).collect()
    }

    #[test]
    fn nothing_is_wrong_by_default() {
        let dice = Dice::default();
        assert!((0..100).all(|_| dice.next() == (Duration::ZERO, Fate::Answer)));
    }

    #[test]
    fn half_the_answers_fail_and_the_seed_says_which() {
        let faults = |seed| Faults { failure_rate: 0.5, seed, ..Faults::default() };
        let first = fates(faults(1), 1000);
        let failed = first.iter().filter(|fate| **fate == Fate::Fail).count();
        assert!((400..600).contains(&failed), "{failed}");
        assert_eq!(first, fates(faults(1), 1000));
        assert_ne!(first, fates(faults(2), 1000));
    }

    #[test]
    fn a_limit_answers_its_number_of_requests() {
        let limit = Some(RequestLimit { requests: 2, window_s: 3600 });
        let fates = fates(Faults { limit, ..Faults::default() }, 4);
        assert_eq!(fates[..2], [Fate::Answer, Fate::Answer]);
        assert!(matches!(fates[2], Fate::TooMany { retry_after_s: 3000..=3600 }));
        assert!(matches!(fates[3], Fate::TooMany { .. }));
    }

    #[test]
    fn the_real_services_latency_has_its_range() {
        let dice = Dice::new(Faults { latency: Latency::Real, ..Faults::default() });
        for _ in 0..1000 {
            let ms = dice.next().0.as_secs_f64() * 1000.0;
            assert!((225.0..=300.0).contains(&ms), "{ms}");
        }
    }

    #[test]
    fn faults_are_read_and_checked() {
        let text = br#"{"latency": {"ms": 250}, "failure_rate": 0.5, "seed": 7,
            "limit": {"requests": 10, "window_s": 60}, "edition": "rolled_back_crls"}"#;
        let faults = Faults::from_json(text).unwrap();
        assert_eq!(faults.latency, Latency::Ms(250));
        assert_eq!(faults.edition, Edition::RolledBackCrls);
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

//! Limits on requests and tokens per minute, and the fields by which a client learns of them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// The milliseconds of a minute. A bucket counts in 60,000ths, so that every millisecond adds a
/// whole number of them.
const MINUTE_MS: i64 = 60_000;
/// The largest limit, far above the tokens that a server makes in a day. A bucket of that size fits
/// an `i64`.
pub(crate) const LIMIT_MAX: u64 = 1_000_000_000_000;

/// The limits of one key; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests per minute; as many may come at once after a pause.
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers per minute.
    pub tokens_per_minute: Option<u64>,
    /// Tokens of prompts and answers per day in UTC.
    pub tokens_per_day: Option<u64>,
    /// Requests that run at the same time.
    pub concurrent: Option<u64>,
}

impl KeyLimits {
    /// Checks that each limit is 1 to [`LIMIT_MAX`]; the error says which is not.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, limit) in [
            ("requests_per_minute", self.requests_per_minute),
            ("tokens_per_minute", self.tokens_per_minute),
            ("tokens_per_day", self.tokens_per_day),
            ("concurrent", self.concurrent),
        ] {
            if let Some(limit) = limit.filter(|limit| !(1..=LIMIT_MAX).contains(limit)) {
                return Err(format!("{name}: wanted 1 to {LIMIT_MAX}, got {limit}"));
            }
        }
        Ok(())
    }
}

/// A token bucket that holds what a minute allows and refills evenly. What an answer really cost is
/// known only at its end, so the level can fall below zero.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// The level in 60,000ths, and the time to which it has been refilled. A new bucket is full.
    level: Option<(i64, Instant)>,
}

impl TokenBucket {
    /// Refills the bucket, which holds `per_minute` at most, and returns its level in 60,000ths.
    fn refill(&mut self, per_minute: u64, now: Instant) -> i64 {
        let rate = i64::try_from(per_minute.min(LIMIT_MAX)).unwrap_or(i64::MAX);
        let full = rate.saturating_mul(MINUTE_MS);
        let Some((level, refilled)) = self.level else {
            self.level = Some((full, now));
            return full;
        };
        let elapsed_ms = now.saturating_duration_since(refilled).as_millis();
        let elapsed_ms = u64::try_from(elapsed_ms).unwrap_or(u64::MAX);
        let added = rate.saturating_mul(i64::try_from(elapsed_ms).unwrap_or(i64::MAX));
        let level = level.saturating_add(added).min(full);
        self.level = Some((level, refilled + Duration::from_millis(elapsed_ms)));
        level
    }

    /// The time until `wanted` can be taken; zero if it can be taken now.
    pub(crate) fn wait_for(&mut self, wanted: u64, per_minute: u64, now: Instant) -> Duration {
        let level = self.refill(per_minute, now);
        time_to_fill(scale(wanted).saturating_sub(level), per_minute)
    }

    /// Takes what [`TokenBucket::wait_for`] found, or what an answer cost beyond that.
    pub(crate) fn take(&mut self, amount: u64) {
        if let Some((level, _)) = &mut self.level {
            *level = level.saturating_sub(scale(amount));
        }
    }

    /// The limit, what is left of it, and the time until the bucket is full.
    pub(crate) fn status(&mut self, per_minute: u64, now: Instant) -> LimitStatus {
        let level = self.refill(per_minute, now);
        LimitStatus {
            limit: per_minute,
            remaining: u64::try_from(level / MINUTE_MS).unwrap_or(0),
            reset: time_to_fill(scale(per_minute).saturating_sub(level), per_minute),
        }
    }
}

fn scale(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)
}

/// The time in which a bucket gains `missing` 60,000ths.
fn time_to_fill(missing: i64, per_minute: u64) -> Duration {
    let missing = u64::try_from(missing).unwrap_or(0);
    Duration::from_millis(missing.div_ceil(per_minute.max(1)))
}

/// One limit as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitStatus {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset: Duration,
}

/// The limits that OpenAI's fields `x-ratelimit-*` describe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitFields {
    pub(crate) requests: Option<LimitStatus>,
    pub(crate) tokens: Option<LimitStatus>,
}

impl RateLimitFields {
    /// Writes the fields, over those of the model server.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        const REQUESTS: [HeaderName; 3] = [
            HeaderName::from_static("x-ratelimit-limit-requests"),
            HeaderName::from_static("x-ratelimit-remaining-requests"),
            HeaderName::from_static("x-ratelimit-reset-requests"),
        ];
        const TOKENS: [HeaderName; 3] = [
            HeaderName::from_static("x-ratelimit-limit-tokens"),
            HeaderName::from_static("x-ratelimit-remaining-tokens"),
            HeaderName::from_static("x-ratelimit-reset-tokens"),
        ];
        for (names, status) in [(REQUESTS, self.requests), (TOKENS, self.tokens)] {
            let Some(LimitStatus { limit, remaining, reset }) = status else { continue };
            let [limit_name, remaining_name, reset_name] = names;
            headers.insert(limit_name, limit.into());
            headers.insert(remaining_name, remaining.into());
            if let Ok(reset) = HeaderValue::from_str(&format_wait(reset)) {
                headers.insert(reset_name, reset);
            }
        }
    }
}

/// Formats a time as OpenAI does: `20ms`, `6s`, `1m30s`, `23h59m0s`. Parts of a second are rounded
/// up in times of a second and more.
fn format_wait(wait: Duration) -> String {
    if wait < Duration::from_secs(1) {
        return format!("{}ms", wait.as_millis());
    }
    let seconds = ceil_seconds(wait);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A time in seconds, rounded up, as `Retry-After` holds it.
pub(crate) fn ceil_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_minutes_worth_at_once_and_then_an_even_rate() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        for _ in 0..6 {
            assert_eq!(bucket.wait_for(1, 6, start), Duration::ZERO);
            bucket.take(1);
        }
        assert_eq!(bucket.wait_for(1, 6, start), Duration::from_secs(10));
        let later = start + Duration::from_millis(9_999);
        assert_eq!(bucket.wait_for(1, 6, later), Duration::from_millis(1));
        assert_eq!(bucket.wait_for(1, 6, start + Duration::from_secs(10)), Duration::ZERO);
        let status = bucket.status(6, start + Duration::from_secs(3600));
        assert_eq!((status.remaining, status.reset), (6, Duration::ZERO));
    }

    #[test]
    fn an_answer_that_cost_more_than_was_left_is_paid_off_with_time() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        assert_eq!(bucket.wait_for(1, 60, start), Duration::ZERO);
        bucket.take(180);
        let status = bucket.status(60, start);
        assert_eq!((status.remaining, status.reset), (0, Duration::from_secs(180)));
        assert_eq!(bucket.wait_for(1, 60, start), Duration::from_secs(121));
        let later = start + Duration::from_secs(3600);
        assert_eq!(bucket.status(60, later).remaining, 60, "a full bucket holds no more");
    }

    #[test]
    fn a_lower_limit_applies_at_once_and_a_higher_one_fills_up() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        assert_eq!(bucket.status(100, start).remaining, 100);
        assert_eq!(bucket.status(10, start).remaining, 10);
        assert_eq!(bucket.status(100, start).remaining, 10);
        assert_eq!(bucket.status(100, start + Duration::from_secs(6)).remaining, 20);
    }

    #[test]
    fn the_largest_limits_do_not_overflow() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        assert_eq!(bucket.status(LIMIT_MAX, start).remaining, LIMIT_MAX);
        bucket.take(u64::MAX);
        bucket.take(u64::MAX);
        assert_eq!(bucket.status(LIMIT_MAX, start).remaining, 0);
        let later = start + Duration::from_secs(1 << 32);
        assert_eq!(bucket.status(LIMIT_MAX, later).remaining, 0);
        let later = later + Duration::from_secs(1 << 32);
        assert_eq!(bucket.status(LIMIT_MAX, later).remaining, LIMIT_MAX);
        let beyond = KeyLimits { concurrent: Some(LIMIT_MAX + 1), ..KeyLimits::default() };
        assert!(beyond.check().unwrap_err().starts_with("concurrent: wanted 1 to "));
        let none = KeyLimits { requests_per_minute: Some(0), ..KeyLimits::default() };
        assert!(none.check().is_err());
    }

    #[test]
    fn times_are_written_as_openai_writes_them() {
        for (wait_ms, wanted) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (59_001, "1m0s"),
            (90_000, "1m30s"),
            (86_399_000, "23h59m59s"),
        ] {
            assert_eq!(format_wait(Duration::from_millis(wait_ms)), wanted);
        }
    }
}

//! What each key has used of its limits. The accounts outlive a change of the set of keys, so that
//! a reload gives nobody a new budget.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::rate_limit::{KeyLimits, LimitStatus, RateLimitFields, TokenBucket};

/// The seconds of a day. Days begin at midnight in UTC.
pub(crate) const DAY_S: u64 = 86_400;
/// The largest number of accounts, each of some 300 bytes. It exceeds the number of keys in a file,
/// because accounts of removed keys are kept for the rest of their day.
const ACCOUNTS_MAX: usize = 16_384;
/// The time after which a client at its limit of concurrent requests may try again. Nobody knows
/// when an answer will end.
const CONCURRENT_RETRY: Duration = Duration::from_secs(1);

/// The account of one key: its running requests, and what it has used of its limits.
#[derive(Debug, Default)]
pub(crate) struct KeyAccount(Mutex<AccountState>);

#[derive(Debug, Default)]
struct AccountState {
    requests: TokenBucket,
    tokens: TokenBucket,
    /// The day in UTC to which `spent_tokens` belongs, in days since 1970.
    day: u64,
    spent_tokens: u64,
    running: u64,
}

/// The limit that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    /// `requests_per_minute`.
    RequestsPerMinute,
    /// `tokens_per_minute`.
    TokensPerMinute,
    /// `tokens_per_day`.
    TokensPerDay,
    /// `concurrent`.
    Concurrent,
}

/// A refusal for a limit, and the time after which a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRefusal {
    pub(crate) limit: ExceededLimit,
    pub(crate) retry_after: Duration,
    pub(crate) fields: RateLimitFields,
}

impl KeyAccount {
    /// Counts the beginning of a request. It is refused once a budget is spent; its own tokens are
    /// not known yet, so that the answers that run may cost more than was left.
    pub(crate) fn begin_request(
        &self,
        limits: &KeyLimits,
        now: Instant,
        unix_s: u64,
    ) -> Result<RateLimitFields, LimitRefusal> {
        let mut state = self.lock();
        state.begin_day(unix_s);
        if let Some((limit, retry_after)) = state.find_exceeded(limits, now, unix_s) {
            let fields = state.describe_limits(limits, now, unix_s);
            return Err(LimitRefusal { limit, retry_after, fields });
        }
        state.requests.take(1);
        state.running += 1;
        Ok(state.describe_limits(limits, now, unix_s))
    }

    /// Counts the end of a request and its tokens.
    pub(crate) fn end_request(&self, tokens: u64, unix_s: u64) {
        let mut state = self.lock();
        state.begin_day(unix_s);
        state.tokens.take(tokens);
        state.spent_tokens = state.spent_tokens.saturating_add(tokens);
        state.running = state.running.saturating_sub(1);
    }

    /// Counts tokens that an earlier process has spent on the day of `unix_s`.
    pub(crate) fn restore_spent(&self, tokens: u64, unix_s: u64) {
        let mut state = self.lock();
        state.begin_day(unix_s);
        state.spent_tokens = state.spent_tokens.saturating_add(tokens);
    }

    fn lock(&self) -> MutexGuard<'_, AccountState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountState {
    /// Starts a new daily budget if a later day has begun. A clock that is set back starts none;
    /// the next midnight does.
    fn begin_day(&mut self, unix_s: u64) {
        let today = unix_s / DAY_S;
        if today > self.day {
            self.spent_tokens = 0;
        }
        self.day = today;
    }

    fn find_exceeded(
        &mut self,
        limits: &KeyLimits,
        now: Instant,
        unix_s: u64,
    ) -> Option<(ExceededLimit, Duration)> {
        if limits.concurrent.is_some_and(|limit| self.running >= limit) {
            return Some((ExceededLimit::Concurrent, CONCURRENT_RETRY));
        }
        if limits.tokens_per_day.is_some_and(|limit| self.spent_tokens >= limit) {
            return Some((ExceededLimit::TokensPerDay, time_to_midnight(unix_s)));
        }
        let tokens = limits
            .tokens_per_minute
            .map_or(Duration::ZERO, |limit| self.tokens.wait_for(1, limit, now));
        if !tokens.is_zero() {
            return Some((ExceededLimit::TokensPerMinute, tokens));
        }
        let requests = limits
            .requests_per_minute
            .map_or(Duration::ZERO, |limit| self.requests.wait_for(1, limit, now));
        (!requests.is_zero()).then_some((ExceededLimit::RequestsPerMinute, requests))
    }

    fn describe_limits(
        &mut self,
        limits: &KeyLimits,
        now: Instant,
        unix_s: u64,
    ) -> RateLimitFields {
        let day = limits.tokens_per_day.map(|limit| LimitStatus {
            limit,
            remaining: limit.saturating_sub(self.spent_tokens),
            reset: time_to_midnight(unix_s),
        });
        let minute = limits.tokens_per_minute.map(|limit| self.tokens.status(limit, now));
        RateLimitFields {
            requests: limits.requests_per_minute.map(|limit| self.requests.status(limit, now)),
            // The clients have one set of fields for tokens: it shows the limit that is nearer.
            tokens: [minute, day].into_iter().flatten().min_by_key(|status| status.remaining),
        }
    }
}

fn time_to_midnight(unix_s: u64) -> Duration {
    Duration::from_secs(DAY_S - unix_s % DAY_S)
}

/// The accounts by the names of their keys.
#[derive(Debug, Default)]
pub(crate) struct AccountTable(Mutex<HashMap<Arc<str>, Arc<KeyAccount>>>);

impl AccountTable {
    /// Finds the account of a key, or opens one. If the table is full, accounts that nobody holds
    /// and that were not used on the day of `unix_s` are closed; `None` if there are none.
    pub(crate) fn find_or_open(&self, name: &Arc<str>, unix_s: u64) -> Option<Arc<KeyAccount>> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.get(name) {
            return Some(account.clone());
        }
        if accounts.len() >= ACCOUNTS_MAX {
            // A grant, or a request that is about to begin, holds the account.
            accounts.retain(|_, account| {
                Arc::strong_count(account) > 1 || account.lock().day >= unix_s / DAY_S
            });
        }
        if accounts.len() >= ACCOUNTS_MAX {
            return None;
        }
        Some(accounts.entry(name.clone()).or_default().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds before a midnight.
    const EVENING: u64 = 20_000 * DAY_S - 10;

    fn limits(change: impl FnOnce(&mut KeyLimits)) -> KeyLimits {
        let mut limits = KeyLimits::default();
        change(&mut limits);
        limits
    }

    #[test]
    fn a_day_budget_is_spent_by_answers_and_starts_anew_at_midnight() {
        let (account, now) = (KeyAccount::default(), Instant::now());
        let limits = limits(|limits| limits.tokens_per_day = Some(100));
        let fields = account.begin_request(&limits, now, EVENING).unwrap();
        assert_eq!(fields.tokens.unwrap().remaining, 100);
        // One answer may cost more than was left.
        account.end_request(250, EVENING);
        let refused = account.begin_request(&limits, now, EVENING).unwrap_err();
        assert_eq!(refused.limit, ExceededLimit::TokensPerDay);
        assert_eq!(refused.retry_after, Duration::from_secs(10));
        account.begin_request(&limits, now, EVENING + 10).unwrap();
        // A clock that goes back does not give the first day's budget again.
        account.end_request(100, EVENING);
        assert!(account.begin_request(&limits, now, EVENING).is_err());
    }

    #[test]
    fn a_clock_that_was_a_year_ahead_locks_a_key_out_until_midnight_at_most() {
        let (account, now) = (KeyAccount::default(), Instant::now());
        let limits = limits(|limits| limits.tokens_per_day = Some(100));
        account.begin_request(&limits, now, EVENING + 365 * DAY_S).unwrap();
        account.end_request(100, EVENING);
        assert!(account.begin_request(&limits, now, EVENING).is_err());
        assert!(account.begin_request(&limits, now, EVENING + 10).is_ok());
    }

    #[test]
    fn tokens_of_a_minute_come_back_with_time() {
        let (account, now) = (KeyAccount::default(), Instant::now());
        let limits = limits(|limits| limits.tokens_per_minute = Some(100));
        account.begin_request(&limits, now, EVENING).unwrap();
        account.end_request(109, EVENING);
        let refused = account.begin_request(&limits, now, EVENING).unwrap_err();
        assert_eq!(refused.limit, ExceededLimit::TokensPerMinute);
        assert_eq!(refused.retry_after, Duration::from_secs(6));
        let later = now + Duration::from_secs(6);
        assert!(account.begin_request(&limits, later, EVENING).is_ok());
    }

    #[test]
    fn requests_that_run_have_a_limit_and_a_refused_one_costs_nothing() {
        let (account, now) = (KeyAccount::default(), Instant::now());
        let limits = limits(|limits| {
            limits.concurrent = Some(1);
            limits.requests_per_minute = Some(2);
        });
        account.begin_request(&limits, now, 0).unwrap();
        let refused = account.begin_request(&limits, now, 0).unwrap_err();
        assert_eq!(refused.limit, ExceededLimit::Concurrent);
        assert_eq!(refused.fields.requests.unwrap().remaining, 1);
        account.end_request(5, 0);
        assert!(account.begin_request(&limits, now, 0).is_ok());
    }

    #[test]
    fn the_table_is_bounded_and_closes_accounts_of_other_days() {
        let table = AccountTable::default();
        for number in 0..ACCOUNTS_MAX {
            table.find_or_open(&number.to_string().into(), DAY_S).unwrap();
        }
        // It is held, as by a request that begins or runs.
        let first = table.find_or_open(&"0".into(), DAY_S).unwrap();
        for number in 1..ACCOUNTS_MAX {
            let account = table.find_or_open(&number.to_string().into(), DAY_S).unwrap();
            account.restore_spent(1, DAY_S);
        }
        assert!(table.find_or_open(&"new".into(), DAY_S).is_none());
        assert!(table.find_or_open(&"new".into(), 2 * DAY_S).is_some());
        assert!(Arc::ptr_eq(&table.find_or_open(&"0".into(), 2 * DAY_S).unwrap(), &first));
    }
}

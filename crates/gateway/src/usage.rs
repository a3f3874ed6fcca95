//! The usage of each key and model: counts without any content.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{key_account::DAY_S, usage_scanner::AnswerUsage};

/// The largest number of models that are counted apart between two batches of the usage file.
/// Further ones are counted as [`OTHER_NAME`].
const MODELS_MAX: usize = 256;
/// The name under which models, and keys, beyond the limits are counted.
const OTHER_NAME: &str = "other";
/// The largest number of combinations of key and model, at some 200 bytes each. Further ones are
/// counted as key [`OTHER_NAME`].
const ROWS_MAX: usize = 65_536;

/// Counts of requests and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageCounts {
    /// Requests that were authorised and have ended.
    pub(crate) requests: u64,
    /// Those that were refused later, answered with status 400 or higher, or whose answer broke off.
    pub(crate) failed: u64,
    /// Those with an answer whose tokens could not be counted: one that is compressed or of an
    /// unknown type, or that broke off, or whose client left, before its counts.
    pub(crate) uncounted: u64,
    /// Tokens of prompts, including cached ones.
    pub(crate) prompt_tokens: u64,
    /// Tokens of prompts that the server had in its cache.
    pub(crate) cached_tokens: u64,
    /// Tokens of answers, as the server counted them.
    pub(crate) completion_tokens: u64,
    /// Tokens of answers that the server did not count, one for each event of a stream.
    pub(crate) estimated_tokens: u64,
}

impl UsageCounts {
    /// The counts of one request.
    pub(crate) fn of_answer(usage: &AnswerUsage, is_failed: bool, is_uncounted: bool) -> Self {
        Self {
            requests: 1,
            failed: is_failed.into(),
            uncounted: is_uncounted.into(),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            estimated_tokens: usage.estimated_tokens,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, added) in [
            (&mut self.requests, other.requests),
            (&mut self.failed, other.failed),
            (&mut self.uncounted, other.uncounted),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.cached_tokens, other.cached_tokens),
            (&mut self.completion_tokens, other.completion_tokens),
            (&mut self.estimated_tokens, other.estimated_tokens),
        ] {
            *sum = sum.saturating_add(added);
        }
    }
}

/// The day in UTC on which requests ended, in days since 1970; the name of a key, and the model if
/// the answer named one.
pub(crate) type UsageKey = (u64, Arc<str>, Option<Arc<str>>);

/// Counts by key and model that are not in the usage file yet.
#[derive(Debug, Default)]
pub(crate) struct UsageLedger(Mutex<LedgerState>);

#[derive(Debug, Default)]
struct LedgerState {
    unwritten: BTreeMap<UsageKey, UsageCounts>,
    models: BTreeSet<Arc<str>>,
}

impl UsageLedger {
    /// Counts a request that has ended at `unix_s`.
    pub(crate) fn record(
        &self,
        unix_s: u64,
        key_name: &Arc<str>,
        model: Option<&str>,
        counts: &UsageCounts,
    ) {
        let mut state = self.lock();
        let model = model.map(|model| state.intern_model(model));
        let key = (unix_s / DAY_S, key_name.clone(), model);
        add_to_row(&mut state.unwritten, key, counts);
    }

    /// Takes the counts that are not in the usage file yet. The models that were counted apart are
    /// forgotten, so that a client that makes names up does not take their places for ever.
    pub(crate) fn take_unwritten(&self) -> BTreeMap<UsageKey, UsageCounts> {
        std::mem::take(&mut *self.lock()).unwritten
    }

    /// Returns counts that could not be written.
    pub(crate) fn put_back_unwritten(
        &self,
        rest: impl IntoIterator<Item = (UsageKey, UsageCounts)>,
    ) {
        let mut state = self.lock();
        for (key, counts) in rest {
            add_to_row(&mut state.unwritten, key, &counts);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    /// The name under which a model is counted. An answer names its model, and some servers repeat
    /// the name in the request, so that names need a bound.
    fn intern_model(&mut self, model: &str) -> Arc<str> {
        if let Some(known) = self.models.get(model) {
            return known.clone();
        }
        if !is_told_apart(model) || self.models.len() >= MODELS_MAX {
            return OTHER_NAME.into();
        }
        let name: Arc<str> = model.into();
        self.models.insert(name.clone());
        name
    }
}

fn add_to_row(rows: &mut BTreeMap<UsageKey, UsageCounts>, key: UsageKey, counts: &UsageCounts) {
    let has_room = rows.len() < ROWS_MAX || rows.contains_key(&key);
    let key = if has_room { key } else { (key.0, OTHER_NAME.into(), None) };
    rows.entry(key).or_default().add(counts);
}

/// Whether a model is counted under its name, such as `org/Model-7B:latest`, of at most 128 bytes. No
/// other text that an answer has in its place gets into the usage file.
fn is_told_apart(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted_apart_up_to_a_bound() {
        let ledger = UsageLedger::default();
        let (key, counts) = ("k".into(), UsageCounts { requests: 1, ..UsageCounts::default() });
        for number in 0..MODELS_MAX + 10 {
            ledger.record(DAY_S, &key, Some(&format!("m{number}")), &counts);
        }
        for name in ["has space", "\u{e9}", "", &"m".repeat(129)] {
            ledger.record(DAY_S, &key, Some(name), &counts);
        }
        ledger.record(DAY_S, &key, None, &counts);
        let unwritten = ledger.take_unwritten();
        assert_eq!(unwritten.len(), MODELS_MAX + 2);
        assert_eq!(unwritten[&(1, key.clone(), Some(OTHER_NAME.into()))].requests, 14);
        assert_eq!(unwritten[&(1, key.clone(), None)].requests, 1);
        assert!(ledger.take_unwritten().is_empty());
        ledger.record(DAY_S, &key, Some("new"), &counts);
        assert!(ledger.take_unwritten().contains_key(&(1, key, Some("new".into()))));
        ledger.put_back_unwritten(unwritten.clone());
        assert_eq!(ledger.take_unwritten(), unwritten);
    }
}

//! The counters of one session, for each input of its adapter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::masked::CounterSequence;

/// The sequences of one session, one for each group of the adapter; empty in the direct scheme.
#[derive(Clone, Default)]
pub(crate) struct CounterSequences(Arc<Vec<Mutex<CounterSequence>>>);

impl CounterSequences {
    pub(crate) fn new(sequences: impl Iterator<Item = CounterSequence>) -> Self {
        Self(Arc::new(sequences.map(Mutex::new).collect()))
    }

    /// Locks the sequence of a group; `None` if there is none.
    pub(crate) fn lock(&self, group: usize) -> Option<MutexGuard<'_, CounterSequence>> {
        Some(self.0.get(group)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether both belong to the same session.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

//! The processes that were seen with the measured files.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The running processes that were seen with a measured file open or mapped: the number of each, and
/// the time at which it started.
///
/// Some model servers copy their weights to a GPU and close the files before they listen. They have
/// them open for seconds meanwhile, so that a look every second sees them.
#[derive(Debug, Default)]
pub(crate) struct WeightsReaders(Mutex<HashSet<(i32, u64)>>);

impl WeightsReaders {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<(i32, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

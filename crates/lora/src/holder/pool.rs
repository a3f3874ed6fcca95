//! Prepared masks that are not used yet. Each counter leaves the pool once and never comes back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    masked::{HolderBatch, MaskedError, MaskedVectors},
    meter::Meter,
};

/// The batches of one input.
#[derive(Default)]
pub(crate) struct Pool {
    batches: VecDeque<SharedBatch>,
    pub(crate) preparing: bool,
    pub(crate) finished: u64,
}

/// A batch from which several generations take counters.
pub(crate) type SharedBatch = Arc<Mutex<HolderBatch>>;

/// Vectors with the counters reserved for them; the counters are used from here on, or lost.
pub(crate) struct ReservedVectors {
    pub(crate) batch: SharedBatch,
    pub(crate) masked: MaskedVectors,
    pub(crate) count: usize,
}

impl Pool {
    pub(crate) fn tokens_left(&self) -> u64 {
        self.batches.iter().map(|batch| lock(batch).tokens_left() as u64).sum()
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Notes that a preparation ended, with a batch or without one.
    pub(crate) fn end(&mut self, batch: Option<HolderBatch>) {
        self.preparing = false;
        if let Some(batch) = batch {
            self.finished += 1;
            self.batches.push_back(Arc::new(Mutex::new(batch)));
        }
    }

    /// Masks as many of these vectors as the oldest batch has counters for; `None` if nothing is
    /// prepared.
    pub(crate) fn take(
        &mut self,
        vectors: &[i16],
        columns: usize,
        meter: &mut Meter,
    ) -> Option<Result<ReservedVectors, MaskedError>> {
        loop {
            let batch = self.batches.front()?.clone();
            let mut held = lock(&batch);
            let count = (vectors.len() / columns).min(held.tokens_left());
            if count == 0 {
                self.batches.pop_front();
                continue;
            }
            let masked = held.mask(&vectors[..count * columns], meter);
            drop(held);
            return Some(masked.map(|masked| ReservedVectors { batch, masked, count }));
        }
    }
}

pub(crate) fn lock(batch: &SharedBatch) -> MutexGuard<'_, HolderBatch> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Prepared masks that are not used yet. Each counter is taken from the pool once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    masked::{HolderBatch, MaskedError, MaskedVectors},
    meter::StepMeter,
};

/// The batches of one input.
#[derive(Default)]
pub(crate) struct MaskPool {
    batches: VecDeque<SharedBatch>,
    pub(crate) preparing: bool,
    pub(crate) finished: u64,
}

/// A batch from which several generations take counters.
pub(crate) type SharedBatch = Arc<Mutex<HolderBatch>>;

/// Masked vectors with their counters. If the request fails, the counters are lost.
pub(crate) struct MaskedVectorsWithBatch {
    pub(crate) batch: SharedBatch,
    pub(crate) masked: MaskedVectors,
    pub(crate) count: usize,
}

impl MaskPool {
    pub(crate) fn tokens_left(&self) -> u64 {
        self.batches.iter().map(|batch| lock_batch(batch).tokens_left() as u64).sum()
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Records that a preparation ended, with or without a batch.
    pub(crate) fn record_preparation_end(&mut self, batch: Option<HolderBatch>) {
        self.preparing = false;
        if let Some(batch) = batch {
            self.finished += 1;
            self.batches.push_back(Arc::new(Mutex::new(batch)));
        }
    }

    /// Masks as many of these vectors as the oldest batch has counters for; `None` if no batch is
    /// ready.
    pub(crate) fn mask_vectors(
        &mut self,
        vectors: &[i16],
        columns: usize,
        meter: &mut StepMeter,
    ) -> Option<Result<MaskedVectorsWithBatch, MaskedError>> {
        loop {
            let batch = self.batches.front()?.clone();
            let mut held = lock_batch(&batch);
            let count = (vectors.len() / columns).min(held.tokens_left());
            if count == 0 {
                self.batches.pop_front();
                continue;
            }
            let masked = held.mask(&vectors[..count * columns], meter);
            drop(held);
            return Some(masked.map(|masked| MaskedVectorsWithBatch { batch, masked, count }));
        }
    }
}

pub(crate) fn lock_batch(batch: &SharedBatch) -> MutexGuard<'_, HolderBatch> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What is prepared and not yet used: each counter leaves it once and never comes back.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use super::batch::Batch;

/// The batches of one input.
#[derive(Default)]
pub(crate) struct Pool {
    batches: VecDeque<Open>,
    /// The next batch's number; it goes up whatever becomes of the batch.
    next_batch: u32,
    pub(crate) preparing: bool,
    pub(crate) finished: u64,
}

struct Open {
    batch: Arc<Batch>,
    next: u32,
    end: u32,
}

/// Counters of one batch: they were taken and are used or lost.
pub(crate) struct Taken {
    pub(crate) batch: Arc<Batch>,
    pub(crate) tokens: Range<u32>,
}

impl Pool {
    pub(crate) fn left(&self) -> u64 {
        self.batches.iter().map(|open| u64::from(open.end - open.next)).sum()
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn begin(&mut self) -> u32 {
        self.preparing = true;
        let number = self.next_batch;
        self.next_batch += 1;
        number
    }

    pub(crate) fn end(&mut self, batch: Option<Batch>, degree: usize) {
        self.preparing = false;
        if let Some(batch) = batch {
            self.finished += 1;
            let open = Open { batch: Arc::new(batch), next: 0, end: degree as u32 };
            self.batches.push_back(open);
        }
    }

    /// Up to `count` counters of the oldest batch.
    pub(crate) fn take(&mut self, count: u32) -> Option<Taken> {
        let open = self.batches.front_mut()?;
        let tokens = open.next..open.end.min(open.next + count);
        open.next = tokens.end;
        let batch = open.batch.clone();
        if open.next == open.end {
            self.batches.pop_front();
        }
        Some(Taken { batch, tokens })
    }
}

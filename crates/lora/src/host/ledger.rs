//! The answers that a host has given: counts in memory and, with a budget file, on disk.

use std::{io, path::Path, sync::Arc};

use super::{budget_file::BudgetFile, error::HostError};
use crate::{
    budget::{AnswerAllowance, AnswerBudgets, BudgetError, BudgetState},
    mask::CounterSlot,
    protocol::Refusal,
};

/// Counts answers before they are given, and keeps the counts in a file if there is one, so that a
/// restart does not renew budgets.
pub struct AnswerLedger {
    budgets: AnswerBudgets,
    file: Option<Arc<BudgetFile>>,
}

/// The reason why answers were not counted; they must not be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The budget is too small ([`Refusal::Budget`]), or there are too many counts ([`Refusal::Busy`]).
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The budget file cannot be written.
    #[error("budget file: {0}")]
    File(#[from] io::Error),
}

/// Counts that have to be on disk before the answer is sent.
pub(super) struct UnwrittenCount {
    file: Arc<BudgetFile>,
    slot: CounterSlot,
    used: u64,
    limit: Option<u64>,
}

impl AnswerLedger {
    /// Opens or creates the budget file, which no other host may use meanwhile, and continues its
    /// counts. Without a path, the counts are in memory only.
    ///
    /// # Errors
    /// If the file cannot be used, or has more counts than a host supports.
    pub fn open(path: Option<&Path>) -> Result<Self, HostError> {
        let budgets = AnswerBudgets::new();
        let Some(path) = path else { return Ok(Self { budgets, file: None }) };
        let cannot = |source| HostError::BudgetFile { path: path.to_owned(), source };
        let (file, counts) = BudgetFile::open(path).map_err(cannot)?;
        for (slot, used) in counts {
            let counted = budgets.count_answers(slot, 0, AnswerAllowance::Attested, used);
            counted.map_err(|_| HostError::TooManyCounts)?;
        }
        Ok(Self { budgets, file: Some(Arc::new(file)) })
    }

    /// The state of a client's budget for one input of `width` elements.
    pub fn budget_state(
        &self,
        slot: &CounterSlot,
        width: usize,
        allowance: AnswerAllowance,
    ) -> BudgetState {
        self.budgets.budget_state(slot, width, allowance)
    }

    /// Counts `vectors` answers before they are given, also on disk; this may take milliseconds. If the
    /// budget is too small for all of them, none is counted.
    ///
    /// # Errors
    /// If the budget is used up, there are too many counts, or the file cannot be written.
    pub fn count_answers(
        &self,
        slot: CounterSlot,
        width: usize,
        allowance: AnswerAllowance,
        vectors: u64,
    ) -> Result<BudgetState, LedgerError> {
        let (state, unwritten) = self.count_in_memory(slot, width, allowance, vectors)?;
        if let Some(unwritten) = unwritten {
            unwritten.write()?;
        }
        Ok(state)
    }

    /// Counts as [`AnswerLedger::count_answers`] does, and leaves what has to be written to the caller.
    pub(super) fn count_in_memory(
        &self,
        slot: CounterSlot,
        width: usize,
        allowance: AnswerAllowance,
        vectors: u64,
    ) -> Result<(BudgetState, Option<UnwrittenCount>), Refusal> {
        let counted = self.budgets.count_answers(slot, width, allowance, vectors);
        let state = counted.map_err(|error| match error {
            BudgetError::UsedUp { limit, .. } => Refusal::Budget { limit },
            _ => Refusal::Busy,
        })?;
        let used = state.used;
        let file = self.file.clone().filter(|file| !file.has_recorded(&slot, used));
        let limit = allowance.limit(width);
        Ok((state, file.map(|file| UnwrittenCount { file, slot, used, limit })))
    }

    /// Replaces the counts on disk, which include answers in advance, by the exact ones. Call it at a
    /// clean end.
    ///
    /// # Errors
    /// If the file cannot be written; the counts that it has are then not too low.
    pub fn write_exact_counts(&self) -> io::Result<()> {
        match &self.file {
            None => Ok(()),
            Some(file) => file.replace_counts(self.budgets.answer_counts()),
        }
    }
}

impl UnwrittenCount {
    /// Writes the line and synchronises it, which takes milliseconds.
    pub(super) fn write(self) -> io::Result<()> {
        self.file.ensure_recorded(self.slot, self.used, self.limit)
    }
}

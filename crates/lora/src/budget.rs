//! Budgets: the number of answers about an adapter that each client may have.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, PoisonError},
};

use crate::mask::CounterSlot;

/// The greatest number of counts. A forgotten count would renew a budget, so counts are kept until
/// the process ends, and further clients are refused. A client of an adapter on all projections of 28
/// layers needs 56 counts, which allows 18,000 clients in 150 MB.
pub(crate) const SLOTS_MAX: usize = 1 << 20;

/// The number of answers that a client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerAllowance {
    /// One answer fewer than the width of the input. This limits the answers but not what a key
    /// holder learns: an answer has 33 bits and an entry of A 13, so half of these answers can reveal
    /// a whole A.
    BelowWidth,
    /// A number that the adapter's owner chose.
    Vectors(u64),
    /// No budget. Only a key holder whose attestation the adapter's policy accepts has it.
    Attested,
}

/// The number of answers that were given, for each slot.
#[derive(Debug, Default)]
pub struct AnswerBudgets {
    used: Mutex<HashMap<CounterSlot, u64>>,
}

/// The state of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// The number of vectors that were answered.
    pub used: u64,
    /// The number of answers that are left; `None` if there is no budget.
    pub left: Option<u64>,
    /// Whether the key holder can compute the adapter; false only for attested key holders.
    pub adapter_can_be_learned: bool,
}

/// The reason why an answer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The client's budget is used up.
    #[error(
        "budget is used up: {limit} answers are allowed, {used} were given, {wanted} more were requested"
    )]
    UsedUp {
        /// The number of answers that the budget allows in all.
        limit: u64,
        /// The number of vectors that were answered.
        used: u64,
        /// The number of answers that were requested.
        wanted: u64,
    },
    /// The greatest number of counts is reached.
    #[error("budgets: wanted at most {SLOTS_MAX} counts, got one more")]
    Full,
}

impl AnswerAllowance {
    /// The number of answers for an input of `width`; `None` if there is no budget.
    pub fn limit(self, width: usize) -> Option<u64> {
        match self {
            AnswerAllowance::BelowWidth => Some((width as u64).saturating_sub(1)),
            AnswerAllowance::Vectors(limit) => Some(limit),
            AnswerAllowance::Attested => None,
        }
    }

    /// Returns whether a key holder with this allowance can learn the adapter. That holds for every
    /// number of answers: packed queries, lattice reduction and the uncounted leak of `prepare` each
    /// reveal an adapter within the default budget (tests/attacks/packing.rs).
    pub fn permits_extraction(self) -> bool {
        match self {
            // Code that the adapter's policy accepts stores no answers and sends honest queries.
            AnswerAllowance::Attested => false,
            AnswerAllowance::BelowWidth | AnswerAllowance::Vectors(_) => true,
        }
    }
}

impl AnswerBudgets {
    /// Makes empty counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `vectors` answers *before* they are given. If the budget is too small for all of them,
    /// none is counted.
    ///
    /// # Errors
    /// If the budget is used up, or if there are too many counts.
    pub fn count_answers(
        &self,
        slot: CounterSlot,
        width: usize,
        allowance: AnswerAllowance,
        vectors: u64,
    ) -> Result<BudgetState, BudgetError> {
        let mut all = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let full = all.len() >= SLOTS_MAX;
        let entry = all.entry(slot);
        if full && matches!(entry, Entry::Vacant(_)) {
            return Err(BudgetError::Full);
        }
        let used = entry.or_insert(0);
        let after = used.saturating_add(vectors);
        if let Some(limit) = allowance.limit(width).filter(|limit| after > *limit) {
            return Err(BudgetError::UsedUp { limit, used: *used, wanted: vectors });
        }
        *used = after;
        Ok(budget_state(after, width, allowance))
    }

    /// The number of answers that were given, for every slot with a count.
    pub(crate) fn answer_counts(&self) -> HashMap<CounterSlot, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state of a client's budget for one input of `width` elements.
    pub fn budget_state(
        &self,
        slot: &CounterSlot,
        width: usize,
        allowance: AnswerAllowance,
    ) -> BudgetState {
        let all = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        budget_state(all.get(slot).copied().unwrap_or(0), width, allowance)
    }
}

fn budget_state(used: u64, width: usize, allowance: AnswerAllowance) -> BudgetState {
    let left = allowance.limit(width).map(|limit| limit.saturating_sub(used));
    BudgetState { used, left, adapter_can_be_learned: allowance.permits_extraction() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayerInput;

    const SLOT: CounterSlot =
        CounterSlot { client: [1; 32], adapter: [2; 32], layer: 0, input: LayerInput::Attention };

    #[test]
    fn one_answer_fewer_than_the_input_is_wide() {
        let budgets = AnswerBudgets::new();
        let first = budgets.count_answers(SLOT, 8, AnswerAllowance::BelowWidth, 5).expect("within");
        assert_eq!((first.used, first.left, first.adapter_can_be_learned), (5, Some(2), true));
        let refused = budgets.count_answers(SLOT, 8, AnswerAllowance::BelowWidth, 3);
        assert_eq!(refused, Err(BudgetError::UsedUp { limit: 7, used: 5, wanted: 3 }));
        assert!(budgets.count_answers(SLOT, 8, AnswerAllowance::BelowWidth, 2).is_ok());
        assert!(budgets.count_answers(SLOT, 8, AnswerAllowance::BelowWidth, 1).is_err());
        let other = CounterSlot { client: [9; 32], ..SLOT };
        assert!(budgets.count_answers(other, 8, AnswerAllowance::BelowWidth, 7).is_ok());
    }

    #[test]
    fn every_allowance_but_the_attested_one_says_that_the_adapter_can_be_learned() {
        for counted in
            [AnswerAllowance::Vectors(0), AnswerAllowance::Vectors(7), AnswerAllowance::BelowWidth]
        {
            assert!(counted.permits_extraction(), "{counted:?}");
        }
        assert!(!AnswerAllowance::Attested.permits_extraction());
        let budgets = AnswerBudgets::new();
        let state =
            budgets.count_answers(SLOT, 8, AnswerAllowance::Attested, 100).expect("no budget");
        assert_eq!((state.left, state.adapter_can_be_learned), (None, false));
        // A key holder that was attested may come back without attestation: its answers count.
        let state = budgets.budget_state(&SLOT, 8, AnswerAllowance::BelowWidth);
        assert_eq!((state.left, state.adapter_can_be_learned), (Some(0), true));
    }
}

//! Budgets: how many answers about an adapter each client may have.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, PoisonError},
};

use crate::mask::Slot;

/// The greatest number of sequences that are counted at once. No count is forgotten while the
/// process lives, because a forgotten budget is a fresh one: beyond this, new clients are refused.
/// 56 sequences for each client of an adapter on all projections of 28 layers: 18,000 clients, 150
/// MB.
pub(crate) const SLOTS_MAX: usize = 1 << 20;

/// The number of answers that a client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// One fewer than the input is wide. It bounds how much is answered and not what is learned: an
    /// answer has 33 bits and an entry of A 13, so half of these answers tell a whole A.
    BelowWidth,
    /// A number that the adapter's owner chose.
    Vectors(u64),
    /// No budget: only for a key holder whose attestation the adapter's policy accepts.
    Attested,
}

/// The answers that clients have had, counted for each slot.
#[derive(Debug, Default)]
pub struct AnswerBudgets {
    used: Mutex<HashMap<Slot, u64>>,
}

/// The state of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// The number of vectors that were answered.
    pub used: u64,
    /// The number of answers that are left; `None` if there is no budget.
    pub left: Option<u64>,
    /// Whether the key holder can compute the adapter: true for all but attested key holders.
    pub adapter_can_be_learned: bool,
}

/// The reason why no answer is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The client has had its answers.
    #[error(
        "budget is used up: {limit} answered vectors are allowed, {used} were given, {wanted} more were asked for"
    )]
    UsedUp {
        /// The number of answers that the budget allows in all.
        limit: u64,
        /// The number of vectors that were answered.
        used: u64,
        /// The number of answers that were asked for.
        wanted: u64,
    },
    /// The greatest number of sequences is counted already.
    #[error("budgets: wanted at most {SLOTS_MAX} sequences, got one more")]
    Full,
}

impl Allowance {
    /// The number of answers for an input of `width`; `None` if there is no budget.
    pub fn limit(self, width: usize) -> Option<u64> {
        match self {
            Allowance::BelowWidth => Some((width as u64).saturating_sub(1)),
            Allowance::Vectors(limit) => Some(limit),
            Allowance::Attested => None,
        }
    }

    /// Whether a key holder with this allowance can learn the adapter. No number of answers says no:
    /// packed queries, lattice reduction and the uncounted leak of `prepare` all take an adapter
    /// within the default budget (tests/attacks/packing.rs).
    pub fn lets_learn(self) -> bool {
        match self {
            // Code that the adapter's policy accepts keeps no answers and sends honest queries.
            Allowance::Attested => false,
            Allowance::BelowWidth | Allowance::Vectors(_) => true,
        }
    }
}

impl AnswerBudgets {
    /// Makes budgets of which nothing has been used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `vectors` answers *before* they are given: all of them, or none where the budget does
    /// not hold them.
    ///
    /// # Errors
    /// If the budget is used up or too many are counted.
    pub fn take(
        &self,
        slot: Slot,
        width: usize,
        allowance: Allowance,
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
        Ok(state(after, width, allowance))
    }

    /// The number of answers that were given, for every slot that has had any.
    pub(crate) fn counts(&self) -> HashMap<Slot, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state of a client's budget for one input of `width` elements.
    pub fn state(&self, slot: &Slot, width: usize, allowance: Allowance) -> BudgetState {
        let all = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        state(all.get(slot).copied().unwrap_or(0), width, allowance)
    }
}

fn state(used: u64, width: usize, allowance: Allowance) -> BudgetState {
    let left = allowance.limit(width).map(|limit| limit.saturating_sub(used));
    BudgetState { used, left, adapter_can_be_learned: allowance.lets_learn() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;

    const SLOT: Slot =
        Slot { client: [1; 32], adapter: [2; 32], layer: 0, input: Input::Attention };

    #[test]
    fn one_answer_fewer_than_the_input_is_wide() {
        let budgets = AnswerBudgets::new();
        let first = budgets.take(SLOT, 8, Allowance::BelowWidth, 5).expect("within");
        assert_eq!((first.used, first.left, first.adapter_can_be_learned), (5, Some(2), true));
        let refused = budgets.take(SLOT, 8, Allowance::BelowWidth, 3);
        assert_eq!(refused, Err(BudgetError::UsedUp { limit: 7, used: 5, wanted: 3 }));
        assert!(budgets.take(SLOT, 8, Allowance::BelowWidth, 2).is_ok());
        assert!(budgets.take(SLOT, 8, Allowance::BelowWidth, 1).is_err());
        let other = Slot { client: [9; 32], ..SLOT };
        assert!(budgets.take(other, 8, Allowance::BelowWidth, 7).is_ok());
    }

    #[test]
    fn every_allowance_but_the_attested_one_says_that_the_adapter_can_be_learned() {
        for counted in [Allowance::Vectors(0), Allowance::Vectors(7), Allowance::BelowWidth] {
            assert!(counted.lets_learn(), "{counted:?}");
        }
        assert!(!Allowance::Attested.lets_learn());
        let budgets = AnswerBudgets::new();
        let state = budgets.take(SLOT, 8, Allowance::Attested, 100).expect("no budget");
        assert_eq!((state.left, state.adapter_can_be_learned), (None, false));
        // A key holder that was attested may come back without attestation: its answers count.
        let state = budgets.state(&SLOT, 8, Allowance::BelowWidth);
        assert_eq!((state.left, state.adapter_can_be_learned), (Some(0), true));
    }
}

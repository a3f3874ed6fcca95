//! Answers of a budget that are reserved for a generation before its first request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adapt_error::AdaptError;

/// Answers that are reserved for one generation until this value is dropped.
#[derive(Debug, Default)]
pub struct Reservation {
    completion_max: Option<u32>,
    _claim: Option<ReservationClaim>,
}

impl Reservation {
    /// The reservation of an adapter without a budget.
    pub const UNLIMITED: Reservation = Reservation { completion_max: None, _claim: None };

    /// The number of tokens that the completion may have; `None` if no budget limits it.
    pub fn completion_max(&self) -> Option<u32> {
        self.completion_max
    }
}

/// The answers that the running generations of one adapter may still request.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    state: Mutex<ReservationState>,
}

#[derive(Debug, Default)]
struct ReservationState {
    running: usize,
    /// The number of answers that no running generation has reserved; meaningless while none runs.
    free: u64,
}

#[derive(Debug)]
struct ReservationClaim(Arc<Reservations>);

impl Reservations {
    /// Reserves answers: one for each token of the prompt and of the completion, except the last
    /// one, which the model never reads. A completion without a length gets all remaining answers.
    ///
    /// Answers that an ended generation did not use become free once no generation runs. Until then
    /// they cannot be distinguished from those that the others use.
    pub(crate) fn reserve_answers(
        self: &Arc<Self>,
        left: Option<u64>,
        prompt: u32,
        completion: Option<u32>,
    ) -> Result<Reservation, AdaptError> {
        let Some(left) = left else { return Ok(Reservation::UNLIMITED) };
        let mut state = self.lock();
        let free = match state.running {
            0 => left,
            _ => left.min(state.free),
        };
        let prompt = u64::from(prompt);
        let wanted = prompt + u64::from(completion.unwrap_or(1)).saturating_sub(1);
        if wanted > free {
            return Err(AdaptError::BudgetTooSmall { wanted, left: free });
        }
        let completion_max = match completion {
            Some(completion) => completion,
            None => u32::try_from(free - prompt + 1).unwrap_or(u32::MAX),
        };
        state.free = free - (prompt + u64::from(completion_max).saturating_sub(1)).min(free);
        state.running += 1;
        Ok(Reservation {
            completion_max: Some(completion_max),
            _claim: Some(ReservationClaim(self.clone())),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReservationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReservationClaim {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running = state.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_counts(error: AdaptError) -> (u64, u64) {
        match error {
            AdaptError::BudgetTooSmall { wanted, left } => (wanted, left),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_that_does_not_fit_takes_nothing_and_a_smaller_one_still_fits() {
        let reservations = Arc::new(Reservations::default());
        let error = reservations.reserve_answers(Some(31), 23, Some(24)).expect_err("46 answers");
        assert_eq!(refusal_counts(error), (46, 31));
        let fits = reservations.reserve_answers(Some(31), 6, Some(6)).expect("11 answers");
        assert_eq!(fits.completion_max(), Some(6));
    }

    #[test]
    fn generations_at_once_share_what_is_left_and_give_it_back() {
        let reservations = Arc::new(Reservations::default());
        let first = reservations.reserve_answers(Some(100), 50, Some(11)).expect("60 answers");
        // The first one has used 30 of its own meanwhile.
        let error = reservations.reserve_answers(Some(70), 50, Some(1)).expect_err("50 of 40");
        assert_eq!(refusal_counts(error), (50, 40));
        let second = reservations.reserve_answers(Some(70), 40, Some(1)).expect("40 of 40");
        drop((first, second));
        let open_ended = reservations.reserve_answers(Some(40), 10, None).expect("the prompt fits");
        assert_eq!(open_ended.completion_max(), Some(31));
        drop(open_ended);
        let error =
            reservations.reserve_answers(Some(40), 41, None).expect_err("the prompt does not");
        assert_eq!(refusal_counts(error), (41, 40));
        assert_eq!(
            reservations.reserve_answers(None, 1, None).expect("no budget").completion_max(),
            None
        );
    }
}

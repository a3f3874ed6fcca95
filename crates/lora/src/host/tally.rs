//! Counts of answers and refusals between two lines of the audit log.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};

use crate::{protocol::Refusal, site::LayerInput};

/// The answers and refusals since the last line. A session's tally is closed when the session ends, so
/// that no answer is given after its last line.
#[derive(Debug, Default)]
pub struct AuditTally {
    state: Mutex<TallyState>,
}

#[derive(Debug, Default)]
struct TallyState {
    counts: AnswerCounts,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct AnswerCounts {
    answered: BTreeMap<(u32, LayerInput), u64>,
    refused: BTreeMap<&'static str, u64>,
}

impl AuditTally {
    /// Counts answers of one input before they are given.
    ///
    /// # Errors
    /// [`Refusal::NoSession`] if the tally is closed: the answers must not be given.
    pub fn count_answers(
        &self,
        layer: u32,
        input: LayerInput,
        vectors: u64,
    ) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refusal::NoSession);
        }
        *state.counts.answered.entry((layer, input)).or_default() += vectors;
        Ok(())
    }

    /// Counts a refusal. Returns whether the caller writes a separate line for it: for the first of its
    /// kind since the last line, and for every one after the tally was closed.
    pub fn count_refusal(&self, refusal: Refusal) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return true;
        }
        let count = state.counts.refused.entry(refusal.name()).or_default();
        *count += 1;
        *count == 1
    }

    /// Returns the counts as fields of a line and resets them; `None` if all are zero.
    pub fn take_counts(&self) -> Option<Map<String, Value>> {
        std::mem::take(&mut self.lock().counts).into_fields()
    }

    /// Closes the tally at the end of its session, and returns the last counts as
    /// [`AuditTally::take_counts`] does.
    pub fn close(&self) -> Option<Map<String, Value>> {
        let mut state = self.lock();
        state.is_closed = true;
        std::mem::take(&mut state.counts).into_fields()
    }

    /// Returns whether the session of this tally has ended.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, TallyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerCounts {
    fn into_fields(self) -> Option<Map<String, Value>> {
        let mut fields = Map::new();
        if !self.answered.is_empty() {
            let total: u64 = self.answered.values().sum();
            fields.insert("vectors".into(), total.into());
            let by_input = self.answered.into_iter();
            let by_input = by_input.map(|((layer, input), count)| {
                (format!("{layer}/{}", input_name(input)), Value::from(count))
            });
            fields.insert("inputs".into(), Value::Object(by_input.collect()));
        }
        if !self.refused.is_empty() {
            let refused = self.refused.into_iter();
            let refused = refused.map(|(name, count)| (name.to_owned(), Value::from(count)));
            fields.insert("refused".into(), Value::Object(refused.collect()));
        }
        (!fields.is_empty()).then_some(fields)
    }
}

/// The name of an input in logs.
pub fn input_name(input: LayerInput) -> &'static str {
    match input {
        LayerInput::Attention => "attention",
        LayerInput::AttentionOutput => "attention-output",
        LayerInput::FeedForward => "feed-forward",
        LayerInput::FeedForwardInner => "feed-forward-inner",
        LayerInput::FinalHidden => "final-hidden",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once() {
        let tally = AuditTally::default();
        assert!(tally.take_counts().is_none());
        tally.count_answers(3, LayerInput::Attention, 2).unwrap();
        tally.count_answers(3, LayerInput::Attention, 1).unwrap();
        tally.count_answers(4, LayerInput::FeedForward, 5).unwrap();
        assert!(tally.count_refusal(Refusal::CounterUsed));
        assert!(!tally.count_refusal(Refusal::CounterUsed));
        let fields = Value::Object(tally.take_counts().unwrap());
        assert_eq!(fields["vectors"], 8);
        assert_eq!(fields["inputs"]["3/attention"], 3);
        assert_eq!(fields["refused"]["counter-used"], 2);
        assert!(tally.take_counts().is_none());
    }

    #[test]
    fn a_closed_tally_counts_no_answers_and_every_refusal_has_a_line() {
        let tally = AuditTally::default();
        tally.count_answers(3, LayerInput::Attention, 2).unwrap();
        assert_eq!(tally.close().unwrap()["vectors"], 2);
        assert!(tally.is_closed());
        let late = tally.count_answers(3, LayerInput::Attention, 1);
        assert_eq!(late, Err(Refusal::NoSession));
        assert!(tally.count_refusal(Refusal::Malformed));
        assert!(tally.count_refusal(Refusal::Malformed));
        assert!(tally.close().is_none());
    }
}

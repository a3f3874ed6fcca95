//! Counts of answers and refusals between two lines of the audit log.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value};

use crate::{protocol::Refusal, site::LayerInput};

/// The answers and refusals since the last line.
#[derive(Debug, Default)]
pub struct AuditTally {
    counts: Mutex<AnswerCounts>,
}

#[derive(Debug, Default)]
struct AnswerCounts {
    answered: BTreeMap<(u32, LayerInput), u64>,
    refused: BTreeMap<&'static str, u64>,
}

impl AuditTally {
    /// Counts answers of one input.
    pub fn count_answers(&self, layer: u32, input: LayerInput, vectors: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.answered.entry((layer, input)).or_default() += vectors;
    }

    /// Counts a refusal. Returns whether it is the first of its kind since the last line; the caller
    /// then writes a separate line.
    pub fn count_refusal(&self, refusal: Refusal) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.refused.entry(refusal.name()).or_default();
        *count += 1;
        *count == 1
    }

    /// Returns the counts as fields of a line and resets them; `None` if all are zero.
    pub fn take_counts(&self) -> Option<Map<String, Value>> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts);
        let mut fields = Map::new();
        if !counts.answered.is_empty() {
            let total: u64 = counts.answered.values().sum();
            fields.insert("vectors".into(), total.into());
            let by_input = counts.answered.into_iter();
            let by_input = by_input.map(|((layer, input), count)| {
                (format!("{layer}/{}", input_name(input)), Value::from(count))
            });
            fields.insert("inputs".into(), Value::Object(by_input.collect()));
        }
        if !counts.refused.is_empty() {
            let refused = counts.refused.into_iter();
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
        tally.count_answers(3, LayerInput::Attention, 2);
        tally.count_answers(3, LayerInput::Attention, 1);
        tally.count_answers(4, LayerInput::FeedForward, 5);
        assert!(tally.count_refusal(Refusal::CounterUsed));
        assert!(!tally.count_refusal(Refusal::CounterUsed));
        let fields = Value::Object(tally.take_counts().unwrap());
        assert_eq!(fields["vectors"], 8);
        assert_eq!(fields["inputs"]["3/attention"], 3);
        assert_eq!(fields["refused"]["counter-used"], 2);
        assert!(tally.take_counts().is_none());
    }
}

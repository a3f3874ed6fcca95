//! The series in which the tokens of one answer are counted.

use std::sync::Arc;

use crate::{
    metrics::{GatewayMetrics, ModelMetrics},
    operation::Operation,
    usage_scanner::AnswerUsage,
};

/// The series of the operation and the model of one request.
pub(crate) struct TokenReport {
    metrics: Arc<GatewayMetrics>,
    operation: Operation,
    model: Arc<ModelMetrics>,
}

impl TokenReport {
    pub(crate) fn new(
        metrics: Arc<GatewayMetrics>,
        operation: Operation,
        model: Arc<ModelMetrics>,
    ) -> Self {
        Self { metrics, operation, model }
    }

    /// Records the tokens of a complete answer, unless their number is an estimate.
    pub(crate) fn record(&self, usage: &AnswerUsage) {
        if usage.total_tokens() > 0 && usage.estimated_tokens == 0 {
            let (prompt, completion) = (usage.prompt_tokens, usage.completion_tokens);
            self.metrics.record_tokens(self.operation, &self.model, prompt, completion);
        }
    }
}

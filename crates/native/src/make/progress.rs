//! How far the making of a model or an adapter has come, and the callback that hears of it.

use std::ops::ControlFlow;

/// Hears of the progress, often; once it breaks, the making stops.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// How far the making of a model or an adapter has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Training: steps done, steps in all, and the loss in nats per token.
    Training {
        /// Steps done.
        step: u32,
        /// Steps in all.
        steps: u32,
        /// Cross-entropy of this step.
        loss: f32,
    },
    /// Writing weights, in bytes.
    Writing {
        /// Bytes written.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

//! How far the making of a model or an adapter has come, and the callback that hears of it.

use std::ops::ControlFlow;

/// The callback that hears of the progress, often; once it breaks, the making stops.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// How far the making of a model or an adapter has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A step of the training is done.
    Training {
        /// Steps done.
        step: u32,
        /// Steps in all.
        steps: u32,
        /// Cross-entropy of this step, in nats per token.
        loss: f32,
    },
    /// A part of the weights is written.
    Writing {
        /// Bytes written.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

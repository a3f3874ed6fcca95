//! The progress of making a model or an adapter, and its callback.

use std::ops::ControlFlow;

/// The callback for the progress, which is called often; when it returns `Break`, the making stops.
pub type OnProgress<'a> = dyn FnMut(MakeProgress) -> ControlFlow<()> + 'a;

/// The progress of making a model or an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MakeProgress {
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

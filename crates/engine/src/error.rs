//! The errors of an engine.

use std::fmt::Display;

use confide_lora::{AdaptError, ProjectionSite};

/// The reason why a generation did not start, or ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The request names a model that this engine does not serve.
    #[error("model {got:?} is not served here")]
    UnknownModel {
        /// The name in the request.
        got: String,
    },
    /// The prompt cannot be rendered or tokenised.
    #[error("prompt cannot be used: {reason}")]
    Prompt {
        /// The error of the template or of the tokenizer.
        reason: String,
    },
    /// The prompt leaves no room for a completion.
    #[error("prompt is too long: wanted at most {limit} tokens, got {got}")]
    PromptTooLong {
        /// Tokens in the prompt.
        got: u32,
        /// The smaller of the request's limit and the model's context less one token.
        limit: u32,
    },
    /// The queue of waiting requests is full.
    #[error("queue is full: wanted at most {limit} waiting requests")]
    QueueFull {
        /// The length of the queue.
        limit: usize,
    },
    /// The engine has stopped.
    #[error("engine has stopped")]
    Stopped,
    /// The engine is unavailable, or was lost during an answer; it may come back.
    #[error("engine is not available: {reason}")]
    Unavailable {
        /// Why the engine is not available.
        reason: String,
    },
    /// This generation ran out of memory; others continue.
    #[error("generation ran out of memory: {reason}")]
    OutOfMemory {
        /// The engine's own error.
        reason: String,
    },
    /// The engine failed while it generated.
    #[error("generation failed: {reason}")]
    Failed {
        /// The error.
        reason: String,
    },
    /// The engine does not support adapters.
    #[error("this engine does not support adapters")]
    NoAdapters,
    /// A model or adapter of this name already exists.
    #[error("name {name:?} is taken")]
    NameTaken {
        /// The name in question.
        name: String,
    },
    /// The engine already has the largest number of adapters.
    #[error("too many adapters: wanted at most {limit}")]
    TooManyAdapters {
        /// The largest number of adapters.
        limit: usize,
    },
    /// The adapter changes a projection that the model lacks or that has other widths.
    #[error("adapter {name:?}: {site}: wanted {wanted}, got {got}")]
    AdapterSite {
        /// Name of the adapter.
        name: String,
        /// The projection, by layer and name.
        site: ProjectionSite,
        /// The widths of the model's projection, or a text that it does not exist.
        wanted: String,
        /// The widths of the adapter's projection.
        got: String,
    },
    /// The adapter failed, and the base model may not answer in its place.
    #[error("adapter {name:?} failed: {error}")]
    Adapter {
        /// Name of the adapter.
        name: String,
        /// The adapter's own error.
        error: AdaptError,
    },
}

impl EngineError {
    /// A [`EngineError::Failed`] with the text of its cause.
    pub fn failure(reason: impl Display) -> Self {
        EngineError::Failed { reason: reason.to_string() }
    }
}

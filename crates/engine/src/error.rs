//! The errors of an engine.

use std::fmt::Display;

use confide_lora::{AdaptError, Site};

/// Why an engine gives no token, or no further one.
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
        /// What is wrong with it.
        reason: String,
    },
    /// The prompt leaves no room for a completion.
    #[error("prompt is too long: wanted at most {limit} tokens, got {got}")]
    PromptTooLong {
        /// Tokens in the prompt.
        got: u32,
        /// The smaller one of the request's limit and the model's context less one token.
        limit: u32,
    },
    /// As many requests wait as may wait.
    #[error("queue is full: wanted at most {limit} waiting requests")]
    QueueFull {
        /// The bound of the queue.
        limit: usize,
    },
    /// The engine has stopped.
    #[error("engine has stopped")]
    Stopped,
    /// The engine is not there, or was lost in mid-answer; it may come back.
    #[error("engine is not available: {reason}")]
    Unavailable {
        /// What became of it.
        reason: String,
    },
    /// This generation needed more memory than there is; others go on.
    #[error("generation ran out of memory: {reason}")]
    OutOfMemory {
        /// What the engine said.
        reason: String,
    },
    /// The engine failed while it generated.
    #[error("generation failed: {reason}")]
    Failed {
        /// What failed.
        reason: String,
    },
    /// The engine takes no adapters.
    #[error("this engine takes no adapters")]
    NoAdapters,
    /// A model or adapter of this name is there already.
    #[error("name {name:?} is taken")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// As many adapters are loaded as may be.
    #[error("too many adapters: wanted at most {limit}")]
    TooManyAdapters {
        /// The bound.
        limit: usize,
    },
    /// The adapter changes a projection that the model does not have, or not with these widths.
    #[error("adapter {name:?}: {site}: wanted {wanted}, got {got}")]
    AdapterSite {
        /// The adapter.
        name: String,
        /// The projection, by layer and name.
        site: Site,
        /// What the model has there.
        wanted: String,
        /// What the adapter has there.
        got: String,
    },
    /// The adapter gives no delta, and the base model may not answer in its place.
    #[error("adapter {name:?} failed: {error}")]
    Adapter {
        /// The adapter.
        name: String,
        /// The adapter's own error.
        error: AdaptError,
    },
}

impl EngineError {
    /// A generation that failed for this reason.
    pub fn failure(reason: impl Display) -> Self {
        EngineError::Failed { reason: reason.to_string() }
    }
}

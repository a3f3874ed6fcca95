//! What a language model engine is to the rest of the house.
//!
//! An [`Engine`] takes a [`Request`] and returns a [`Generation`]: a bounded stream of [`Event`]s
//! that ends with exactly one of [`Event::Finished`] and [`Event::Failed`]. Dropping the generation
//! cancels it. The number of [`Event::Token`]s is the number of completion tokens in the usage.
//!
//! An engine may take adapters at run time: each is one more model, whose `parent` is the base. An
//! adapter that is lost in mid-answer is never hidden, see [`OnLoss`].
//!
//! [`sim`] is the engine without a model: its tokens and their instants are known beforehand, so
//! that the instrument can be checked against it. All it says is *simulated*.
//!
//! With the feature `text` there is `text`: text to tokens and back, as the folder of a model has it.

mod adapter;
mod error;
mod generation;
mod request;
pub mod sim;
mod split;
mod stop;
#[cfg(feature = "text")]
pub mod text;
mod timer;

use std::sync::Arc;

use confide_lora::Adapt;

pub use adapter::{AdapterReport, OnLoss, check_sites};
pub use error::EngineError;
pub use generation::{Event, FinishReason, Generation, Sender, Token, Usage, channel};
pub use request::{Message, Prompt, Request, Role, Sampling};
pub use split::{Split, SplitSession};
pub use stop::StopFilter;

/// An engine completes text with its models and the adapters that are loaded for them.
pub trait Engine: Send + Sync + 'static {
    /// The models it serves; at least one, with distinct names. Adapters that are loaded now follow
    /// the base models.
    fn models(&self) -> Vec<Model>;

    /// Number of tokens in `prompt` as `model` sees it, its chat template included.
    ///
    /// # Errors
    /// [`EngineError::UnknownModel`], and [`EngineError::Prompt`] if no template can render it.
    fn count(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError>;

    /// Starts a generation. The prompt is tokenised before this returns; the rest comes as events.
    ///
    /// # Errors
    /// As [`Engine::count`], and [`EngineError::PromptTooLong`], [`EngineError::QueueFull`],
    /// [`EngineError::Stopped`], [`EngineError::Unavailable`].
    fn generate(&self, request: Request) -> Result<Generation, EngineError>;

    /// Generations that run at once; further ones wait.
    fn slots(&self) -> usize;

    /// Loads an adapter as an additional model. The names and widths of its projections are checked
    /// against the base model.
    ///
    /// # Errors
    /// [`EngineError::NoAdapters`], [`EngineError::NameTaken`], [`EngineError::TooManyAdapters`],
    /// [`EngineError::AdapterSite`].
    fn load_adapter(
        &self,
        _name: &str,
        _adapter: Arc<dyn Adapt>,
        _on_loss: OnLoss,
    ) -> Result<(), EngineError> {
        Err(EngineError::NoAdapters)
    }

    /// Unloads an adapter. Generations that run with it go on to their end.
    ///
    /// # Errors
    /// [`EngineError::NoAdapters`], and [`EngineError::UnknownModel`] if no adapter has this name.
    fn unload_adapter(&self, _name: &str) -> Result<(), EngineError> {
        Err(EngineError::NoAdapters)
    }

    /// The model without its LM head, if the engine can give hidden states.
    fn split(&self) -> Option<Arc<dyn Split>> {
        None
    }
}

/// A model of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The model's name in requests.
    pub name: String,
    /// The longest prompt and completion together, in tokens.
    pub context_tokens: u32,
    /// SHA-256 of the manifest whose files were loaded and checked, in lower-case hex.
    pub manifest_sha256: Option<String>,
    /// Origin of the weights, if the engine names it: `random from seed 7`.
    pub weights: Option<String>,
    /// For an adapter, the name of the model that it changes.
    pub parent: Option<String>,
}

impl Model {
    /// An adapter of this model as a model of its own.
    #[must_use]
    pub fn with_adapter(&self, name: String) -> Self {
        let parent = Some(self.name.clone());
        Self { name, manifest_sha256: None, parent, ..self.clone() }
    }
}

//! The interface of a language model engine.
//!
//! An [`Engine`] takes a [`Request`] and returns a [`Generation`]: a bounded stream of
//! [`GenerationEvent`]s that ends with exactly one of [`GenerationEvent::Finished`] and
//! [`GenerationEvent::Failed`]. Dropping the generation cancels it. The number of
//! [`GenerationEvent::Token`]s is the number of completion tokens in the usage.
//!
//! An engine may load adapters at run time; each is a further model, whose `parent` is the base
//! model. The loss of an adapter during an answer is always reported, see [`AdapterLossPolicy`].
//!
//! [`sim`] is an engine without a model. Its tokens and their instants are known in advance, so
//! that measuring tools can be checked against it.
//!
//! The feature `text` adds the module `text`, which converts text to tokens and back with the files
//! of a model's folder.

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

use confide_lora::DeltaProvider;

pub use adapter::{AdapterLossPolicy, AdapterReport, check_adapter_sites};
pub use error::EngineError;
pub use generation::{
    EventSender, FinishReason, Generation, GenerationEvent, Token, Usage, generation_channel,
};
pub use request::{Message, Prompt, Request, Role, Sampling};
pub use split::{SplitModel, SplitSession};
pub use stop::StopFilter;

/// Completes text with models and the adapters that are loaded for them.
pub trait Engine: Send + Sync + 'static {
    /// The models that the engine serves: at least one, with distinct names. Loaded adapters follow
    /// the base models.
    fn models(&self) -> Vec<Model>;

    /// Counts the tokens of `prompt` for `model`, including its chat template.
    ///
    /// # Errors
    /// [`EngineError::UnknownModel`], or [`EngineError::Prompt`] if the prompt cannot be rendered
    /// or tokenised.
    fn count_prompt_tokens(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError>;

    /// Starts a generation. The prompt is tokenised before this returns; the tokens come as events.
    ///
    /// # Errors
    /// As [`Engine::count_prompt_tokens`], and [`EngineError::PromptTooLong`],
    /// [`EngineError::QueueFull`], [`EngineError::Stopped`], [`EngineError::Unavailable`].
    fn generate(&self, request: Request) -> Result<Generation, EngineError>;

    /// The number of generations that run at once; further ones wait.
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
        _adapter: Arc<dyn DeltaProvider>,
        _on_loss: AdapterLossPolicy,
    ) -> Result<(), EngineError> {
        Err(EngineError::NoAdapters)
    }

    /// Unloads an adapter. Generations that use it continue to their end.
    ///
    /// # Errors
    /// [`EngineError::NoAdapters`], and [`EngineError::UnknownModel`] if no adapter has this name.
    fn unload_adapter(&self, _name: &str) -> Result<(), EngineError> {
        Err(EngineError::NoAdapters)
    }

    /// The model without its LM head; `None` if the engine cannot return hidden states.
    fn split_model(&self) -> Option<Arc<dyn SplitModel>> {
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
    /// The origin of the weights, if known, for example `random from seed 7`.
    pub weights: Option<String>,
    /// For an adapter, the name of the model that it changes.
    pub parent: Option<String>,
}

impl Model {
    /// Describes an adapter of this model as a separate model.
    #[must_use]
    pub fn with_adapter(&self, name: String) -> Self {
        let parent = Some(self.name.clone());
        Self { name, manifest_sha256: None, parent, ..self.clone() }
    }
}

//! What a language model engine is to the rest of the house.
//!
//! An [`Engine`] takes a [`Request`] and gives a [`Generation`]: a bounded stream of [`Event`]s
//! that ends with exactly one of [`Event::Finished`] and [`Event::Failed`]. Dropping the generation
//! cancels it. The number of [`Event::Token`]s is the number of completion tokens in the usage.
//!
//! [`sim`] is the engine without a model: its tokens and their instants are known beforehand, so
//! that the instrument can be checked against it. All it says is *simulated*.

mod error;
mod generation;
mod request;
pub mod sim;
mod stop;
mod timer;

pub use error::EngineError;
pub use generation::{Event, FinishReason, Generation, Sender, Token, Usage, channel};
pub use request::{Message, Prompt, Request, Role, Sampling};
pub use stop::StopFilter;

/// Something that completes text.
pub trait Engine: Send + Sync + 'static {
    /// The models it serves; at least one, with distinct names.
    fn models(&self) -> Vec<Model>;

    /// Number of tokens in `prompt` as `model` sees it, its chat template included.
    ///
    /// # Errors
    /// [`EngineError::UnknownModel`], and [`EngineError::Prompt`] where no template can render it.
    fn count(&self, model: &str, prompt: &Prompt) -> Result<u32, EngineError>;

    /// Starts a generation. The prompt is tokenised before this returns; the rest comes as events.
    ///
    /// # Errors
    /// As [`Engine::count`], and [`EngineError::PromptTooLong`], [`EngineError::QueueFull`],
    /// [`EngineError::Stopped`].
    fn generate(&self, request: Request) -> Result<Generation, EngineError>;

    /// How many generations run side by side; more than these wait.
    fn slots(&self) -> usize;
}

/// One model of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name that requests use.
    pub name: String,
    /// Longest prompt and completion together, in tokens.
    pub context_tokens: u32,
    /// SHA-256 of the manifest whose files were loaded and checked, in lower-case hex.
    pub manifest_sha256: Option<String>,
}

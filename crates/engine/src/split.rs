//! An engine's model without its LM head, for clients that choose the tokens themselves.

use crate::{adapter::AdapterReport, error::EngineError};

/// A model without its LM head, which reads tokens or their embeddings and returns the last hidden
/// state. The client keeps tokenizer, output matrix and sampling, so the server never computes a
/// token.
///
/// The server can still learn the tokens: it can look up embeddings in the public embedding table.
pub trait SplitModel: Send + Sync + 'static {
    /// The hidden width `H`, in elements.
    fn width(&self) -> usize;

    /// The longest text of a session, in tokens.
    fn context_tokens(&self) -> u32;

    /// Opens a session of the base model, or of the adapter with this name. This may take a network
    /// round trip.
    ///
    /// # Errors
    /// [`EngineError::UnknownModel`], [`EngineError::QueueFull`] if too many sessions are open,
    /// [`EngineError::Adapter`].
    fn open_session(&self, adapter: Option<&str>) -> Result<Box<dyn SplitSession>, EngineError>;
}

/// A session that reads one text. All calls block during the computation.
pub trait SplitSession: Send {
    /// Reads further tokens and returns the hidden state of the last one after the last norm, `H`
    /// elements.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if `ids` is empty or contains an unknown token,
    /// [`EngineError::PromptTooLong`], [`EngineError::Adapter`], [`EngineError::Failed`].
    /// After any error except the first two the session cannot be used any more.
    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>, EngineError>;

    /// Does as [`SplitSession::forward`] for `T` concatenated embeddings of `H` elements.
    ///
    /// # Errors
    /// Those of [`SplitSession::forward`]; [`EngineError::Prompt`] if the length is not a multiple
    /// of `H`.
    fn forward_embeddings(&mut self, rows: &[f32]) -> Result<Vec<f32>, EngineError>;

    /// The number of tokens read so far.
    fn token_count(&self) -> u32;

    /// Discards the text that was read. The adapter's report continues.
    fn restart(&mut self);

    /// The report of the adapter so far; `None` for the base model. Its `lost` is set as soon as a
    /// hidden state was computed without the adapter.
    fn adapter_report(&self) -> Option<AdapterReport>;
}

//! An engine's transformer without its LM head, for clients that choose the tokens themselves.

use crate::{adapter::AdapterReport, error::EngineError};

/// A model without its LM head: tokens or their embeddings in, the last hidden state out. The
/// client keeps tokenizer, output matrix and sampling, so the server never computes a token.
///
/// The server can find the tokens all the same: rows of a public embedding table are looked up as
/// easily as token numbers are read.
pub trait Split: Send + Sync + 'static {
    /// Hidden width `H`, in elements.
    fn width(&self) -> usize;

    /// The longest text of a session, in tokens.
    fn context_tokens(&self) -> u32;

    /// Opens a session, of the base model or of the adapter with this name. May take the time of a
    /// network round trip.
    ///
    /// # Errors
    /// [`EngineError::UnknownModel`], [`EngineError::QueueFull`] if as many sessions are open as
    /// may be, [`EngineError::Adapter`].
    fn open(&self, adapter: Option<&str>) -> Result<Box<dyn SplitSession>, EngineError>;
}

/// A text that is being read. All calls block and compute.
pub trait SplitSession: Send {
    /// Reads tokens after those already read and returns the last one's hidden state after the last
    /// norm, `H` elements.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if no token or an unknown one is given,
    /// [`EngineError::PromptTooLong`], [`EngineError::Adapter`], [`EngineError::Failed`].
    /// After any but the first two the session is of no further use.
    fn forward(&mut self, ids: &[u32]) -> Result<Vec<f32>, EngineError>;

    /// As [`SplitSession::forward`], from `T` embeddings of `H` elements, one after the other.
    ///
    /// # Errors
    /// As [`SplitSession::forward`]; [`EngineError::Prompt`] if the length is not a multiple of
    /// `H`.
    fn forward_rows(&mut self, rows: &[f32]) -> Result<Vec<f32>, EngineError>;

    /// Tokens read so far.
    fn read_tokens(&self) -> u32;

    /// Discards the text that was read. The adapter's report goes on.
    fn restart(&mut self);

    /// The report of the adapter until now; `None` for the base model. Its `lost` is set from the
    /// first hidden state on that was computed without the adapter.
    fn adapter(&self) -> Option<AdapterReport>;
}

//! One answer on its way from token numbers to text.

use std::{borrow::Cow, ops::Deref};

use crate::{
    error::EngineError,
    generation::{FinishReason, Token, Usage},
    stop::StopFilter,
};

use super::detokenise::Detokeniser;
use crate::text::folder::Text;

/// One answer on its way from token numbers to text: characters made whole, stop strings found,
/// tokens counted.
pub struct Answer<T> {
    text: T,
    detokeniser: Detokeniser,
    stop: StopFilter,
    most: u32,
    usage: Usage,
}

impl<T: Deref<Target = Text>> Answer<T> {
    /// An answer of at most `most` tokens after a prompt of so many, which ends before the first of
    /// `stop`.
    pub fn new(text: T, stop: &[String], prompt_tokens: u32, most: u32) -> Self {
        Self {
            text,
            detokeniser: Detokeniser::default(),
            stop: StopFilter::new(stop),
            most,
            usage: Usage { prompt_tokens, completion_tokens: 0 },
        }
    }

    /// Why no further token is wanted, where none is.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        if self.stop.is_stopped() {
            return Some(FinishReason::Stop);
        }
        (self.usage.completion_tokens == self.most).then_some(FinishReason::Length)
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// [`EngineError::Failed`] where the tokenizer refuses.
    pub fn push(&mut self, id: u32) -> Result<Token, EngineError> {
        self.usage.completion_tokens += 1;
        let piece = self.detokeniser.push(self.text.tokenizer(), id);
        let piece = piece.map_err(EngineError::failure)?;
        Ok(Token { id, text: Cow::Owned(self.stop.push(&piece)) })
    }

    /// The reason, the text held back until now, and what it took.
    ///
    /// # Errors
    /// [`EngineError::Failed`] where the tokenizer refuses.
    pub fn finish(
        &mut self,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError> {
        let rest = self.detokeniser.finish(self.text.tokenizer());
        let tail = self.stop.push(&rest.map_err(EngineError::failure)?) + &self.stop.finish();
        let reason = if self.stop.is_stopped() { FinishReason::Stop } else { reason };
        Ok((reason, tail, self.usage))
    }
}

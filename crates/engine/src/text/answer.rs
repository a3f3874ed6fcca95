//! Decodes the tokens of one answer to text.

use std::{borrow::Cow, ops::Deref};

use crate::{
    error::EngineError,
    generation::{FinishReason, Token, Usage},
    stop::StopFilter,
};

use super::{detokenise::Detokeniser, folder::ModelText};

/// Decodes the tokens of one answer to text: completes characters, finds stop strings and counts
/// tokens.
pub struct AnswerDecoder<T> {
    text: T,
    detokeniser: Detokeniser,
    stop: StopFilter,
    most: u32,
    usage: Usage,
}

impl<T: Deref<Target = ModelText>> AnswerDecoder<T> {
    /// A decoder for an answer of at most `most` tokens after a prompt of `prompt_tokens`, which
    /// ends before the first of the `stop` strings.
    pub fn new(text: T, stop: &[String], prompt_tokens: u32, most: u32) -> Self {
        Self {
            text,
            detokeniser: Detokeniser::default(),
            stop: StopFilter::new(stop),
            most,
            usage: Usage { prompt_tokens, completion_tokens: 0 },
        }
    }

    /// The reason to end the answer; `None` while further tokens are needed.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        if self.stop.is_stopped() {
            return Some(FinishReason::Stop);
        }
        (self.usage.completion_tokens == self.most).then_some(FinishReason::Length)
    }

    /// Adds the next token.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the tokenizer refuses.
    pub fn push(&mut self, id: u32) -> Result<Token, EngineError> {
        self.usage.completion_tokens += 1;
        let piece = self.detokeniser.push(self.text.tokenizer(), id);
        let piece = piece.map_err(EngineError::failure)?;
        Ok(Token { id, text: Cow::Owned(self.stop.push(&piece)) })
    }

    /// Ends the answer; returns the reason, the held-back text and the token counts.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the tokenizer refuses.
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

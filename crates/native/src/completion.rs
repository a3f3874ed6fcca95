//! The part of a generation after the transformer: converts logits to tokens and text.

use confide_engine::text::{AnswerDecoder, ModelText};
use confide_engine::{EngineError, FinishReason, Request, Token, Usage};

use crate::sample::Sampler;

/// The part of a generation after the transformer: converts logits to tokens and text.
pub struct Completion<'a> {
    text: &'a ModelText,
    sampler: Sampler,
    answer: AnswerDecoder<&'a ModelText>,
    ignore_eos: bool,
}

/// The outcome of choosing a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenChoice {
    /// A further token, which the transformer reads next.
    Token(Token),
    /// The model ended its answer.
    End,
}

impl<'a> Completion<'a> {
    /// A completion after `prompt_tokens` tokens of prompt; `room` is the number of tokens that
    /// remain in the context.
    pub(crate) fn new(
        text: &'a ModelText,
        request: &Request,
        prompt_tokens: u32,
        room: u32,
    ) -> Self {
        let banned = if request.ignore_eos { text.special_tokens() } else { Default::default() };
        let most = request.max_tokens.unwrap_or(u32::MAX).min(room);
        Self {
            text,
            sampler: Sampler::new(request.sampling, text.vocabulary_size(), banned),
            answer: AnswerDecoder::new(text, &request.stop, prompt_tokens, most),
            ignore_eos: request.ignore_eos,
        }
    }

    /// The reason to end the completion; `None` while further tokens are needed.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.answer.finish_reason()
    }

    /// Chooses the next token.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if no logit is a number, or the tokenizer refuses.
    pub fn choose(&mut self, logits: &[f32]) -> Result<TokenChoice, EngineError> {
        let id = self
            .sampler
            .choose(logits)
            .ok_or_else(|| EngineError::failure("no allowed token has a finite logit"))?;
        if self.text.is_end_of_text(id) && !self.ignore_eos {
            return Ok(TokenChoice::End);
        }
        self.answer.push(id).map(TokenChoice::Token)
    }

    /// Ends the completion; returns the reason, the held-back text and the token counts.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the tokenizer refuses.
    pub fn finish(
        mut self,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError> {
        self.answer.finish(reason)
    }
}

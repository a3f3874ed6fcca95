use std::{borrow::Cow, fmt::Display};

use confide_engine::{EngineError, FinishReason, Request, StopFilter, Token, Usage};

use crate::{detokenise::Detokeniser, sample::Sampler, text::Text};

/// The side of a generation that needs no transformer: logits in, tokens and text out.
pub struct Completion<'a> {
    text: &'a Text,
    sampler: Sampler,
    detokeniser: Detokeniser<'a>,
    stop: StopFilter,
    ignore_eos: bool,
    most: u32,
    usage: Usage,
}

/// What logits lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One more token; the transformer reads it next.
    Token(Token),
    /// The model ended its answer.
    End,
}

impl<'a> Completion<'a> {
    /// A completion after so many tokens of prompt; `room` is the longest that the context admits.
    pub(crate) fn new(text: &'a Text, request: &Request, prompt_tokens: u32, room: u32) -> Self {
        let banned = if request.ignore_eos { text.special() } else { Default::default() };
        Self {
            text,
            sampler: Sampler::new(request.sampling, text.vocabulary(), banned),
            detokeniser: Detokeniser::new(text.tokenizer()),
            stop: StopFilter::new(&request.stop),
            ignore_eos: request.ignore_eos,
            most: request.max_tokens.unwrap_or(u32::MAX).min(room),
            usage: Usage { prompt_tokens, completion_tokens: 0 },
        }
    }

    /// Why no further token is wanted, where none is.
    pub fn ended(&self) -> Option<FinishReason> {
        match (self.stop.stopped(), self.usage.completion_tokens == self.most) {
            (true, _) => Some(FinishReason::Stop),
            (false, true) => Some(FinishReason::Length),
            (false, false) => None,
        }
    }

    /// Chooses the next token.
    ///
    /// # Errors
    /// [`EngineError::Failed`] where no logit is a number, or the tokenizer refuses.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Choice, EngineError> {
        let id = self.sampler.choose(logits).ok_or_else(|| failed(&"no logit is a number"))?;
        if self.text.ends(id) && !self.ignore_eos {
            return Ok(Choice::End);
        }
        self.usage.completion_tokens += 1;
        let piece = self.detokeniser.push(id).map_err(|error| failed(&error))?;
        Ok(Choice::Token(Token { id, text: Cow::Owned(self.stop.push(&piece)) }))
    }

    /// The reason, the text held back until now, and what it took.
    ///
    /// # Errors
    /// [`EngineError::Failed`] where the tokenizer refuses.
    pub fn finish(
        mut self,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError> {
        let rest = self.detokeniser.finish().map_err(|error| failed(&error))?;
        let tail = self.stop.push(&rest) + &self.stop.finish();
        let reason = if self.stop.stopped() { FinishReason::Stop } else { reason };
        Ok((reason, tail, self.usage))
    }
}

pub(crate) fn failed(error: &dyn Display) -> EngineError {
    EngineError::Failed { reason: error.to_string() }
}

//! An LM head with fixed answers, for the engine of `crates/serve/tests/double`.

use confide_engine::{EngineError, FinishReason, Prompt, Request, Token, Usage};
use confide_report_003::split_mode::{ClientHead, TokenChooser};

use crate::double::word;

/// A head whose only logit is the hidden state. The text of a token is the word of its logit.
pub(crate) struct PlainHead;

impl ClientHead for PlainHead {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        Ok(match prompt {
            Prompt::Text(text) => text.bytes().map(u32::from).collect(),
            Prompt::Chat(_) => vec![1],
        })
    }

    fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        Ok(ids.iter().map(|id| *id as f32).collect())
    }

    fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        Ok(hidden.to_vec())
    }

    fn start_completion<'a>(
        &'a self,
        request: &Request,
        prompt_tokens: u32,
        _context_tokens: u32,
    ) -> Box<dyn TokenChooser + 'a> {
        let usage = Usage { prompt_tokens, completion_tokens: 0 };
        Box::new(Completing { usage, most: request.max_tokens.unwrap_or(4) })
    }
}

struct Completing {
    usage: Usage,
    most: u32,
}

impl TokenChooser for Completing {
    fn finish_reason(&self) -> Option<FinishReason> {
        (self.usage.completion_tokens == self.most).then_some(FinishReason::Length)
    }

    fn choose_token(&mut self, logits: &[f32]) -> Result<Option<Token>, EngineError> {
        self.usage.completion_tokens += 1;
        Ok(Some(Token { id: 7, text: word(logits[0]).into() }))
    }

    fn finish(
        self: Box<Self>,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError> {
        Ok((reason, String::new(), self.usage))
    }
}

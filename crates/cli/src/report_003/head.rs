//! The client's half of split mode, by the native engine's parts.

use std::path::Path;

use confide_engine::{EngineError, FinishReason, Prompt, Request, Token, Usage};
use confide_native::{Completion, LmHead, NativeError, TokenChoice};
use confide_report_003::split_mode::{ClientHead, TokenChooser};

/// Tokenizer, embeddings, LM head and sampling of a model's folder.
pub(crate) struct ModelHead(LmHead);

impl ModelHead {
    pub(crate) fn load(dir: &Path) -> Result<Self, NativeError> {
        LmHead::load(dir).map(Self)
    }

    /// Hidden width, in elements.
    pub(crate) fn width(&self) -> usize {
        self.0.width()
    }
}

impl ClientHead for ModelHead {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        self.0.encode(prompt)
    }

    fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        self.0.embed(ids)
    }

    fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        self.0.logits(hidden)
    }

    fn start_completion<'a>(
        &'a self,
        request: &Request,
        prompt_tokens: u32,
        context_tokens: u32,
    ) -> Box<dyn TokenChooser + 'a> {
        Box::new(HeadCompletion(self.0.completion(request, prompt_tokens, context_tokens)))
    }
}

struct HeadCompletion<'a>(Completion<'a>);

impl TokenChooser for HeadCompletion<'_> {
    fn finish_reason(&self) -> Option<FinishReason> {
        self.0.finish_reason()
    }

    fn choose_token(&mut self, logits: &[f32]) -> Result<Option<Token>, EngineError> {
        Ok(match self.0.choose(logits)? {
            TokenChoice::Token(token) => Some(token),
            TokenChoice::End => None,
        })
    }

    fn finish(
        self: Box<Self>,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError> {
        self.0.finish(reason)
    }
}

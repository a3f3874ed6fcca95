//! Split mode, a generation in two halves: hidden states come from a
//! [`SplitSession`](confide_engine::SplitSession), here or far away; tokens are chosen by a [`Head`].
//! The server never computes a token, but it reads all of them.

pub mod frame;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use confide_engine::{AdapterReport, EngineError, FinishReason, Prompt, Request, Token, Usage};

/// The client's half of split mode: tokenizer, embeddings, LM head and sampling.
pub trait Head: Send + Sync + 'static {
    /// The tokens of a prompt, its chat template included.
    ///
    /// # Errors
    /// [`EngineError::Prompt`].
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError>;

    /// One embedding for each token, one after the other.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if one is not a token.
    fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError>;

    /// One logit for each token of the vocabulary, from a hidden state.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if its width is not the model's.
    fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError>;

    /// Begins a completion after `prompt_tokens` tokens, in a context of `context_tokens` tokens.
    fn completion<'a>(
        &'a self,
        request: &Request,
        prompt_tokens: u32,
        context_tokens: u32,
    ) -> Box<dyn Complete + 'a>;
}

/// The choice of tokens in a generation, which needs no transformer.
pub trait Complete {
    /// The reason to stop before the next token; `None` to go on.
    fn finish_reason(&self) -> Option<FinishReason>;

    /// Chooses the next token; `None` if the model ended its answer.
    ///
    /// # Errors
    /// [`EngineError::Failed`].
    fn choose(&mut self, logits: &[f32]) -> Result<Option<Token>, EngineError>;

    /// Ends the completion: returns the reason, the text held back until now, and the usage.
    ///
    /// # Errors
    /// [`EngineError::Failed`].
    fn finish(
        self: Box<Self>,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError>;
}

/// A head that is loaded on first use: its matrices are in memory twice from then on.
pub struct LateHead {
    load: Box<dyn Fn() -> Result<Arc<dyn Head>, EngineError> + Send + Sync>,
    loaded: Mutex<Option<Arc<dyn Head>>>,
}

impl LateHead {
    /// Makes a head that `load` will load.
    pub fn new(
        load: impl Fn() -> Result<Arc<dyn Head>, EngineError> + Send + Sync + 'static,
    ) -> Self {
        Self { load: Box::new(load), loaded: Mutex::default() }
    }

    /// Returns the head. The first call blocks until it is loaded.
    ///
    /// # Errors
    /// Those of loading; a later call tries again.
    pub fn load(&self) -> Result<Arc<dyn Head>, EngineError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(head) = &*loaded {
            return Ok(Arc::clone(head));
        }
        let head = (self.load)()?;
        *loaded = Some(Arc::clone(&head));
        Ok(head)
    }
}

impl fmt::Debug for LateHead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LateHead")
    }
}

/// The result of reading tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The last token's hidden state after the last norm.
    pub hidden: Vec<f32>,
    /// The report of the adapter until now; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// One token and its cost. The parts add up to the time between tokens, except for the caller's own
/// work.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The token.
    pub token: Token,
    /// Milliseconds until the hidden state was computed.
    pub forward_ms: f64,
    /// Milliseconds of the LM head.
    pub head_ms: f64,
    /// Milliseconds of the choice and the text.
    pub choose_ms: f64,
    /// The report of the adapter until now; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// The end of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The reason why it ended.
    pub reason: FinishReason,
    /// The text that was held back until now.
    pub tail: String,
    /// The numbers of tokens.
    pub usage: Usage,
    /// The report of the adapter; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// Generates: `forward` reads tokens after those already read, `each` receives every token and
/// returns whether to go on. `None` if it returned `false`.
///
/// # Errors
/// Those of `forward` and of the head.
pub fn converse(
    head: &dyn Head,
    request: &Request,
    context_tokens: u32,
    forward: &mut dyn FnMut(&[u32]) -> Result<Read, EngineError>,
    each: &mut dyn FnMut(Step) -> bool,
) -> Result<Option<Completion>, EngineError> {
    let mut next = head.encode(&request.prompt)?;
    let got = u32::try_from(next.len()).unwrap_or(u32::MAX);
    let limit = request.prompt_tokens_max.min(context_tokens.saturating_sub(1));
    if got > limit {
        return Err(EngineError::PromptTooLong { got, limit });
    }
    let mut completion = head.completion(request, got, context_tokens);
    let mut adapter = None;
    let reason = loop {
        if let Some(reason) = completion.finish_reason() {
            break reason;
        }
        let started = Instant::now();
        let read = forward(&next)?;
        let forward_ms = since_ms(started);
        adapter = read.adapter;
        let started = Instant::now();
        let logits = head.logits(&read.hidden)?;
        let head_ms = since_ms(started);
        let started = Instant::now();
        let Some(token) = completion.choose(&logits)? else { break FinishReason::Stop };
        let choose_ms = since_ms(started);
        next = vec![token.id];
        let step = Step { token, forward_ms, head_ms, choose_ms, adapter: adapter.clone() };
        if !each(step) {
            return Ok(None);
        }
    };
    let (reason, tail, usage) = completion.finish(reason)?;
    Ok(Some(Completion { reason, tail, usage, adapter }))
}

pub(crate) fn since_ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

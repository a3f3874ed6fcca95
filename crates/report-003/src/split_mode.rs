//! Split mode: generation in two halves. A [`SplitSession`](confide_engine::SplitSession), local or
//! remote, computes hidden states, and a [`ClientHead`] chooses the tokens. The server never computes a
//! token, but it reads all of them.

pub mod frame;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use confide_engine::{AdapterReport, EngineError, FinishReason, Prompt, Request, Token, Usage};

/// The client's half of split mode: tokenizer, embeddings, LM head and sampling.
pub trait ClientHead: Send + Sync + 'static {
    /// Encodes a prompt, with its chat template, to tokens.
    ///
    /// # Errors
    /// [`EngineError::Prompt`].
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError>;

    /// Returns the embeddings of the tokens, one after the other.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if an id is not in the vocabulary.
    fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError>;

    /// Computes the logit of each token of the vocabulary from a hidden state.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the width of the hidden state is not the model's.
    fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError>;

    /// Starts a completion after `prompt_tokens` tokens, in a context of `context_tokens` tokens.
    fn start_completion<'a>(
        &'a self,
        request: &Request,
        prompt_tokens: u32,
        context_tokens: u32,
    ) -> Box<dyn TokenChooser + 'a>;
}

/// Chooses the tokens of a completion, without a transformer.
pub trait TokenChooser {
    /// Returns the reason to stop before the next token; `None` to continue.
    fn finish_reason(&self) -> Option<FinishReason>;

    /// Chooses the next token; `None` if the model ended its answer.
    ///
    /// # Errors
    /// [`EngineError::Failed`].
    fn choose_token(&mut self, logits: &[f32]) -> Result<Option<Token>, EngineError>;

    /// Ends the completion and returns the reason, the text that was held back, and the usage.
    ///
    /// # Errors
    /// [`EngineError::Failed`].
    fn finish(
        self: Box<Self>,
        reason: FinishReason,
    ) -> Result<(FinishReason, String, Usage), EngineError>;
}

/// A head that is loaded on first use. From then on, its matrices are in memory twice.
pub struct LazyClientHead {
    load: Box<dyn Fn() -> Result<Arc<dyn ClientHead>, EngineError> + Send + Sync>,
    loaded: Mutex<Option<Arc<dyn ClientHead>>>,
}

impl LazyClientHead {
    /// Makes a head that `load` loads on first use.
    pub fn new(
        load: impl Fn() -> Result<Arc<dyn ClientHead>, EngineError> + Send + Sync + 'static,
    ) -> Self {
        Self { load: Box::new(load), loaded: Mutex::default() }
    }

    /// Returns the head. The first call blocks until it is loaded.
    ///
    /// # Errors
    /// The errors of loading; a later call tries again.
    pub fn load(&self) -> Result<Arc<dyn ClientHead>, EngineError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(head) = &*loaded {
            return Ok(Arc::clone(head));
        }
        let head = (self.load)()?;
        *loaded = Some(Arc::clone(&head));
        Ok(head)
    }
}

impl fmt::Debug for LazyClientHead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LazyClientHead")
    }
}

/// The result of a forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardResult {
    /// The last token's hidden state after the last norm.
    pub hidden: Vec<f32>,
    /// The report of the adapter so far; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// A token and the time it took. The parts add up to the time between tokens, except for the work of
/// the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedToken {
    /// The token.
    pub token: Token,
    /// Milliseconds of the forward pass.
    pub forward_ms: f64,
    /// Milliseconds of the LM head.
    pub head_ms: f64,
    /// Milliseconds to choose the token and decode its text.
    pub choose_ms: f64,
    /// The report of the adapter so far; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// The end of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitCompletion {
    /// The reason why it ended.
    pub reason: FinishReason,
    /// The text that was held back until the end.
    pub tail: String,
    /// The token counts.
    pub usage: Usage,
    /// The report of the adapter; `None` without an adapter.
    pub adapter: Option<AdapterReport>,
}

/// Generates an answer. `forward` runs the model on the next tokens, and `each` receives every token
/// and returns whether to continue. Returns `None` if `each` returned `false`.
///
/// # Errors
/// The errors of `forward` and of the head.
pub fn generate_split(
    head: &dyn ClientHead,
    request: &Request,
    context_tokens: u32,
    forward: &mut dyn FnMut(&[u32]) -> Result<ForwardResult, EngineError>,
    each: &mut dyn FnMut(TimedToken) -> bool,
) -> Result<Option<SplitCompletion>, EngineError> {
    let mut next = head.encode(&request.prompt)?;
    let got = u32::try_from(next.len()).unwrap_or(u32::MAX);
    let limit = request.prompt_tokens_max.min(context_tokens.saturating_sub(1));
    if got > limit {
        return Err(EngineError::PromptTooLong { got, limit });
    }
    let mut completion = head.start_completion(request, got, context_tokens);
    let mut adapter = None;
    let reason = loop {
        if let Some(reason) = completion.finish_reason() {
            break reason;
        }
        let started = Instant::now();
        let read = forward(&next)?;
        let forward_ms = milliseconds_since(started);
        adapter = read.adapter;
        let started = Instant::now();
        let logits = head.logits(&read.hidden)?;
        let head_ms = milliseconds_since(started);
        let started = Instant::now();
        let Some(token) = completion.choose_token(&logits)? else { break FinishReason::Stop };
        let choose_ms = milliseconds_since(started);
        next = vec![token.id];
        let step = TimedToken { token, forward_ms, head_ms, choose_ms, adapter: adapter.clone() };
        if !each(step) {
            return Ok(None);
        }
    };
    let (reason, tail, usage) = completion.finish(reason)?;
    Ok(Some(SplitCompletion { reason, tail, usage, adapter }))
}

pub(crate) fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

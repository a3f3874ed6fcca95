//! The LM head of a model, for clients in split mode.

use std::{path::Path, thread};

use candle_core::{Device, Tensor};
use confide_engine::text::{ModelText, manifest::check_folder_against_manifest};
use confide_engine::{EngineError, Prompt, Request};
use rayon::ThreadPool;

use crate::{
    completion::Completion,
    config::DecoderConfig,
    engine::{SMALL_PARAMETERS, build_thread_pool, read_decoder_config},
    error::NativeError,
    weights,
};

/// The client's side of split mode: tokenizer, embedding, output matrix and sampling, without the
/// layers of the transformer.
pub struct LmHead {
    config: DecoderConfig,
    embedding: Tensor,
    output: Tensor,
    pool: ThreadPool,
    text: ModelText,
}

const EMBEDDING: &str = "model.embed_tokens.weight";
const OUTPUT: &str = "lm_head.weight";

impl LmHead {
    /// Loads the head of the model in this folder. If there is a manifest, every file is checked
    /// against it first.
    ///
    /// # Errors
    /// [`NativeError`] for the first invalid file of the folder.
    pub fn load(dir: &Path) -> Result<Self, NativeError> {
        check_folder_against_manifest(dir)?;
        let config = read_decoder_config(dir)?;
        let mut tensors =
            weights::load_tensors(dir, &config, |name| name == EMBEDDING || name == OUTPUT)?;
        let mut take = |name: &str| {
            tensors.remove(name).ok_or_else(|| NativeError::missing_tensor(name, "a matrix"))
        };
        let embedding = take(EMBEDDING)?;
        let output = if config.tied { embedding.clone() } else { take(OUTPUT)? };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let large = output.elem_count() as u64 >= SMALL_PARAMETERS;
        let pool = build_thread_pool(if large { cores } else { 1 })?;
        let text = ModelText::load(dir)?;
        Ok(Self { config, embedding, output, pool, text })
    }

    /// The hidden width `H`, in elements.
    pub fn width(&self) -> usize {
        self.config.hidden
    }

    /// Tokenises a prompt; returns at least one token.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if the prompt cannot be rendered or has no token.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, EngineError> {
        self.text.encode(prompt)
    }

    /// Returns the embeddings of tokens, `H` elements each, concatenated. Anyone with the model can
    /// recover the tokens from them.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if a number is not a token.
    pub fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        let rows = Tensor::new(ids, &Device::Cpu)
            .and_then(|ids| self.embedding.index_select(&ids, 0)?.flatten_all()?.to_vec1());
        rows.map_err(|error| EngineError::Prompt { reason: error.to_string() })
    }

    /// Computes the logits of a hidden state after the last norm.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the hidden state does not have `H` elements.
    pub fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let logits = || {
            let column = Tensor::from_slice(hidden, (hidden.len(), 1), &Device::Cpu)?;
            self.output.matmul(&column)?.squeeze(1)?.to_vec1()
        };
        self.pool.install(logits).map_err(|error: candle_core::Error| EngineError::failure(error))
    }

    /// Computes the same as [`LmHead::logits`] by a plain loop on one thread. It is the reference,
    /// and stands for a client without a matrix library.
    ///
    /// # Errors
    /// Those of [`LmHead::logits`].
    pub fn logits_by_loop(&self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        if hidden.len() != self.width() {
            let got = hidden.len();
            return Err(EngineError::failure(format!(
                "hidden state: wanted {}, got {got}",
                self.width()
            )));
        }
        let row_logit = |row: usize| {
            let row = self.output.get(row)?.to_vec1::<f32>()?;
            Ok(row.iter().zip(hidden).map(|(weight, value)| weight * value).sum())
        };
        let logits: candle_core::Result<_> = (0..self.config.vocabulary).map(row_logit).collect();
        logits.map_err(EngineError::failure)
    }

    /// Starts a completion with the sampling and stop strings of `request`, after `prompt_tokens`
    /// tokens of prompt in a context of `context_tokens`.
    pub fn completion(
        &self,
        request: &Request,
        prompt_tokens: u32,
        context_tokens: u32,
    ) -> Completion<'_> {
        let room = context_tokens.saturating_sub(prompt_tokens);
        Completion::new(&self.text, request, prompt_tokens, room)
    }
}

use std::{result, sync::Arc};

use candle_core::{Device, Result, Tensor};
use confide_engine::{AdapterReport, EngineError, Event, FinishReason, Request, Sender};
use confide_lora::{AdaptError, Projection};

use crate::{
    adapter::{Applied, Loaded},
    completion::{Choice, Completion, failed},
    model::{Cache, Change, Model},
    text::Text,
};

/// How the model reads what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Keys and values are kept: the fast path.
    Cached,
    /// Everything is computed anew for each token: the reference.
    #[cfg(test)]
    Anew,
}

/// Reads tokens and tells the hidden state and the logits after the last.
pub(crate) struct Reader {
    model: Arc<Model>,
    cache: Option<Cache>,
    /// The embeddings of what was read; the reference reads them again.
    read: Vec<Tensor>,
    adapter: Option<Applied>,
}

/// Tokens of a prompt read at once: bounds the memory of the scores and the wait for a cancel.
const PREFILL_TOKENS: usize = 256;

impl Reader {
    pub(crate) fn new(model: &Arc<Model>, reading: Reading, adapter: Option<Applied>) -> Self {
        let cache = (reading == Reading::Cached).then(|| model.cache());
        Self { model: Arc::clone(model), cache, read: Vec::new(), adapter }
    }

    /// Reads `ids` and gives the logits after the last; `None` once `cancelled` says so.
    pub(crate) fn read(
        &mut self,
        ids: &[u32],
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Vec<f32>>> {
        let embedded = self.model.embed(&Tensor::new(ids, &Device::Cpu)?)?;
        let Some(hidden) = self.read_embedded(&embedded, cancelled)? else { return Ok(None) };
        self.model.logits(&hidden)?.squeeze(0)?.to_vec1().map(Some)
    }

    /// Reads embeddings `[T, H]`, at least one, and gives the hidden state `[1, H]` after the last;
    /// `None` once `cancelled` says so.
    pub(crate) fn read_embedded(
        &mut self,
        embedded: &Tensor,
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Tensor>> {
        let Some(cache) = &mut self.cache else {
            self.read.push(embedded.clone());
            let all = Tensor::cat(&self.read, 0)?;
            let count = all.dim(0)?;
            let change = self.adapter.as_mut().map(|it| it as &mut dyn Change);
            let hidden = self.model.forward(all, (1, count), None, change)?;
            return self.last(&hidden).map(Some);
        };
        let mut hidden = embedded.clone();
        for at in (0..embedded.dim(0)?).step_by(PREFILL_TOKENS) {
            if cancelled() {
                return Ok(None);
            }
            let count = PREFILL_TOKENS.min(embedded.dim(0)? - at);
            let part = embedded.narrow(0, at, count)?;
            let change = self.adapter.as_mut().map(|it| it as &mut dyn Change);
            hidden = self.model.forward(part, (1, count), Some(cache), change)?;
        }
        self.last(&hidden).map(Some)
    }

    /// The last row, with what an adapter of the last hidden state adds. It is asked for this row
    /// only: no other one is looked at, and each answer counts.
    fn last(&mut self, hidden: &Tensor) -> Result<Tensor> {
        let last = hidden.narrow(0, hidden.dim(0)? - 1, 1)?;
        let Some(adapter) = &mut self.adapter else { return Ok(last) };
        let mut output = [(Projection::FinalHidden, last.clone())];
        adapter.change(0, &last, &mut output)?;
        let [(_, changed)] = output;
        Ok(changed)
    }

    /// Tokens that the cache holds.
    pub(crate) fn len(&self) -> usize {
        self.cache.as_ref().map_or(self.read.len(), Cache::len)
    }

    /// Forgets what was read.
    pub(crate) fn restart(&mut self) {
        self.read.clear();
        if self.cache.is_some() {
            self.cache = Some(self.model.cache());
        }
    }

    /// Why the adapter gives no further deltas, once it gives none.
    pub(crate) fn lost(&self) -> Option<&AdaptError> {
        self.adapter.as_ref().and_then(Applied::lost)
    }

    pub(crate) fn report(&self) -> Option<AdapterReport> {
        self.adapter.as_ref().map(Applied::report)
    }

    /// What an error of this reader means to whoever asked.
    pub(crate) fn error(&self, error: &candle_core::Error) -> EngineError {
        let of_adapter = self.adapter.as_ref().and_then(Applied::failure);
        of_adapter.unwrap_or_else(|| failed(error))
    }
}

/// Everything one generation needs.
pub(crate) struct Job {
    pub(crate) ids: Vec<u32>,
    pub(crate) request: Request,
    pub(crate) adapter: Option<Arc<Loaded>>,
    /// Longest completion that the context has room for.
    pub(crate) room: u32,
    pub(crate) sender: Sender,
}

/// Runs a generation to its end, whatever that is.
pub(crate) fn run(model: &Arc<Model>, text: &Text, reading: Reading, job: &Job) {
    if let Err(error) = generate(model, text, reading, job) {
        // Where the reader has gone there is nobody to tell.
        let _ = job.sender.send(Event::Failed(error));
    }
}

fn generate(
    model: &Arc<Model>,
    text: &Text,
    reading: Reading,
    job: &Job,
) -> result::Result<(), EngineError> {
    let Job { ids, request, adapter, room, sender } = job;
    let adapter = adapter.clone().map(Applied::open).transpose()?;
    let mut completion = Completion::new(text, request, ids.len() as u32, *room);
    let mut reader = Reader::new(model, reading, adapter);
    let mut next = ids.clone();
    let mut told = false;
    let reason = loop {
        if let Some(reason) = completion.ended() {
            break reason;
        }
        let read = reader.read(&next, || sender.is_cancelled());
        let Some(logits) = read.map_err(|error| reader.error(&error))? else { return Ok(()) };
        if let Some(reason) = reader.lost().filter(|_| !told) {
            told = true;
            if !sender.send(Event::AdapterLost { reason: reason.clone() }) {
                return Ok(());
            }
        }
        let Choice::Token(token) = completion.choose(&logits)? else { break FinishReason::Stop };
        next = vec![token.id];
        if !sender.send(Event::Token(token)) {
            return Ok(());
        }
    };
    let (reason, tail, usage) = completion.finish(reason)?;
    let _ = sender.send(Event::Finished { reason, tail, usage, adapter: reader.report() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{config::Config, make::Shape, model::Operations, random::Random};

    /// Llama with all that Qwen2 lacks here: its own output matrix and stretched positions.
    fn llama() -> Config {
        let mut config = Shape::Llama31_8B.config(2);
        for (field, value) in [
            ("hidden_size", 48),
            ("intermediate_size", 80),
            ("num_attention_heads", 6),
            ("num_hidden_layers", 3),
            ("num_key_value_heads", 2),
            ("vocab_size", 100),
        ] {
            config[field] = value.into();
        }
        config["rope_scaling"]["original_max_position_embeddings"] = 32.into();
        Config::parse(config.to_string().as_bytes()).expect("a configuration")
    }

    fn qwen() -> Config {
        let mut config = Shape::Tiny.config(2);
        config["vocab_size"] = 100.into();
        Config::parse(config.to_string().as_bytes()).expect("a configuration")
    }

    fn model(config: &Config, operations: Operations) -> Arc<Model> {
        let weights: HashMap<String, Tensor> = config
            .tensors()
            .into_iter()
            .map(|(name, shape)| {
                let mut random = Random::new(5, &name);
                let count = shape.iter().product();
                let values: Vec<f32> = (0..count).map(|_| random.normal() as f32 * 0.3).collect();
                (name, Tensor::from_vec(values, shape, &Device::Cpu).expect("a tensor"))
            })
            .collect();
        Arc::new(Model::new(config, weights, 400, operations).expect("a model"))
    }

    fn prompt(length: usize) -> Vec<u32> {
        let mut random = Random::new(9, "prompt");
        (0..length).map(|_| random.below(100) as u32).collect()
    }

    /// The same body for the cached path and the reference: greedy tokens and their logits.
    fn greedy(model: &Arc<Model>, reading: Reading, prompt: &[u32]) -> (Vec<u32>, Vec<Vec<f32>>) {
        let mut reader = Reader::new(model, reading, None);
        let (mut tokens, mut all, mut next) = (Vec::new(), Vec::new(), prompt.to_vec());
        for _ in 0..12 {
            let logits = reader.read(&next, || false).expect("logits").expect("not cancelled");
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            let best = best.expect("some logits") as u32;
            tokens.push(best);
            all.push(logits);
            next = vec![best];
        }
        (tokens, all)
    }

    fn assert_close(left: &[Vec<f32>], right: &[Vec<f32>]) {
        for (left, right) in left.iter().flatten().zip(right.iter().flatten()) {
            assert!((left - right).abs() <= 1e-3 * (1.0 + left.abs()), "{left} and {right}");
        }
    }

    #[test]
    fn cached_tokens_are_those_of_the_reference() {
        for config in [qwen(), llama()] {
            let model = model(&config, Operations::Fused);
            // One token, some, and more than are read at once.
            for length in [1, 7, PREFILL_TOKENS + 9] {
                let prompt = prompt(length);
                let (fast, fast_logits) = greedy(&model, Reading::Cached, &prompt);
                let (slow, slow_logits) = greedy(&model, Reading::Anew, &prompt);
                assert_eq!(fast, slow, "prompt of {length}");
                assert_close(&fast_logits, &slow_logits);
            }
        }
    }

    #[test]
    fn fused_and_differentiable_operations_agree() {
        for config in [qwen(), llama()] {
            let prompt = prompt(20);
            let [fused, plain] = [Operations::Fused, Operations::Differentiable]
                .map(|operations| greedy(&model(&config, operations), Reading::Cached, &prompt));
            assert_eq!(fused.0, plain.0);
            assert_close(&fused.1, &plain.1);
        }
    }

    #[test]
    fn a_cancelled_prompt_is_read_no_further() {
        let model = model(&qwen(), Operations::Fused);
        let mut reader = Reader::new(&model, Reading::Cached, None);
        assert_eq!(reader.read(&prompt(5), || true).expect("no error"), None);
    }
}

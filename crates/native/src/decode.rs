use std::borrow::Cow;

use candle_core::{D, Device, Result, Tensor};
use confide_engine::{EngineError, Event, FinishReason, Request, Sender, StopFilter, Token, Usage};

use crate::{
    detokenise::Detokeniser,
    model::{Cache, Model},
    sample::Sampler,
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

/// Reads tokens and tells the logits of the next one.
pub(crate) struct Reader<'a> {
    model: &'a Model,
    cache: Option<Cache>,
    read: Vec<u32>,
}

/// Tokens of a prompt read at once: bounds the memory of the scores and the wait for a cancel.
const PREFILL_TOKENS: usize = 256;

impl<'a> Reader<'a> {
    pub(crate) fn new(model: &'a Model, reading: Reading) -> Self {
        let cache = (reading == Reading::Cached).then(|| model.cache());
        Self { model, cache, read: Vec::new() }
    }

    /// Reads `ids` and gives the logits after the last; `None` once `cancelled` says so.
    pub(crate) fn read(
        &mut self,
        ids: &[u32],
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Vec<f32>>> {
        let Some(cache) = &mut self.cache else {
            self.read.extend_from_slice(ids);
            let tokens = Tensor::new(&self.read[..], &Device::Cpu)?.unsqueeze(0)?;
            return self.last_logits(&self.model.forward(&tokens, None)?).map(Some);
        };
        let mut hidden = None;
        for part in ids.chunks(PREFILL_TOKENS) {
            if cancelled() {
                return Ok(None);
            }
            let tokens = Tensor::new(part, &Device::Cpu)?.unsqueeze(0)?;
            hidden = Some(self.model.forward(&tokens, Some(cache))?);
        }
        hidden.map(|hidden| self.last_logits(&hidden)).transpose()
    }

    fn last_logits(&self, hidden: &Tensor) -> Result<Vec<f32>> {
        let last = hidden.narrow(0, hidden.dim(0)? - 1, 1)?;
        self.model.logits(&last)?.squeeze(D::Minus2)?.to_vec1()
    }
}

/// Everything one generation needs.
pub(crate) struct Job {
    pub(crate) ids: Vec<u32>,
    pub(crate) request: Request,
    /// Longest completion that the context has room for.
    pub(crate) room: u32,
    pub(crate) sender: Sender,
}

/// Runs a generation to its end, whatever that is.
pub(crate) fn run(model: &Model, text: &Text, reading: Reading, job: &Job) {
    if let Err(error) = generate(model, text, reading, job) {
        // Where the reader has gone there is nobody to tell.
        let _ = job.sender.send(Event::Failed(error));
    }
}

fn generate(
    model: &Model,
    text: &Text,
    reading: Reading,
    job: &Job,
) -> std::result::Result<(), EngineError> {
    let Job { ids, request, room, sender } = job;
    let failed = |error: &dyn std::fmt::Display| EngineError::Failed { reason: error.to_string() };
    let banned = if request.ignore_eos { text.special() } else { Default::default() };
    let mut sampler = Sampler::new(request.sampling, text.vocabulary(), banned);
    let mut detokeniser = Detokeniser::new(text.tokenizer());
    let mut stop = StopFilter::new(&request.stop);
    let mut reader = Reader::new(model, reading);
    let most = request.max_tokens.unwrap_or(u32::MAX).min(*room);
    let mut usage = Usage { prompt_tokens: ids.len() as u32, completion_tokens: 0 };
    let mut next = ids.clone();
    let reason = loop {
        if usage.completion_tokens == most {
            break FinishReason::Length;
        }
        let read = reader.read(&next, || sender.is_cancelled());
        let Some(logits) = read.map_err(|error| failed(&error))? else { return Ok(()) };
        let id = sampler.choose(&logits).ok_or_else(|| failed(&"no logit is a number"))?;
        if text.ends(id) && !request.ignore_eos {
            break FinishReason::Stop;
        }
        usage.completion_tokens += 1;
        let piece = detokeniser.push(id).map_err(|error| failed(&error))?;
        let piece = stop.push(&piece);
        if !sender.send(Event::Token(Token { id, text: Cow::Owned(piece) })) {
            return Ok(());
        }
        if stop.stopped() {
            break FinishReason::Stop;
        }
        next = vec![id];
    };
    let rest = detokeniser.finish().map_err(|error| failed(&error))?;
    let tail = stop.push(&rest) + &stop.finish();
    let reason = if stop.stopped() { FinishReason::Stop } else { reason };
    let _ = sender.send(Event::Finished { reason, tail, usage, adapter: None });
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

    fn model(config: &Config, operations: Operations) -> Model {
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
        Model::new(config, weights, 400, operations).expect("a model")
    }

    fn prompt(length: usize) -> Vec<u32> {
        let mut random = Random::new(9, "prompt");
        (0..length).map(|_| random.below(100) as u32).collect()
    }

    /// The same body for the cached path and the reference: greedy tokens and their logits.
    fn greedy(model: &Model, reading: Reading, prompt: &[u32]) -> (Vec<u32>, Vec<Vec<f32>>) {
        let mut reader = Reader::new(model, reading);
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
        let mut reader = Reader::new(&model, Reading::Cached);
        assert_eq!(reader.read(&prompt(5), || true).expect("no error"), None);
    }
}

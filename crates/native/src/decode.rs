//! Generates tokens, with a cache of keys and values or, as the reference, without one.

use std::{result, sync::Arc};

use candle_core::{Device, Result, Tensor};
use confide_engine::text::ModelText;
use confide_engine::{
    AdapterReport, EngineError, EventSender, FinishReason, GenerationEvent, Request,
};
use confide_lora::{AdaptError, Projection};

use crate::{
    adapter::{AppliedAdapter, LoadedAdapter, ReservedBudget},
    completion::{Completion, TokenChoice},
    model::{AdapterHook, BatchShape, DecoderModel, KeyValueCache},
};

/// How the model treats the tokens before the newest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheMode {
    /// Their keys and values are cached: the fast path.
    Cached,
    /// Everything is computed again for each token: the reference.
    #[cfg(test)]
    Recomputed,
}

/// Reads tokens, and returns the hidden state or the logits of the last one.
pub(crate) struct DecoderSession {
    model: Arc<DecoderModel>,
    cache: Option<KeyValueCache>,
    /// The embeddings that were read, which the reference reads again.
    read: Vec<Tensor>,
    adapter: Option<AppliedAdapter>,
}

/// The number of prompt tokens that are read at once. It limits the memory of the scores and the
/// delay of a cancel.
const PREFILL_TOKENS: usize = 256;

impl DecoderSession {
    pub(crate) fn new(
        model: &Arc<DecoderModel>,
        reading: CacheMode,
        adapter: Option<AppliedAdapter>,
    ) -> Self {
        let cache = (reading == CacheMode::Cached).then(|| model.new_cache());
        Self { model: Arc::clone(model), cache, read: Vec::new(), adapter }
    }

    /// Reads `ids` and returns the logits of the last one; `None` once `cancelled` returns true.
    pub(crate) fn forward(
        &mut self,
        ids: &[u32],
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Vec<f32>>> {
        let embedded = self.model.embed(&Tensor::new(ids, &Device::Cpu)?)?;
        let Some(hidden) = self.forward_embeddings(&embedded, cancelled)? else { return Ok(None) };
        self.model.logits(&hidden)?.squeeze(0)?.to_vec1().map(Some)
    }

    /// Reads embeddings `[T, H]`, at least one, and returns the hidden state `[1, H]` of the last
    /// one; `None` once `cancelled` returns true.
    pub(crate) fn forward_embeddings(
        &mut self,
        embedded: &Tensor,
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Tensor>> {
        let Some(cache) = &mut self.cache else {
            self.read.push(embedded.clone());
            let all = Tensor::cat(&self.read, 0)?;
            let hook = self.adapter.as_mut().map(|it| it as &mut dyn AdapterHook);
            let shape = BatchShape { sequences: 1, tokens: all.dim(0)? };
            let hidden = self.model.forward(all, shape, None, hook)?;
            return self.finish_last_row(&hidden).map(Some);
        };
        let mut hidden = embedded.clone();
        for at in (0..embedded.dim(0)?).step_by(PREFILL_TOKENS) {
            if cancelled() {
                return Ok(None);
            }
            let count = PREFILL_TOKENS.min(embedded.dim(0)? - at);
            let part = embedded.narrow(0, at, count)?;
            let hook = self.adapter.as_mut().map(|it| it as &mut dyn AdapterHook);
            let shape = BatchShape { sequences: 1, tokens: count };
            hidden = self.model.forward(part, shape, Some(cache), hook)?;
        }
        self.finish_last_row(&hidden).map(Some)
    }

    /// Returns the last row, after the adapter of the last hidden state. The adapter is applied
    /// only to this row, because no other row is used and each answer counts against its budget.
    fn finish_last_row(&mut self, hidden: &Tensor) -> Result<Tensor> {
        let last = hidden.narrow(0, hidden.dim(0)? - 1, 1)?;
        let Some(adapter) = &mut self.adapter else { return Ok(last) };
        let mut output = [(Projection::FinalHidden, last.clone())];
        adapter.add_deltas(0, &last, &mut output)?;
        let [(_, changed)] = output;
        Ok(changed)
    }

    /// The number of tokens read so far.
    #[cfg(feature = "report-003")]
    pub(crate) fn len(&self) -> usize {
        self.cache.as_ref().map_or(self.read.len(), KeyValueCache::len)
    }

    /// Discards the tokens that were read.
    #[cfg(feature = "report-003")]
    pub(crate) fn restart(&mut self) {
        self.read.clear();
        if self.cache.is_some() {
            self.cache = Some(self.model.new_cache());
        }
    }

    /// The reason why the adapter was lost; `None` while it works.
    pub(crate) fn adapter_loss(&self) -> Option<&AdaptError> {
        self.adapter.as_ref().and_then(AppliedAdapter::loss)
    }

    pub(crate) fn report(&self) -> Option<AdapterReport> {
        self.adapter.as_ref().map(AppliedAdapter::report)
    }

    /// Converts an error of this reader to the engine's error: the adapter's error, if that is the
    /// cause.
    pub(crate) fn to_engine_error(&self, error: &candle_core::Error) -> EngineError {
        let of_adapter = self.adapter.as_ref().and_then(AppliedAdapter::failure);
        of_adapter.unwrap_or_else(|| EngineError::failure(error))
    }
}

/// The parameters of one generation.
pub(crate) struct GenerationInput {
    pub(crate) ids: Vec<u32>,
    pub(crate) request: Request,
    pub(crate) adapter: Option<Arc<LoadedAdapter>>,
    /// The reserved budget, which is held until the text ends.
    pub(crate) reserved: ReservedBudget,
    /// The longest completion that fits the context and the adapter's budget, in tokens.
    pub(crate) room: u32,
    pub(crate) sender: EventSender,
}

/// Runs a generation to its end, and sends its events.
pub(crate) fn run_generation(
    model: &Arc<DecoderModel>,
    text: &ModelText,
    reading: CacheMode,
    job: &GenerationInput,
) {
    if let Err(error) = generate_tokens(model, text, reading, job) {
        // The reader may have dropped the generation.
        let _ = job.sender.send(GenerationEvent::Failed(error));
    }
}

fn generate_tokens(
    model: &Arc<DecoderModel>,
    text: &ModelText,
    reading: CacheMode,
    job: &GenerationInput,
) -> result::Result<(), EngineError> {
    let GenerationInput { ids, request, adapter, reserved, room, sender } = job;
    let open = |loaded| AppliedAdapter::open_reserved(loaded, reserved);
    let adapter = adapter.clone().map(open).transpose()?;
    let mut completion = Completion::new(text, request, ids.len() as u32, *room);
    let mut reader = DecoderSession::new(model, reading, adapter);
    let mut next = ids.clone();
    let mut told = false;
    let reason = loop {
        if let Some(reason) = completion.finish_reason() {
            break reason;
        }
        let read = reader.forward(&next, || sender.is_cancelled());
        let Some(logits) = read.map_err(|error| reader.to_engine_error(&error))? else {
            return Ok(());
        };
        if let Some(reason) = reader.adapter_loss().filter(|_| !told) {
            told = true;
            if !sender.send(GenerationEvent::AdapterLost { reason: reason.clone() }) {
                return Ok(());
            }
        }
        let TokenChoice::Token(token) = completion.choose(&logits)? else {
            break FinishReason::Stop;
        };
        next = vec![token.id];
        if !sender.send(GenerationEvent::Token(token)) {
            return Ok(());
        }
    };
    let (reason, tail, usage) = completion.finish(reason)?;
    let _ =
        sender.send(GenerationEvent::Finished { reason, tail, usage, adapter: reader.report() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use confide_engine::AdapterLossPolicy;
    use confide_lora::{
        Adapter, LoraPair, Matrix, Projection, ProjectionSite, plain::LocalAdapter,
    };

    use super::*;
    use crate::{
        adapter::NativeAdapters,
        config::DecoderConfig,
        model::OperationKind,
        specimen::{self, llama_config, qwen_config, random_prompt},
    };

    fn model(config: &DecoderConfig, operations: OperationKind) -> Arc<DecoderModel> {
        specimen::build_model(config, specimen::random_weights(config), operations)
    }

    /// Runs the same body for the cached path and the reference; returns greedy tokens and their
    /// logits.
    fn greedy(
        model: &Arc<DecoderModel>,
        reading: CacheMode,
        prompt: &[u32],
    ) -> (Vec<u32>, Vec<Vec<f32>>) {
        greedy_by(DecoderSession::new(model, reading, None), prompt)
    }

    fn greedy_by(mut reader: DecoderSession, prompt: &[u32]) -> (Vec<u32>, Vec<Vec<f32>>) {
        let (mut tokens, mut all, mut next) = (Vec::new(), Vec::new(), prompt.to_vec());
        for _ in 0..12 {
            let logits = reader.forward(&next, || false).expect("logits").expect("not cancelled");
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
        for config in [qwen_config(), llama_config()] {
            let model = model(&config, OperationKind::Fused);
            // Prompts of one token, of some, and of more than are read at once.
            for length in [1, 7, PREFILL_TOKENS + 9] {
                let prompt = random_prompt(length);
                let (fast, fast_logits) = greedy(&model, CacheMode::Cached, &prompt);
                let (slow, slow_logits) = greedy(&model, CacheMode::Recomputed, &prompt);
                assert_eq!(fast, slow, "prompt of {length}");
                assert_close(&fast_logits, &slow_logits);
            }
        }
    }

    #[test]
    fn fused_and_differentiable_operations_agree() {
        for config in [qwen_config(), llama_config()] {
            let prompt = random_prompt(20);
            let [fused, plain] = [OperationKind::Fused, OperationKind::Differentiable]
                .map(|operations| greedy(&model(&config, operations), CacheMode::Cached, &prompt));
            assert_eq!(fused.0, plain.0);
            assert_close(&fused.1, &plain.1);
        }
    }

    #[test]
    fn a_cancelled_prompt_is_read_no_further() {
        let model = model(&qwen_config(), OperationKind::Fused);
        let mut reader = DecoderSession::new(&model, CacheMode::Cached, None);
        assert_eq!(reader.forward(&random_prompt(5), || true).expect("no error"), None);
    }

    fn apply(config: &DecoderConfig, adapter: &Adapter) -> AppliedAdapter {
        let adapters = NativeAdapters::new(config, "base");
        let local = LocalAdapter::new(Arc::new(adapter.clone()));
        adapters.load("adapted", Arc::new(local), AdapterLossPolicy::Fail).expect("it fits");
        let loaded = adapters.find("adapted").expect("it is there").expect("it is no base");
        AppliedAdapter::open(loaded).expect("it opens")
    }

    /// Computes `scale · B · A` in float64, `[output, input]`.
    fn product(pair: &LoraPair) -> Tensor {
        let tensor = |matrix: &Matrix| {
            let values: Vec<f64> = matrix.values.iter().map(|it| f64::from(*it)).collect();
            Tensor::from_vec(values, (matrix.rows, matrix.columns), &Device::Cpu)
        };
        let (a, b) = (tensor(&pair.a).expect("A"), tensor(&pair.b).expect("B"));
        (b.matmul(&a).expect("a product") * pair.scale).expect("a scaled product")
    }

    fn merge(config: &DecoderConfig, adapter: &Adapter) -> HashMap<String, Tensor> {
        let mut weights = specimen::random_weights(config);
        for (ProjectionSite { layer, projection }, pair) in &adapter.modules {
            let part = match projection {
                Projection::MlpGate | Projection::MlpUp | Projection::MlpDown => "mlp",
                _ => "self_attn",
            };
            let name = format!("model.layers.{layer}.{part}.{projection}.weight");
            let weight = weights.get_mut(&name).expect("a weight");
            let delta = product(pair).to_dtype(candle_core::DType::F32).expect("float32");
            *weight = (&*weight + delta).expect("a sum");
        }
        weights
    }

    #[test]
    fn an_adapter_gives_the_logits_of_a_model_that_it_is_merged_into() {
        for config in [qwen_config(), llama_config()] {
            let adapter = specimen::random_adapter(&config);
            assert_eq!(adapter.modules.len(), 7 * config.layers);
            let base = model(&config, OperationKind::Fused);
            let truth =
                specimen::build_model(&config, merge(&config, &adapter), OperationKind::Fused);
            for length in [1, 7, PREFILL_TOKENS + 9] {
                let prompt = random_prompt(length);
                let (wanted, wanted_logits) = greedy(&truth, CacheMode::Recomputed, &prompt);
                assert_ne!(wanted_logits, greedy(&base, CacheMode::Recomputed, &prompt).1);
                for reading in [CacheMode::Cached, CacheMode::Recomputed] {
                    let reader =
                        DecoderSession::new(&base, reading, Some(apply(&config, &adapter)));
                    let (tokens, logits) = greedy_by(reader, &prompt);
                    assert_eq!(tokens, wanted, "prompt of {length}, {reading:?}");
                    assert_close(&logits, &wanted_logits);
                }
            }
        }
    }

    #[test]
    fn an_adapter_of_the_last_hidden_state_is_added_to_it_alone() {
        let config = qwen_config();
        let model = model(&config, OperationKind::Fused);
        let pair = specimen::random_adapter(&config).modules
            [&ProjectionSite { layer: 0, projection: QUERY }]
            .clone();
        let site = ProjectionSite { layer: 0, projection: Projection::FinalHidden };
        let adapter = Adapter {
            name: "last".into(),
            base_model: None,
            modules: [(site, pair.clone())].into_iter().collect(),
        };
        let ids = Tensor::new(random_prompt(9), &Device::Cpu).expect("tokens");
        let embedded = model.embed(&ids).expect("embeddings");
        let hidden = |adapter| {
            let mut reader = DecoderSession::new(&model, CacheMode::Cached, adapter);
            reader
                .forward_embeddings(&embedded, || false)
                .expect("no error")
                .expect("not cancelled")
        };
        let plain = hidden(None);
        let delta = plain
            .to_dtype(candle_core::DType::F64)
            .and_then(|plain| plain.matmul(&product(&pair).t()?))
            .and_then(|delta| delta.to_dtype(candle_core::DType::F32));
        let wanted = (plain + delta.expect("a delta")).expect("a sum");
        let got = hidden(Some(apply(&config, &adapter)));
        let values = |of: Tensor| vec![of.squeeze(0).expect("a row").to_vec1().expect("values")];
        assert_close(&values(got), &values(wanted));
    }

    /// A projection that is as wide as the hidden state on both sides.
    const QUERY: Projection = Projection::Query;

    #[test]
    fn an_adapter_that_does_not_fit_is_refused_by_the_name_of_its_projection() {
        let (own, other) = (qwen_config(), llama_config());
        let adapters = NativeAdapters::new(&own, "base");
        let load = |adapter: Adapter| {
            adapters.load(
                "adapted",
                Arc::new(LocalAdapter::new(Arc::new(adapter))),
                AdapterLossPolicy::Fail,
            )
        };
        let error = load(specimen::random_adapter(&other)).expect_err("other widths");
        assert!(matches!(
            error,
            EngineError::AdapterSite { site: ProjectionSite { layer: 0, .. }, .. }
        ));
        let mut deep = specimen::random_adapter(&own);
        let pair = deep.modules[&ProjectionSite { layer: 0, projection: QUERY }].clone();
        deep.modules =
            [(ProjectionSite { layer: 2, projection: QUERY }, pair)].into_iter().collect();
        let error = load(deep).expect_err("a layer that is not there");
        assert!(matches!(
            error,
            EngineError::AdapterSite { site: ProjectionSite { layer: 2, .. }, .. }
        ));
        assert!(adapters.names().is_empty());
        assert_eq!(load(specimen::random_adapter(&own)), Ok(()));
    }
}

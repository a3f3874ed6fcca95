//! The decoder: RMS norm, rotary positions, grouped-query attention, SwiGLU.

use std::collections::HashMap;

use candle_core::{D, Device, Result, Tensor};
use candle_nn::{kv_cache::KvCache, ops, rotary_emb};
use confide_lora::Projection;

use crate::{config::DecoderConfig, rope::RotaryEmbedding};

/// A decoder: RMS norm, rotary positions, grouped-query attention, SwiGLU.
///
/// Shapes: `B` sequences of `T` tokens, hidden width `H`, `S` keys including those of the cache.
pub(crate) struct DecoderModel {
    config: DecoderConfig,
    embedding: Tensor,
    layers: Vec<DecoderLayer>,
    norm: Tensor,
    output: Tensor,
    rope: RotaryEmbedding,
    operations: OperationKind,
}

/// The kind of tensor operations. candle's fused ones are faster but silently drop gradients, so
/// training uses plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Differentiable,
    Fused,
}

/// The cached keys and values: one pair of `[kv heads, S, head_dim]` per layer.
pub(crate) struct KeyValueCache(Vec<KvCache>);

impl KeyValueCache {
    /// The number of tokens read so far.
    pub(crate) fn len(&self) -> usize {
        self.0.first().map_or(0, KvCache::current_seq_len)
    }
}

/// The sequences that are read in one pass, and the tokens of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchShape {
    pub(crate) sequences: usize,
    pub(crate) tokens: usize,
}

/// The hook by which an adapter adds to the outputs of projections in a forward pass.
pub(crate) trait AdapterHook {
    /// Adds the adapter's part. `rows` has the shape `[N, input width]`; each output belongs to a
    /// projection of these rows and has the shape `[N, output width]`.
    fn add_deltas(
        &mut self,
        layer: u32,
        rows: &Tensor,
        outputs: &mut [(Projection, Tensor)],
    ) -> Result<()>;
}

struct DecoderLayer {
    index: u32,
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    ffn_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// The step by which a cache grows, in tokens. A short chat fits one step, and a long one needs few
/// copies.
const CACHE_STEP: usize = 256;

impl DecoderModel {
    /// Builds the model from tensors by name; `positions` is the longest text that it can read, in
    /// tokens.
    pub(crate) fn new(
        config: &DecoderConfig,
        mut weights: HashMap<String, Tensor>,
        positions: usize,
        operations: OperationKind,
    ) -> Result<Self> {
        let mut take = |name: String| {
            let found = weights.remove(&name);
            found.ok_or_else(|| candle_core::Error::Msg(format!("tensor {name} is missing")))
        };
        let embedding = take("model.embed_tokens.weight".into())?;
        let layers = (0..config.layers)
            .map(|index| {
                let take = |name: &str| take(format!("model.layers.{index}.{name}"));
                DecoderLayer::new(index as u32, config.bias, take)
            })
            .collect::<Result<_>>()?;
        let norm = take("model.norm.weight".into())?;
        let output = if config.tied { embedding.clone() } else { take("lm_head.weight".into())? };
        let rope = RotaryEmbedding::new(config, positions)?;
        Ok(Self { config: config.clone(), embedding, layers, norm, output, rope, operations })
    }

    /// An empty cache for one sequence.
    pub(crate) fn new_cache(&self) -> KeyValueCache {
        KeyValueCache((0..self.layers.len()).map(|_| KvCache::new(1, CACHE_STEP)).collect())
    }

    /// The embeddings `[N, H]` of tokens, before the first layer.
    pub(crate) fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        self.embedding.index_select(&tokens.flatten_all()?, 0)
    }

    /// Reads embeddings `[B * T, H]` after the tokens in the cache and returns hidden states `[B *
    /// T, H]` after the last norm. With a cache `B` is 1.
    pub(crate) fn forward(
        &self,
        embedded: Tensor,
        shape: BatchShape,
        mut cache: Option<&mut KeyValueCache>,
        mut hook: Option<&mut (dyn AdapterHook + '_)>,
    ) -> Result<Tensor> {
        let at = cache.as_ref().map_or(0, |cache| cache.len());
        let positions = self.rope.position_range(at, shape.tokens)?;
        let mask = (shape.tokens > 1).then(|| causal_mask(shape.tokens, at)).transpose()?;
        let mut hidden = embedded;
        for (index, layer) in self.layers.iter().enumerate() {
            let own_cache = cache.as_mut().map(|cache| &mut cache.0[index]);
            let normed = self.rms_norm(&hidden, &layer.attention_norm)?;
            let projected =
                layer.project(layer.attention_projections(), &normed, hook.as_deref_mut())?;
            let read = self.attend(projected, shape, &positions, mask.as_ref(), own_cache)?;
            let [out] = layer.project(layer.output_projection(), &read, hook.as_deref_mut())?;
            hidden = (hidden + out)?;
            let normed = self.rms_norm(&hidden, &layer.ffn_norm)?;
            let [gate, up] =
                layer.project(layer.gate_projections(), &normed, hook.as_deref_mut())?;
            let gated = (gate.silu()? * up)?;
            let [down] = layer.project(layer.down_projection(), &gated, hook.as_deref_mut())?;
            hidden = (hidden + down)?;
        }
        self.rms_norm(&hidden, &self.norm)
    }

    /// Logits `[rows, vocabulary]` of hidden states `[rows, H]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        hidden.matmul(&self.output.t()?)
    }

    /// Computes the attention of `B` sequences of `T` tokens from the outputs `[query, key,
    /// value]`, each `[B * T, heads * head_dim]`. Returns `[B * T, heads * head_dim]`.
    ///
    /// The query heads that share a key head are stacked, so that grouped-query attention is one
    /// batched product without copies of the keys.
    fn attend(
        &self,
        [query, key, value]: [Tensor; 3],
        shape: BatchShape,
        positions: &(Tensor, Tensor),
        mask: Option<&Tensor>,
        cache: Option<&mut KvCache>,
    ) -> Result<Tensor> {
        let BatchShape { sequences: batch, tokens: count } = shape;
        let (heads, kv_heads, dim) =
            (self.config.heads, self.config.kv_heads, self.config.head_dim);
        let groups = heads / kv_heads;
        let split = |projected: Tensor, heads: usize| {
            projected.reshape((batch, count, heads, dim))?.transpose(1, 2)?.contiguous()
        };
        let query = self.rotate(&split(query, heads)?, positions)?;
        let key = self.rotate(&split(key, kv_heads)?, positions)?;
        let value = split(value, kv_heads)?;
        let query = query.reshape((batch * kv_heads, groups * count, dim))?;
        let key = key.reshape((batch * kv_heads, count, dim))?;
        let value = value.reshape((batch * kv_heads, count, dim))?;
        let (key, value) = match cache {
            None => (key, value),
            Some(cache) => cache.append(&key, &value)?,
        };
        let scale = 1.0 / (dim as f64).sqrt();
        let mut scores = (query.matmul(&key.transpose(1, 2)?)? * scale)?;
        if let Some(mask) = mask {
            let seen = mask.dim(1)?;
            scores = scores
                .reshape((batch * kv_heads * groups, count, seen))?
                .broadcast_add(mask)?
                .reshape((batch * kv_heads, groups * count, seen))?;
        }
        let read = self.softmax(&scores)?.matmul(&value)?;
        let read = read.reshape((batch, heads, count, dim))?.transpose(1, 2)?;
        read.reshape((batch * count, heads * dim))
    }

    fn rms_norm(&self, hidden: &Tensor, weight: &Tensor) -> Result<Tensor> {
        match self.operations {
            OperationKind::Differentiable => {
                ops::rms_norm_slow(hidden, weight, self.config.norm_epsilon)
            }
            OperationKind::Fused => ops::rms_norm(hidden, weight, self.config.norm_epsilon),
        }
    }

    fn rotate(&self, heads: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        match self.operations {
            OperationKind::Differentiable => rotary_emb::rope_slow(heads, cos, sin),
            OperationKind::Fused => rotary_emb::rope(heads, cos, sin),
        }
    }

    fn softmax(&self, scores: &Tensor) -> Result<Tensor> {
        match self.operations {
            OperationKind::Differentiable => ops::softmax(scores, D::Minus1),
            OperationKind::Fused => ops::softmax_last_dim(scores),
        }
    }
}

impl DecoderLayer {
    fn new(index: u32, bias: bool, mut take: impl FnMut(&str) -> Result<Tensor>) -> Result<Self> {
        let mut linear = |name: &str, bias: bool| {
            let weight = take(&format!("{name}.weight"))?;
            let bias = if bias { Some(take(&format!("{name}.bias"))?) } else { None };
            Ok::<_, candle_core::Error>(Linear { weight, bias })
        };
        Ok(Self {
            index,
            query: linear("self_attn.q_proj", bias)?,
            key: linear("self_attn.k_proj", bias)?,
            value: linear("self_attn.v_proj", bias)?,
            out: linear("self_attn.o_proj", false)?,
            gate: linear("mlp.gate_proj", false)?,
            up: linear("mlp.up_proj", false)?,
            down: linear("mlp.down_proj", false)?,
            attention_norm: take("input_layernorm.weight")?,
            ffn_norm: take("post_attention_layernorm.weight")?,
        })
    }

    fn attention_projections(&self) -> [(Projection, &Linear); 3] {
        let Self { query, key, value, .. } = self;
        [(Projection::Query, query), (Projection::Key, key), (Projection::Value, value)]
    }

    fn output_projection(&self) -> [(Projection, &Linear); 1] {
        [(Projection::Output, &self.out)]
    }

    fn gate_projections(&self) -> [(Projection, &Linear); 2] {
        [(Projection::MlpGate, &self.gate), (Projection::MlpUp, &self.up)]
    }

    fn down_projection(&self) -> [(Projection, &Linear); 1] {
        [(Projection::MlpDown, &self.down)]
    }

    /// Computes the outputs of projections of the same rows, and adds the adapter's part.
    fn project<const N: usize>(
        &self,
        by: [(Projection, &Linear); N],
        rows: &Tensor,
        hook: Option<&mut (dyn AdapterHook + '_)>,
    ) -> Result<[Tensor; N]> {
        let mut outputs = Vec::with_capacity(N);
        for (projection, linear) in by {
            outputs.push((projection, linear.apply(rows)?));
        }
        if let Some(hook) = hook {
            hook.add_deltas(self.index, rows, &mut outputs)?;
        }
        let outputs: Vec<Tensor> = outputs.into_iter().map(|(_, output)| output).collect();
        outputs
            .try_into()
            .map_err(|_| candle_core::Error::Msg("the number of outputs has changed".into()))
    }
}

impl Linear {
    fn apply(&self, rows: &Tensor) -> Result<Tensor> {
        let out = rows.matmul(&self.weight.t()?)?;
        match &self.bias {
            None => Ok(out),
            Some(bias) => out.broadcast_add(bias),
        }
    }
}

/// Makes the mask `[T, at + T]`: 0 for the tokens that a token may attend to, minus infinity for
/// later ones.
fn causal_mask(count: usize, at: usize) -> Result<Tensor> {
    let seen = at + count;
    let values: Vec<f32> = (0..count)
        .flat_map(|row| {
            (0..seen).map(move |column| if column <= at + row { 0.0 } else { f32::NEG_INFINITY })
        })
        .collect();
    Tensor::from_vec(values, (count, seen), &Device::Cpu)
}

use std::collections::HashMap;

use candle_core::{D, Device, Result, Tensor};
use candle_nn::{kv_cache::KvCache, ops, rotary_emb};

use crate::{config::Config, rope::Rope};

/// A decoder: RMS norm, rotary positions, grouped-query attention, SwiGLU.
///
/// Shapes: `B` sequences of `T` tokens, hidden width `H`, `S` keys including those of the cache.
pub(crate) struct Model {
    config: Config,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    output: Tensor,
    rope: Rope,
    operations: Operations,
}

/// Candle's fused operations drop gradients without a word, so training takes plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operations {
    Differentiable,
    Fused,
}

/// The keys and values of what has been read: one pair of `[kv heads, S, head_dim]` per layer.
pub(crate) struct Cache(Vec<KvCache>);

impl Cache {
    /// Tokens read so far.
    pub(crate) fn len(&self) -> usize {
        self.0.first().map_or(0, KvCache::current_seq_len)
    }
}

struct Layer {
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

/// Cache growth in tokens: a whole chat fits one step, a long one takes few copies.
const CACHE_STEP: usize = 256;

impl Model {
    /// Builds the model from tensors by name; `positions` bounds what it can read.
    pub(crate) fn new(
        config: &Config,
        mut weights: HashMap<String, Tensor>,
        positions: usize,
        operations: Operations,
    ) -> Result<Self> {
        let mut take = |name: String| {
            let found = weights.remove(&name);
            found.ok_or_else(|| candle_core::Error::Msg(format!("tensor {name} is missing")))
        };
        let embedding = take("model.embed_tokens.weight".into())?;
        let layers = (0..config.layers)
            .map(|index| {
                Layer::new(config.bias, |name| take(format!("model.layers.{index}.{name}")))
            })
            .collect::<Result<_>>()?;
        let norm = take("model.norm.weight".into())?;
        let output = match config.tied {
            true => embedding.clone(),
            false => take("lm_head.weight".into())?,
        };
        let rope = Rope::new(config, positions)?;
        Ok(Self { config: config.clone(), embedding, layers, norm, output, rope, operations })
    }

    /// An empty cache for one sequence.
    pub(crate) fn cache(&self) -> Cache {
        Cache((0..self.layers.len()).map(|_| KvCache::new(1, CACHE_STEP)).collect())
    }

    /// Reads tokens `[B, T]` after those in the cache and gives hidden states `[B * T, H]`.
    /// With a cache `B` is 1.
    pub(crate) fn forward(&self, tokens: &Tensor, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let at = cache.as_ref().map_or(0, |cache| cache.len());
        let positions = self.rope.window(at, count)?;
        let mask = if count > 1 { Some(causal_mask(count, at)?) } else { None };
        let mut hidden = self.embedding.index_select(&tokens.flatten_all()?, 0)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let own_cache = cache.as_mut().map(|cache| &mut cache.0[index]);
            let normed = self.rms_norm(&hidden, &layer.attention_norm)?;
            let normed = normed.reshape((batch, count, self.config.hidden))?;
            let read = self.attend(layer, &normed, &positions, mask.as_ref(), own_cache)?;
            hidden = (hidden + read)?;
            let normed = self.rms_norm(&hidden, &layer.ffn_norm)?;
            let gated = (layer.gate.apply(&normed)?.silu()? * layer.up.apply(&normed)?)?;
            hidden = (hidden + layer.down.apply(&gated)?)?;
        }
        self.rms_norm(&hidden, &self.norm)
    }

    /// Logits `[rows, vocabulary]` of hidden states `[rows, H]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        hidden.matmul(&self.output.t()?)
    }

    /// Attention over `[B, T, H]`; gives `[B * T, H]`.
    ///
    /// The heads that share a key head stand below each other, so that grouped-query attention is
    /// one batched product without copies of the keys.
    fn attend(
        &self,
        layer: &Layer,
        normed: &Tensor,
        positions: &(Tensor, Tensor),
        mask: Option<&Tensor>,
        cache: Option<&mut KvCache>,
    ) -> Result<Tensor> {
        let (batch, count, width) = normed.dims3()?;
        let (heads, kv_heads, dim) =
            (self.config.heads, self.config.kv_heads, self.config.head_dim);
        let groups = heads / kv_heads;
        let normed = normed.reshape((batch * count, width))?;
        let split = |projected: Tensor, heads: usize| {
            projected.reshape((batch, count, heads, dim))?.transpose(1, 2)?.contiguous()
        };
        let query = self.rotate(&split(layer.query.apply(&normed)?, heads)?, positions)?;
        let key = self.rotate(&split(layer.key.apply(&normed)?, kv_heads)?, positions)?;
        let value = split(layer.value.apply(&normed)?, kv_heads)?;
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
        layer.out.apply(&read.reshape((batch * count, heads * dim))?)
    }

    fn rms_norm(&self, hidden: &Tensor, weight: &Tensor) -> Result<Tensor> {
        match self.operations {
            Operations::Differentiable => {
                ops::rms_norm_slow(hidden, weight, self.config.norm_epsilon)
            }
            Operations::Fused => ops::rms_norm(hidden, weight, self.config.norm_epsilon),
        }
    }

    fn rotate(&self, heads: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        match self.operations {
            Operations::Differentiable => rotary_emb::rope_slow(heads, cos, sin),
            Operations::Fused => rotary_emb::rope(heads, cos, sin),
        }
    }

    fn softmax(&self, scores: &Tensor) -> Result<Tensor> {
        match self.operations {
            Operations::Differentiable => ops::softmax(scores, D::Minus1),
            Operations::Fused => ops::softmax_last_dim(scores),
        }
    }
}

impl Layer {
    fn new(bias: bool, mut take: impl FnMut(&str) -> Result<Tensor>) -> Result<Self> {
        let mut linear = |name: &str, bias: bool| {
            let weight = take(&format!("{name}.weight"))?;
            let bias = if bias { Some(take(&format!("{name}.bias"))?) } else { None };
            Ok::<_, candle_core::Error>(Linear { weight, bias })
        };
        Ok(Self {
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

/// `[T, at + T]`: 0 where a token may look, minus infinity ahead of it.
fn causal_mask(count: usize, at: usize) -> Result<Tensor> {
    let seen = at + count;
    let values: Vec<f32> = (0..count)
        .flat_map(|row| {
            (0..seen).map(move |column| if column <= at + row { 0.0 } else { f32::NEG_INFINITY })
        })
        .collect();
    Tensor::from_vec(values, (count, seen), &Device::Cpu)
}

//! The shape of a decoder, read from a model's `config.json`.

use confide_lora::{Projection, ProjectionSite, ProjectionWidth};
use serde::Deserialize;

use crate::error::NativeError;

/// The shape of a decoder, read from a `config.json` in the layout of Hugging Face.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DecoderConfig {
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ffn: usize,
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
    pub(crate) norm_epsilon: f32,
    pub(crate) rope_theta: f64,
    pub(crate) rope_scaling: Option<RopeScaling>,
    /// Whether q, k and v have a bias: Qwen2 does, Llama does not.
    pub(crate) bias: bool,
    /// Whether the output matrix is the embedding.
    pub(crate) tied: bool,
}

/// The parameters of Llama 3.1's scaled positions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct RopeScaling {
    pub(crate) factor: f64,
    pub(crate) low_freq_factor: f64,
    pub(crate) high_freq_factor: f64,
    pub(crate) original_max_position_embeddings: f64,
}

/// The largest dimension that is accepted. No known model has a larger one, and products of such
/// dimensions fit 64 bits.
const DIMENSION_MAX: usize = 1 << 20;
const LAYERS_MAX: usize = 512;

impl DecoderConfig {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        // The architecture is checked first, because another one may lack these fields.
        let kind: ModelType = serde_json::from_slice(bytes)?;
        has_qkv_bias(&kind.model_type).map_err(serde::de::Error::custom)?;
        let raw: RawConfig = serde_json::from_slice(bytes)?;
        raw.validate().map_err(serde::de::Error::custom)
    }

    /// The name and shape of every tensor, in the order in which models made here store them.
    pub(crate) fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut list = vec![("model.embed_tokens.weight".into(), vec![self.vocabulary, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize]| {
                list.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[hidden]);
            for (name, rows) in [("q", q), ("k", kv), ("v", kv)] {
                add(&format!("self_attn.{name}_proj.weight"), &[rows, hidden]);
                if self.bias {
                    add(&format!("self_attn.{name}_proj.bias"), &[rows]);
                }
            }
            add("self_attn.o_proj.weight", &[hidden, q]);
            add("post_attention_layernorm.weight", &[hidden]);
            add("mlp.gate_proj.weight", &[ffn, hidden]);
            add("mlp.up_proj.weight", &[ffn, hidden]);
            add("mlp.down_proj.weight", &[hidden, ffn]);
        }
        list.push(("model.norm.weight".into(), vec![hidden]));
        if !self.tied {
            list.push(("lm_head.weight".into(), vec![self.vocabulary, hidden]));
        }
        list
    }

    /// The widths of a projection; `None` if the model has no such layer.
    pub(crate) fn projection_width(&self, site: ProjectionSite) -> Option<ProjectionWidth> {
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (layers, input, output) = match site.projection {
            Projection::Query => (self.layers, hidden, q),
            Projection::Key | Projection::Value => (self.layers, hidden, kv),
            Projection::Output => (self.layers, q, hidden),
            Projection::MlpGate | Projection::MlpUp => (self.layers, hidden, ffn),
            Projection::MlpDown => (self.layers, ffn, hidden),
            Projection::FinalHidden => (1, hidden, hidden),
        };
        ((site.layer as usize) < layers).then_some(ProjectionWidth { input, output })
    }

    /// The number of weights.
    pub(crate) fn parameter_count(&self) -> u64 {
        self.tensor_shapes().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
    }
}

#[derive(Deserialize)]
struct ModelType {
    model_type: String,
}

/// Whether this architecture has a bias in q, k and v; an error for an architecture that is not
/// supported.
fn has_qkv_bias(model_type: &str) -> Result<bool, NativeError> {
    match model_type {
        "qwen2" => Ok(true),
        "llama" => Ok(false),
        other => Err(config_error("model_type", "qwen2 or llama", other)),
    }
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRopeScaling>,
    rope_parameters: Option<RawRopeScaling>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

/// The field `rope_scaling`, or `rope_parameters` in the format of transformers 5.
#[derive(Deserialize)]
struct RawRopeScaling {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

impl RawConfig {
    fn validate(self) -> Result<DecoderConfig, NativeError> {
        let bias = has_qkv_bias(&self.model_type)?;
        for (field, on) in [
            ("attention_bias", self.attention_bias && !bias),
            ("mlp_bias", self.mlp_bias),
            ("use_sliding_window", self.use_sliding_window),
        ] {
            if on {
                return Err(config_error(field, "false", "true"));
            }
        }
        let activation = self.hidden_act.as_deref().unwrap_or("silu");
        if activation != "silu" {
            return Err(config_error("hidden_act", "silu", activation));
        }
        let rope = self.rope_parameters.or(self.rope_scaling);
        let theta = rope.as_ref().and_then(|rope| rope.rope_theta).or(self.rope_theta);
        let config = DecoderConfig {
            hidden: self.hidden_size,
            layers: self.num_hidden_layers,
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
            head_dim: self
                .head_dim
                .unwrap_or_else(|| self.hidden_size / self.num_attention_heads.max(1)),
            ffn: self.intermediate_size,
            vocabulary: self.vocab_size,
            context: self.max_position_embeddings,
            norm_epsilon: self.rms_norm_eps,
            rope_theta: theta.unwrap_or(10_000.0),
            rope_scaling: rope.map_or(Ok(None), RawRopeScaling::validate)?,
            bias,
            tied: self.tie_word_embeddings,
        };
        config.check_sizes()
    }
}

impl DecoderConfig {
    fn check_sizes(self) -> Result<Self, NativeError> {
        for (field, size, most) in [
            ("hidden_size", self.hidden, DIMENSION_MAX),
            ("num_hidden_layers", self.layers, LAYERS_MAX),
            ("num_attention_heads", self.heads, DIMENSION_MAX),
            ("num_key_value_heads", self.kv_heads, DIMENSION_MAX),
            ("head_dim", self.head_dim, DIMENSION_MAX),
            ("intermediate_size", self.ffn, DIMENSION_MAX),
            ("vocab_size", self.vocabulary, DIMENSION_MAX),
            ("max_position_embeddings", self.context, 1 << 24),
        ] {
            if !(1..=most).contains(&size) {
                return Err(config_error(field, format!("1 to {most}"), size));
            }
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(config_error("head_dim", "an even number", self.head_dim));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of {} heads", self.heads);
            return Err(config_error("num_key_value_heads", wanted, self.kv_heads));
        }
        if !self.rope_theta.is_finite() || self.rope_theta <= 1.0 {
            return Err(config_error("rope_theta", "a number above 1", self.rope_theta));
        }
        Ok(self)
    }
}

impl RawRopeScaling {
    fn validate(self) -> Result<Option<RopeScaling>, NativeError> {
        match self.rope_type.as_deref() {
            None | Some("default") => return Ok(None),
            Some("llama3") => {}
            Some(other) => return Err(config_error("rope_type", "default or llama3", other)),
        }
        let (Some(factor), Some(low), Some(high), Some(original)) = (
            self.factor,
            self.low_freq_factor,
            self.high_freq_factor,
            self.original_max_position_embeddings,
        ) else {
            return Err(config_error("rope_scaling", "all four numbers of llama3", "fewer"));
        };
        if !(factor >= 1.0 && low > 0.0 && high > low && original >= 1.0) {
            let got = format!("{factor}, {low}, {high}, {original}");
            return Err(config_error(
                "rope_scaling",
                "factor >= 1, 0 < low < high, original >= 1",
                got,
            ));
        }
        Ok(Some(RopeScaling {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position_embeddings: original,
        }))
    }
}

fn config_error(
    field: &'static str,
    wanted: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> NativeError {
    NativeError::Config { field, wanted: wanted.to_string(), got: got.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn qwen() -> Value {
        json!({ "model_type": "qwen2", "hidden_size": 1536, "num_hidden_layers": 28,
            "num_attention_heads": 12, "num_key_value_heads": 2, "intermediate_size": 8960,
            "vocab_size": 151_936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "tie_word_embeddings": true, "eos_token_id": [1, 2] })
    }

    fn parse(value: &Value) -> Result<DecoderConfig, serde_json::Error> {
        DecoderConfig::parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_shape_of_qwen2_5_1_5b_has_its_known_number_of_weights() {
        let config = parse(&qwen()).expect("a configuration");
        // The model card of Qwen2.5-1.5B says 1.54 billion, 1.31 without the embedding.
        assert_eq!(config.parameter_count(), 1_543_714_304);
        assert_eq!((config.head_dim, config.bias), (128, true));
    }

    #[test]
    fn another_architecture_is_named_before_the_fields_that_it_lacks() {
        let gpt2 = json!({ "model_type": "gpt2", "n_embd": 768 });
        let error = parse(&gpt2).expect_err("another architecture").to_string();
        assert!(
            error.starts_with("config: model_type: wanted qwen2 or llama, got gpt2"),
            "{error}"
        );
    }

    #[test]
    fn what_the_engine_cannot_do_is_refused() {
        for (field, value) in [
            ("model_type", json!("gpt2")),
            ("hidden_act", json!("gelu")),
            ("use_sliding_window", json!(true)),
            ("num_key_value_heads", json!(5)),
            ("num_hidden_layers", json!(0)),
            ("num_hidden_layers", json!(1_000_000)),
            ("head_dim", json!(7)),
            ("num_attention_heads", json!(0)),
            ("rope_scaling", json!({ "type": "yarn", "factor": 4.0 })),
            ("rope_scaling", json!({ "rope_type": "llama3", "factor": 8.0 })),
        ] {
            let mut config = qwen();
            config[field] = value;
            assert!(parse(&config).is_err(), "{field}");
        }
    }
}

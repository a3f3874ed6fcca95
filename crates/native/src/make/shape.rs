//! The shapes of models that can be made.

use serde_json::{Value, json};

/// The models that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelShape {
    /// Half a million weights, trained on the project's own text in some seconds.
    Tiny,
    /// The shape of Qwen2.5-1.5B with random weights.
    Qwen25_1_5B,
    /// The shape of Llama-3.1-8B with random weights.
    Llama31_8B,
    /// The shape of Qwen2.5-14B with random weights.
    Qwen25_14B,
}

impl ModelShape {
    /// All shapes.
    pub const ALL: [ModelShape; 4] =
        [ModelShape::Tiny, ModelShape::Qwen25_1_5B, ModelShape::Llama31_8B, ModelShape::Qwen25_14B];

    /// The shape's name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            ModelShape::Tiny => "tiny",
            ModelShape::Qwen25_1_5B => "qwen2.5-1.5b",
            ModelShape::Llama31_8B => "llama-3.1-8b",
            ModelShape::Qwen25_14B => "qwen2.5-14b",
        }
    }

    pub(crate) fn context_tokens(self) -> u32 {
        match self {
            ModelShape::Tiny => 512,
            ModelShape::Qwen25_1_5B => 32_768,
            ModelShape::Llama31_8B | ModelShape::Qwen25_14B => 131_072,
        }
    }

    /// The shape's `config.json`, which follows that of the published models.
    pub(crate) fn config_json(self, end_of_text: u32) -> Value {
        let mut config = self.sizes_json();
        config["hidden_act"] = json!("silu");
        config["max_position_embeddings"] = json!(self.context_tokens());
        config["torch_dtype"] = json!("bfloat16");
        config["eos_token_id"] = json!(end_of_text);
        config["use_cache"] = json!(true);
        config
    }

    /// The sizes of the shape and the constants of its family.
    fn sizes_json(self) -> Value {
        match self {
            ModelShape::Tiny => {
                let mut config = qwen2_json([128, 384, 4, 2, 2, super::tokenizer::VOCABULARY]);
                config["rope_theta"] = json!(10_000.0);
                config
            }
            ModelShape::Qwen25_1_5B => qwen2_json([1536, 8960, 12, 28, 2, 151_936]),
            ModelShape::Llama31_8B => {
                let sizes = [4096, 14_336, 32, 32, 8, 128_256];
                let mut config = family_json("llama", "LlamaForCausalLM", 500_000.0, sizes);
                config["attention_bias"] = json!(false);
                config["mlp_bias"] = json!(false);
                config["rope_scaling"] = json!({
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                });
                config
            }
            ModelShape::Qwen25_14B => {
                let mut config = qwen2_json([5120, 13_824, 40, 48, 8, 152_064]);
                config["rms_norm_eps"] = json!(1e-5);
                config["tie_word_embeddings"] = json!(false);
                config
            }
        }
    }
}

/// The configuration of a small Qwen2 model, whose output matrix is the embedding.
fn qwen2_json(sizes: [usize; 6]) -> Value {
    let mut config = family_json("qwen2", "Qwen2ForCausalLM", 1_000_000.0, sizes);
    config["rms_norm_eps"] = json!(1e-6);
    config["tie_word_embeddings"] = json!(true);
    config
}

/// The configuration of a model of any family. `sizes` are the hidden width, the feed-forward
/// width, and the numbers of heads, layers, key heads and tokens.
fn family_json(model_type: &str, architecture: &str, rope_theta: f64, sizes: [usize; 6]) -> Value {
    let [hidden, feed_forward, heads, layers, kv_heads, vocabulary] = sizes;
    json!({
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": rope_theta,
        "tie_word_embeddings": false,
        "vocab_size": vocabulary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DecoderConfig;

    #[test]
    fn every_shape_has_its_known_number_of_weights() {
        let parameters = |shape: ModelShape| {
            let config = DecoderConfig::parse(shape.config_json(2).to_string().as_bytes());
            config.expect("a configuration").parameter_count()
        };
        assert!(parameters(ModelShape::Tiny) < 1_000_000);
        assert_eq!(parameters(ModelShape::Qwen25_1_5B), 1_543_714_304);
        assert_eq!(parameters(ModelShape::Llama31_8B), 8_030_261_248);
        assert_eq!(parameters(ModelShape::Qwen25_14B), 14_770_033_664);
    }
}

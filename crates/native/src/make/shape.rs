use serde_json::{Value, json};

/// The models that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Half a million weights, trained on the project's own text in some seconds.
    Tiny,
    /// The shape of Qwen2.5-1.5B with random weights.
    Qwen25_1_5B,
    /// The shape of Llama-3.1-8B with random weights.
    Llama31_8B,
    /// The shape of Qwen2.5-14B with random weights.
    Qwen25_14B,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 4] =
        [Shape::Tiny, Shape::Qwen25_1_5B, Shape::Llama31_8B, Shape::Qwen25_14B];

    /// Its name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Tiny => "tiny",
            Shape::Qwen25_1_5B => "qwen2.5-1.5b",
            Shape::Llama31_8B => "llama-3.1-8b",
            Shape::Qwen25_14B => "qwen2.5-14b",
        }
    }

    pub(crate) fn context(self) -> u32 {
        match self {
            Shape::Tiny => 512,
            Shape::Qwen25_1_5B => 32_768,
            Shape::Llama31_8B | Shape::Qwen25_14B => 131_072,
        }
    }

    /// Its `config.json`. Sources: the `config.json` of the published models.
    pub(crate) fn config(self, end_of_text: u32) -> Value {
        let mut config = self.sizes();
        config["hidden_act"] = json!("silu");
        config["max_position_embeddings"] = json!(self.context());
        config["torch_dtype"] = json!("bfloat16");
        config["eos_token_id"] = json!(end_of_text);
        config["use_cache"] = json!(true);
        config
    }

    /// What one shape has and others do not.
    fn sizes(self) -> Value {
        match self {
            Shape::Tiny => json!({
                "architectures": ["Qwen2ForCausalLM"],
                "model_type": "qwen2",
                "hidden_size": 128,
                "intermediate_size": 384,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1e-6,
                "rope_theta": 10_000.0,
                "tie_word_embeddings": true,
                "vocab_size": super::tokenizer::VOCABULARY,
            }),
            Shape::Qwen25_1_5B => json!({
                "architectures": ["Qwen2ForCausalLM"],
                "model_type": "qwen2",
                "hidden_size": 1536,
                "intermediate_size": 8960,
                "num_attention_heads": 12,
                "num_hidden_layers": 28,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1_000_000.0,
                "tie_word_embeddings": true,
                "vocab_size": 151_936,
            }),
            Shape::Llama31_8B => json!({
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "attention_bias": false,
                "mlp_bias": false,
                "hidden_size": 4096,
                "intermediate_size": 14_336,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "num_key_value_heads": 8,
                "rms_norm_eps": 1e-5,
                "rope_theta": 500_000.0,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
                "tie_word_embeddings": false,
                "vocab_size": 128_256,
            }),
            Shape::Qwen25_14B => json!({
                "architectures": ["Qwen2ForCausalLM"],
                "model_type": "qwen2",
                "hidden_size": 5120,
                "intermediate_size": 13_824,
                "num_attention_heads": 40,
                "num_hidden_layers": 48,
                "num_key_value_heads": 8,
                "rms_norm_eps": 1e-5,
                "rope_theta": 1_000_000.0,
                "tie_word_embeddings": false,
                "vocab_size": 152_064,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_shape_has_its_known_number_of_weights() {
        let parameters = |shape: Shape| {
            let config = Config::parse(shape.config(2).to_string().as_bytes());
            config.expect("a configuration").parameters()
        };
        assert!(parameters(Shape::Tiny) < 1_000_000);
        assert_eq!(parameters(Shape::Qwen25_1_5B), 1_543_714_304);
        assert_eq!(parameters(Shape::Llama31_8B), 8_030_261_248);
        assert_eq!(parameters(Shape::Qwen25_14B), 14_770_033_664);
    }
}

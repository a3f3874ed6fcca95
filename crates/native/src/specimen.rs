//! Small models with random weights, for tests.

use std::{collections::HashMap, sync::Arc};

use candle_core::{Device, Tensor};
use confide_lora::{Adapter, LoraPair, Matrix, Projection, ProjectionSite};

use crate::{
    config::DecoderConfig,
    make::ModelShape,
    model::{DecoderModel, OperationKind},
    random::SeededRandom,
};

/// A Llama with the features that the Qwen2 model lacks: a separate output matrix and scaled
/// positions.
pub(crate) fn llama_config() -> DecoderConfig {
    let mut config = ModelShape::Llama31_8B.config_json(2);
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
    DecoderConfig::parse(config.to_string().as_bytes()).expect("a configuration")
}

pub(crate) fn qwen_config() -> DecoderConfig {
    let mut config = ModelShape::Tiny.config_json(2);
    config["vocab_size"] = 100.into();
    DecoderConfig::parse(config.to_string().as_bytes()).expect("a configuration")
}

pub(crate) fn random_weights(config: &DecoderConfig) -> HashMap<String, Tensor> {
    let random = |(name, shape): (String, Vec<usize>)| {
        let values = normal_values(&name, shape.iter().product(), 0.3);
        (name, Tensor::from_vec(values, shape, &Device::Cpu).expect("a tensor"))
    };
    config.tensor_shapes().into_iter().map(random).collect()
}

pub(crate) fn build_model(
    config: &DecoderConfig,
    weights: HashMap<String, Tensor>,
    operations: OperationKind,
) -> Arc<DecoderModel> {
    Arc::new(DecoderModel::new(config, weights, 400, operations).expect("a model"))
}

pub(crate) fn random_prompt(length: usize) -> Vec<u32> {
    let mut random = SeededRandom::new(9, "prompt");
    (0..length).map(|_| random.uniform_below(100) as u32).collect()
}

/// An adapter of every projection of every layer, with different ranks.
pub(crate) fn random_adapter(config: &DecoderConfig) -> Adapter {
    let layers = 0..config.layers as u32;
    let sites = layers
        .flat_map(|layer| Projection::ALL.map(|projection| ProjectionSite { layer, projection }));
    let pair = |site: ProjectionSite| {
        let width = config.projection_width(site).expect("a projection of the model");
        let rank = 1 + (site.layer as usize + site.projection as usize) % 4;
        let matrix = |name: &str, rows: usize, columns: usize| {
            let values = normal_values(&format!("{site} {name}"), rows * columns, 0.2);
            Matrix { rows, columns, values }
        };
        let (a, b) = (matrix("a", rank, width.input), matrix("b", width.output, rank));
        (site, LoraPair { a, b, scale: 0.7 })
    };
    Adapter { name: "specimen".into(), base_model: None, modules: sites.map(pair).collect() }
}

fn normal_values(purpose: &str, count: usize, deviation: f32) -> Vec<f32> {
    let mut random = SeededRandom::new(5, purpose);
    (0..count).map(|_| random.next_normal() as f32 * deviation).collect()
}

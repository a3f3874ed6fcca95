//! Writing of adapters in PEFT's format.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use super::{
    error::PeftError,
    limits::{CONFIG_FILE, WEIGHTS_FILE},
    tensors,
};
use crate::{
    adapter::{Adapter, LoraPair, Matrix},
    site::{Projection, ProjectionSite},
};

const STACK: &str = "model.layers.";

pub(super) fn save(adapter: &Adapter, dir: &Path) -> Result<(), PeftError> {
    if let Some(site) = adapter.modules.keys().find(|site| is_outside_peft(**site)) {
        return Err(PeftError::NotInPeft { site: *site });
    }
    let config = serde_json::to_vec_pretty(&config_json(adapter))
        .map_err(|error| PeftError::Json { reason: error.to_string() })?;
    let weights = serialize_tensors(adapter)?;
    fs::create_dir_all(dir).map_err(|error| write_error(dir, &error))?;
    // A folder without a configuration is not an adapter, so the configuration is written last.
    write_new_file(&dir.join(WEIGHTS_FILE), &weights)?;
    write_new_file(&dir.join(CONFIG_FILE), &config)
}

fn is_outside_peft(site: ProjectionSite) -> bool {
    site.projection == Projection::FinalHidden
}

/// The configuration: the rank and alpha that most modules have, and patterns for the others.
fn config_json(adapter: &Adapter) -> Value {
    let pairs = || adapter.modules.iter();
    let rank = most_frequent(pairs().map(|(_, pair)| pair.rank())).unwrap_or(8);
    let alpha_bits = most_frequent(pairs().map(|(_, pair)| alpha(pair).to_bits()));
    let default_alpha = alpha_bits.map_or(8.0, f64::from_bits);
    let other_ranks = pairs().filter(|(_, pair)| pair.rank() != rank);
    let other_alphas = pairs().filter(|(_, pair)| alpha(pair) != default_alpha);
    let path = |site: &ProjectionSite| tensors::module_path(STACK, *site);
    let ranks: BTreeMap<String, usize> =
        other_ranks.map(|(site, pair)| (path(site), pair.rank())).collect();
    let alphas: BTreeMap<String, Value> =
        other_alphas.map(|(site, pair)| (path(site), alpha_to_json(alpha(pair)))).collect();
    json!({
        "alpha_pattern": alphas,
        "base_model_name_or_path": adapter.base_model,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": alpha_to_json(default_alpha),
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": ranks,
        "revision": null,
        "target_modules": target_modules(adapter),
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": false,
    })
}

/// The names of the projections if all layers have the same ones, else the path of every module.
fn target_modules(adapter: &Adapter) -> BTreeSet<String> {
    let sites = &adapter.modules;
    let projections: BTreeSet<Projection> = sites.keys().map(|site| site.projection).collect();
    let layers: BTreeSet<u32> = sites.keys().map(|site| site.layer).collect();
    let has_all_layers =
        layers.last().is_none_or(|last| layers.len() as u64 == u64::from(*last) + 1);
    match has_all_layers && sites.len() == projections.len() * layers.len() {
        true => projections.iter().map(Projection::to_string).collect(),
        false => sites.keys().map(|site| tensors::module_path(STACK, *site)).collect(),
    }
}

/// The alpha that results in the pair's scale, rounded to an integer if it differs from one only by
/// rounding errors.
fn alpha(pair: &LoraPair) -> f64 {
    let alpha = pair.scale * pair.rank() as f64;
    let whole = alpha.round();
    if (alpha - whole).abs() <= 1e-12 * whole.abs() { whole } else { alpha }
}

/// Converts an alpha to JSON. PEFT writes whole alphas as integers.
fn alpha_to_json(value: f64) -> Value {
    let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
    if is_whole { json!(value as i64) } else { json!(value) }
}

fn most_frequent<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

fn serialize_tensors(adapter: &Adapter) -> Result<Vec<u8>, PeftError> {
    let bytes = |matrix: &Matrix| -> Vec<u8> {
        matrix.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (site, pair) in &adapter.modules {
        let module = format!("{}{}", tensors::PREFIX, tensors::module_path(STACK, *site));
        for (part, matrix) in [("lora_A", &pair.a), ("lora_B", &pair.b)] {
            let shape = vec![matrix.rows, matrix.columns];
            tensors.push((format!("{module}.{part}.weight"), shape, bytes(matrix)));
        }
    }
    let bad =
        |error: safetensors::SafeTensorError| PeftError::Weights { reason: error.to_string() };
    let views = tensors.iter().map(|(name, shape, bytes)| {
        Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(bad)?))
    });
    let views = views.collect::<Result<Vec<_>, PeftError>>()?;
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize(views, Some(metadata)).map_err(bad)
}

fn write_new_file(path: &Path, bytes: &[u8]) -> Result<(), PeftError> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => PeftError::Exists { path: path.to_path_buf() },
        _ => write_error(path, &error),
    })?;
    file.write_all(bytes).map_err(|error| write_error(path, &error))
}

fn write_error(path: &Path, error: &std::io::Error) -> PeftError {
    PeftError::Write { path: path.to_path_buf(), reason: error.to_string() }
}

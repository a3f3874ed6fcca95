//! The names of tensors, and their values in 32-bit floats.

use safetensors::{Dtype, tensor::TensorView};

use super::error::PeftError;
use crate::site::{LayerInput, ProjectionSite};

/// The prefix that PEFT adds to the base model's paths.
pub(super) const PREFIX: &str = "base_model.model.";

// The prefixes of the decoder's layers in the supported models.
pub(super) const STACKS: [&str; 5] = [
    "model.layers.",
    "layers.",
    "model.model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
];

/// The path of a projection within the base model.
pub(super) fn module_path(stack: &str, site: ProjectionSite) -> String {
    let part = match site.projection.input() {
        LayerInput::Attention | LayerInput::AttentionOutput => "self_attn",
        _ => "mlp",
    };
    format!("{stack}{}.{part}.{}", site.layer, site.projection)
}

/// Converts a tensor's values to 32-bit floats, which represent 16-bit floats exactly.
pub(super) fn to_floats(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, PeftError> {
    let data = view.data();
    let halves = || data.chunks_exact(2).map(|bytes| [bytes[0], bytes[1]]);
    let values: Vec<f32> = match view.dtype() {
        Dtype::F32 => {
            let four = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            data.chunks_exact(4).map(four).collect()
        }
        Dtype::F16 => halves().map(|bytes| half::f16::from_le_bytes(bytes).to_f32()).collect(),
        Dtype::BF16 => halves().map(|bytes| half::bf16::from_le_bytes(bytes).to_f32()).collect(),
        other => {
            return Err(PeftError::Dtype { tensor: name.into(), got: format!("{other:?}") });
        }
    };
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(index) => {
            let got = values[index].to_string();
            Err(PeftError::NotFinite { tensor: name.into(), index, got })
        }
    }
}

//! Why an adapter is refused.

use std::path::PathBuf;

use crate::site::{Input, Site};

/// Why an adapter could not be read or written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeftError {
    /// A file is missing or cannot be read.
    #[error("{path}: cannot be read: {reason}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file is longer than this reader takes.
    #[error("{path}: wanted at most {limit} bytes, got more", path = path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// The matrices are in a pickle, which can run code when it is opened.
    #[error("{path}: wanted safetensors, got a pickle, which is never opened", path = path.display())]
    Pickle {
        /// Which file.
        path: PathBuf,
    },
    /// The configuration is not JSON, or a field has another type than PEFT gives it.
    #[error("adapter_config.json: {reason}")]
    Json {
        /// What is wrong and where.
        reason: String,
    },
    /// A field has a value that is not supported, or is not known and not off.
    #[error("adapter_config.json: {field}: wanted {wanted}, got {got}")]
    Field {
        /// Which field.
        field: String,
        /// What is supported.
        wanted: &'static str,
        /// What it says.
        got: String,
    },
    /// A regular expression is malformed, or uses what Python knows and this reader does not.
    #[error("adapter_config.json: {field}: pattern {pattern:?}: {reason}")]
    Pattern {
        /// Which field.
        field: &'static str,
        /// The expression.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More of something than this reader takes.
    #[error("{what}: wanted at most {limit}, got {got}")]
    Limit {
        /// Of what.
        what: String,
        /// The limit.
        limit: u64,
        /// How many there are.
        got: u64,
    },
    /// The matrices' file is not safetensors.
    #[error("adapter_model.safetensors: {reason}")]
    Weights {
        /// What is wrong.
        reason: String,
    },
    /// A tensor that belongs to no supported projection.
    #[error("adapter_model.safetensors: {tensor}: {reason}")]
    Unexpected {
        /// Which tensor.
        tensor: String,
        /// Why it has no place.
        reason: &'static str,
    },
    /// A tensor that the configuration asks for is not there.
    #[error("adapter_model.safetensors: {tensor} is missing")]
    Missing {
        /// Which tensor.
        tensor: String,
    },
    /// The configuration does not choose a module that the file has matrices for, so PEFT would
    /// leave them out.
    #[error(
        "adapter_model.safetensors: {module} is there, but the configuration does not choose it"
    )]
    NotTargeted {
        /// Which module.
        module: String,
    },
    /// A tensor of another element type.
    #[error("{tensor}: wanted F32, F16 or BF16, got {got}")]
    Dtype {
        /// Which tensor.
        tensor: String,
        /// Its type.
        got: String,
    },
    /// A tensor of another shape.
    #[error("{tensor}: wanted shape {wanted}, got {got:?}")]
    Shape {
        /// Which tensor.
        tensor: String,
        /// The shape that fits.
        wanted: String,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A value is infinite or not a number.
    #[error("{tensor}: wanted finite values, got {got} at {index}")]
    NotFinite {
        /// Which tensor.
        tensor: String,
        /// Where, row by row.
        index: usize,
        /// The value.
        got: String,
    },
    /// Projections that read the same vector disagree about its width.
    #[error("layer {layer}: wanted one width for {input:?}, got {got} beside {wanted}")]
    InputWidth {
        /// Which layer.
        layer: u32,
        /// Which vector.
        input: Input,
        /// The first projection's width.
        wanted: usize,
        /// Another's.
        got: usize,
    },
    /// DoRA's magnitudes mean something only together with the base model's weights.
    #[error("adapter_config.json: use_dora: wanted the base model's weights to fold it, got none")]
    BaseNeeded,
    /// The base model has no such weight.
    #[error("base model: no weight for {site}")]
    BaseWeight {
        /// Which projection.
        site: Site,
    },
    /// There is an adapter in the folder already.
    #[error("{path} is there already", path = path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{path}: cannot be written: {reason}", path = path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// PEFT has no such module.
    #[error("{site}: wanted a projection of the model, which PEFT knows")]
    NotInPeft {
        /// Which site.
        site: Site,
    },
    /// The adapter has no pair that can be applied to the last hidden state.
    #[error("final-hidden: wanted q_proj of layer 0 as wide as it is long, got {got}")]
    NoFinalHidden {
        /// The value that the adapter has there.
        got: String,
    },
}

//! Errors of adapters in PEFT's files.

use std::path::PathBuf;

use crate::site::{Input, Site};

/// The reason why an adapter could not be read or written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeftError {
    /// A file is missing or cannot be read.
    #[error("{path}: cannot be read: {reason}", path = path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        reason: String,
    },
    /// A file is longer than this reader takes.
    #[error("{path}: wanted at most {limit} bytes, got more", path = path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
        /// The greatest length, in bytes.
        limit: u64,
    },
    /// The matrices are in a pickle, which can run code when it is opened.
    #[error("{path}: wanted safetensors, got a pickle, which is never opened", path = path.display())]
    Pickle {
        /// The path of the file.
        path: PathBuf,
    },
    /// The configuration is not JSON, or a field has another type than PEFT gives it.
    #[error("adapter_config.json: {reason}")]
    Json {
        /// The reason of the JSON reader, with the place.
        reason: String,
    },
    /// A field has a value that is not supported, or is not known and not off.
    #[error("adapter_config.json: {field}: wanted {wanted}, got {got}")]
    Field {
        /// The name of the field.
        field: String,
        /// The values that are supported.
        wanted: &'static str,
        /// The value of the field.
        got: String,
    },
    /// A regular expression is malformed, or uses what Python knows and this reader does not.
    #[error("adapter_config.json: {field}: pattern {pattern:?}: {reason}")]
    Pattern {
        /// The name of the field.
        field: &'static str,
        /// The regular expression.
        pattern: String,
        /// The reason why the expression is refused.
        reason: String,
    },
    /// The adapter has more of something than this reader takes.
    #[error("{what}: wanted at most {limit}, got {got}")]
    Limit {
        /// The quantity that is limited.
        what: String,
        /// The greatest value that is allowed.
        limit: u64,
        /// The value that was found.
        got: u64,
    },
    /// The matrices' file is not safetensors.
    #[error("adapter_model.safetensors: {reason}")]
    Weights {
        /// The reason of the safetensors reader.
        reason: String,
    },
    /// A tensor belongs to no supported projection.
    #[error("adapter_model.safetensors: {tensor}: {reason}")]
    Unexpected {
        /// The name of the tensor.
        tensor: String,
        /// The reason why the tensor has no place.
        reason: &'static str,
    },
    /// A tensor that the configuration asks for is not there.
    #[error("adapter_model.safetensors: {tensor} is missing")]
    Missing {
        /// The name of the tensor.
        tensor: String,
    },
    /// The configuration does not choose a module that the file has matrices for, so PEFT would
    /// leave them out.
    #[error(
        "adapter_model.safetensors: {module} is there, but the configuration does not choose it"
    )]
    NotTargeted {
        /// The path of the module.
        module: String,
    },
    /// A tensor has another element type.
    #[error("{tensor}: wanted F32, F16 or BF16, got {got}")]
    Dtype {
        /// The name of the tensor.
        tensor: String,
        /// The element type of the tensor.
        got: String,
    },
    /// A tensor has another shape.
    #[error("{tensor}: wanted shape {wanted}, got {got:?}")]
    Shape {
        /// The name of the tensor.
        tensor: String,
        /// The shape that fits.
        wanted: String,
        /// The shape of the tensor.
        got: Vec<usize>,
    },
    /// A value is infinite or not a number.
    #[error("{tensor}: wanted finite values, got {got} at {index}")]
    NotFinite {
        /// The name of the tensor.
        tensor: String,
        /// The index of the value, row by row.
        index: usize,
        /// The value, as text.
        got: String,
    },
    /// Projections that read the same vector disagree about its width.
    #[error("layer {layer}: wanted one width for {input:?}, got {got} and {wanted}")]
    InputWidth {
        /// The layer, from 0.
        layer: u32,
        /// The vector that the projections read.
        input: Input,
        /// The width of the first projection.
        wanted: usize,
        /// The width of another projection.
        got: usize,
    },
    /// DoRA's magnitudes mean something only together with the base model's weights.
    #[error("adapter_config.json: use_dora: wanted the base model's weights to fold it, got none")]
    BaseNeeded,
    /// The base model has no such weight.
    #[error("base model: wanted a weight for {site}, got none")]
    BaseWeight {
        /// The projection whose weight is missing.
        site: Site,
    },
    /// There is an adapter in the folder already.
    #[error("{path} exists already", path = path.display())]
    Exists {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{path}: cannot be written: {reason}", path = path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        reason: String,
    },
    /// PEFT has no module for this projection.
    #[error("{site}: wanted a projection of the model that PEFT has a module for")]
    NotInPeft {
        /// The layer and the projection.
        site: Site,
    },
    /// The adapter has no pair that can be applied to the last hidden state.
    #[error("final-hidden: wanted q_proj of layer 0 as wide as it is long, got {got}")]
    NoFinalHidden {
        /// The value that the adapter has there.
        got: String,
    },
}

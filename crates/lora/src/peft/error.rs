//! Errors of adapters in PEFT's files.

use std::path::PathBuf;

use crate::site::{LayerInput, ProjectionSite};

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
    /// A file is longer than the limit.
    #[error("{path}: wanted at most {limit} bytes, got more", path = path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
        /// The greatest length, in bytes.
        limit: u64,
    },
    /// The matrices are in a pickle, which can run code when it is opened.
    #[error("{path}: wanted safetensors, got a pickle, which could run code and is not opened", path = path.display())]
    Pickle {
        /// The path of the file.
        path: PathBuf,
    },
    /// The configuration is not JSON, or a field does not have the type that PEFT writes.
    #[error("adapter_config.json: {reason}")]
    Json {
        /// The message of the JSON parser, with the position.
        reason: String,
    },
    /// A field has a value that is not supported, or an unknown field is set.
    #[error("adapter_config.json: {field}: wanted {wanted}, got {got}")]
    Field {
        /// The name of the field.
        field: String,
        /// The values that are supported.
        wanted: &'static str,
        /// The value of the field.
        got: String,
    },
    /// A regular expression is malformed, or uses a feature of Python's that is not supported here.
    #[error("adapter_config.json: {field}: pattern {pattern:?}: {reason}")]
    Pattern {
        /// The name of the field.
        field: &'static str,
        /// The regular expression.
        pattern: String,
        /// The reason why the expression is refused.
        reason: String,
    },
    /// A quantity of the adapter exceeds its limit.
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
        /// The message of the safetensors parser.
        reason: String,
    },
    /// A tensor does not belong to a supported projection.
    #[error("adapter_model.safetensors: {tensor}: {reason}")]
    Unexpected {
        /// The name of the tensor.
        tensor: String,
        /// The reason why the tensor is refused.
        reason: &'static str,
    },
    /// A tensor that the configuration requires is missing.
    #[error("adapter_model.safetensors: {tensor} is missing")]
    Missing {
        /// The name of the tensor.
        tensor: String,
    },
    /// The configuration does not choose a module that the file has matrices for, so PEFT would
    /// leave them out.
    #[error("adapter_model.safetensors: has {module}, which target_modules does not select")]
    NotTargeted {
        /// The path of the module.
        module: String,
    },
    /// A tensor has an unsupported element type.
    #[error("{tensor}: wanted F32, F16 or BF16, got {got}")]
    Dtype {
        /// The name of the tensor.
        tensor: String,
        /// The element type of the tensor.
        got: String,
    },
    /// A tensor has the wrong shape.
    #[error("{tensor}: wanted shape {wanted}, got {got:?}")]
    Shape {
        /// The name of the tensor.
        tensor: String,
        /// The shape that is required.
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
        input: LayerInput,
        /// The width of the first projection.
        wanted: usize,
        /// The width of another projection.
        got: usize,
    },
    /// The adapter uses DoRA, whose magnitudes need the base model's weights.
    #[error("adapter_config.json: use_dora: wanted the base model's weights to fold it, got none")]
    BaseNeeded,
    /// The base model has no such weight.
    #[error("base model: wanted a weight for {site}, got none")]
    BaseWeight {
        /// The projection whose weight is missing.
        site: ProjectionSite,
    },
    /// The folder already has an adapter.
    #[error("{path} already exists", path = path.display())]
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
    #[error("{site}: PEFT has no module for this projection")]
    NotInPeft {
        /// The layer and the projection.
        site: ProjectionSite,
    },
    /// The adapter has no pair that can be applied to the last hidden state.
    #[error("final-hidden: wanted q_proj of layer 0 with equal input and output widths, got {got}")]
    NoFinalHidden {
        /// The shape of that pair, or its absence.
        got: String,
    },
}

impl PeftError {
    /// What to try next where no base model is at hand, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BaseNeeded => Some(
                "`confide serve --model DIR --adapter NAME=DIR` folds DoRA's magnitudes with the weights of its \
                 model; elsewhere use an adapter that was trained without use_dora",
            ),
            _ => None,
        }
    }
}

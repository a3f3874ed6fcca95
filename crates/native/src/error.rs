//! The errors of loading and making models.

use std::{fmt::Display, path::PathBuf};

use confide_engine::text::FolderError;

/// The reason why a model cannot be loaded or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// A file of the folder cannot be read or written, is malformed, or differs from the manifest.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file is shorter than its header states.
    #[error("{path} is truncated: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// The length that the header states, in bytes.
        wanted: u64,
        /// Length of the file, in bytes.
        got: u64,
    },
    /// The configuration has a value that this engine does not support.
    #[error("config: {field}: wanted {wanted}, got {got}")]
    Config {
        /// The field of `config.json`.
        field: &'static str,
        /// The supported values.
        wanted: String,
        /// The configured value.
        got: String,
    },
    /// A tensor is missing, surplus or of another shape.
    #[error("tensor {name}: wanted {wanted}, got {got}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// The shape or content that is needed.
        wanted: String,
        /// The shape or content in the files.
        got: String,
    },
    /// The folder to make exists and is not empty.
    #[error("{path} exists and is not empty")]
    Exists {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The model is too large to be trained on a CPU in seconds.
    #[error("model is too large to train on: wanted at most {limit} weights, got {parameters}")]
    TooLarge {
        /// Number of its weights.
        parameters: u64,
        /// The largest number of weights.
        limit: u64,
    },
    /// The making was cancelled; no folder with the final name was left.
    #[error("stopped before the folder was complete")]
    Cancelled,
    /// The tokenizer failed.
    #[error("tokenizer: {reason}")]
    Tokenizer {
        /// The tokenizer's error.
        reason: String,
    },
    /// The tensor library failed.
    #[error("tensors: {0}")]
    Candle(#[from] candle_core::Error),
    /// A thread could not be started.
    #[error("threads: {reason}")]
    Threads {
        /// The error of the operating system or of the thread pool.
        reason: String,
    },
}

impl NativeError {
    /// An error about a missing tensor, of which `wanted` states the expected shape or content.
    pub(crate) fn missing_tensor(name: impl Display, wanted: impl Display) -> Self {
        NativeError::Tensor {
            name: name.to_string(),
            wanted: wanted.to_string(),
            got: "none".into(),
        }
    }

    pub(crate) fn thread_pool_error(error: impl Display) -> Self {
        NativeError::Threads { reason: error.to_string() }
    }
}

impl From<tokenizers::Error> for NativeError {
    fn from(error: tokenizers::Error) -> Self {
        NativeError::Tokenizer { reason: error.to_string() }
    }
}

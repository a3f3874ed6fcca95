//! The errors of loading and making models.

use std::{fmt::Display, path::PathBuf};

use confide_engine::text::FolderError;

/// Why a model cannot be loaded or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// A file of the folder cannot be read or written, or is not what its name or the manifest says.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file ends before what its header announces.
    #[error("{path} is truncated: wanted {wanted} bytes, got {got}")]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Length by its header, in bytes.
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
    /// The folder to be made exists and is not empty.
    #[error("{path} exists and is not empty")]
    Exists {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The model is larger than one that can be trained here in seconds.
    #[error("model is too large to train on: wanted at most {limit} weights, got {parameters}")]
    TooLarge {
        /// Number of its weights.
        parameters: u64,
        /// The largest number of weights.
        limit: u64,
    },
    /// The making was cancelled; nothing is left under the final name.
    #[error("stopped before it was whole")]
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
    /// A tensor that is missing, or lacks what is wanted of it.
    pub(crate) fn missing_tensor(name: impl Display, wanted: impl Display) -> Self {
        NativeError::Tensor {
            name: name.to_string(),
            wanted: wanted.to_string(),
            got: "none".into(),
        }
    }

    pub(crate) fn threads(error: impl Display) -> Self {
        NativeError::Threads { reason: error.to_string() }
    }
}

impl From<tokenizers::Error> for NativeError {
    fn from(error: tokenizers::Error) -> Self {
        NativeError::Tokenizer { reason: error.to_string() }
    }
}

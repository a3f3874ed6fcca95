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
        /// The file.
        path: PathBuf,
        /// Its length by its header.
        wanted: u64,
        /// Its length.
        got: u64,
    },
    /// The configuration asks for what this engine cannot do.
    #[error("config: {field}: wanted {wanted}, got {got}")]
    Config {
        /// The field of `config.json`.
        field: &'static str,
        /// What is supported.
        wanted: String,
        /// What is there.
        got: String,
    },
    /// A tensor is missing, surplus or of another shape.
    #[error("tensor {name}: wanted {wanted}, got {got}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What the configuration asks for.
        wanted: String,
        /// What the files hold.
        got: String,
    },
    /// The folder to be made is there already.
    #[error("{path} exists and is not empty")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The model is larger than what can be trained here in seconds.
    #[error("model is too large to train on: wanted at most {limit} weights, got {parameters}")]
    TooLarge {
        /// Its weights.
        parameters: u64,
        /// The limit.
        limit: u64,
    },
    /// The maker was asked to stop; nothing is left under the final name.
    #[error("stopped before it was whole")]
    Cancelled,
    /// The tokenizer refused.
    #[error("tokenizer: {reason}")]
    Tokenizer {
        /// Its words.
        reason: String,
    },
    /// The tensor library refused.
    #[error("tensors: {0}")]
    Candle(#[from] candle_core::Error),
    /// A thread could not be started.
    #[error("threads: {reason}")]
    Threads {
        /// What the system said.
        reason: String,
    },
}

impl NativeError {
    /// A tensor, or what is wanted of it, that is missing.
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

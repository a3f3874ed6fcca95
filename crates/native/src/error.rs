use std::path::{Path, PathBuf};

use confide_engine::text::TextError;

/// Why a model cannot be loaded or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is longer than any file of its kind.
    #[error("{path} is too long: wanted at most {limit} bytes")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
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
    /// A file does not hold what its name says.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
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
    /// A file differs from what the manifest says of it.
    #[error("{file} is not the file of the manifest: wanted {wanted}, got {got}")]
    Manifest {
        /// The file, as the manifest names it.
        file: String,
        /// Digest or length in the manifest.
        wanted: String,
        /// Digest or length of the file.
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
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| NativeError::File { path: path.into(), source }
    }

    pub(crate) fn malformed(path: &Path, reason: impl std::fmt::Display) -> Self {
        NativeError::Malformed { path: path.into(), reason: reason.to_string() }
    }
}

impl From<tokenizers::Error> for NativeError {
    fn from(error: tokenizers::Error) -> Self {
        NativeError::Tokenizer { reason: error.to_string() }
    }
}

impl From<TextError> for NativeError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::File { path, source } => NativeError::File { path, source },
            TextError::TooLong { path, limit } => NativeError::TooLong { path, limit },
            TextError::Malformed { path, reason } => NativeError::Malformed { path, reason },
            TextError::Manifest { file, wanted, got } => {
                NativeError::Manifest { file, wanted, got }
            }
            other => NativeError::Tokenizer { reason: other.to_string() },
        }
    }
}

//! The errors of reading a model's folder.

use std::path::{Path, PathBuf};

/// The reason why a model's folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is longer than the limit for its kind.
    #[error("{path} is too long: wanted at most {limit} bytes")]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The content of a file is malformed.
    #[error("{path}: {reason}")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The first mistake in the file.
        reason: String,
    },
    /// A file differs from its entry in the manifest.
    #[error("{file} differs from the manifest: wanted {wanted}, got {got}")]
    Manifest {
        /// The file, as the manifest names it.
        file: String,
        /// The digest or length in the manifest.
        wanted: String,
        /// The digest or length of the file.
        got: String,
    },
}

impl FolderError {
    /// Makes a [`FolderError::File`] for `path`, for `map_err`.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| FolderError::File { path: path.into(), source }
    }

    /// Makes a [`FolderError::Malformed`] for `path`.
    pub fn malformed_file(path: &Path, reason: impl std::fmt::Display) -> Self {
        FolderError::Malformed { path: path.into(), reason: reason.to_string() }
    }
}

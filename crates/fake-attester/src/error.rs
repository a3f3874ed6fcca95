//! The errors of the simulation.

use std::{io, path::PathBuf};

/// The reason for which no simulated attester could be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum FakeError {
    /// The issue time is outside of the lifetime of the certificates, 2018 to 2049, like Intel's
    /// root.
    #[error("issue time: wanted Unix seconds from {first} to {last}, got {got}")]
    IssuedAt {
        /// The first allowed second, in Unix seconds.
        first: u64,
        /// The last allowed second, in Unix seconds.
        last: u64,
        /// The date that was asked for, in Unix seconds.
        got: u64,
    },
    /// The X.509 encoder returned an error.
    #[error("simulated certificate or CRL could not be encoded: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The JSON encoder returned an error.
    #[error("simulated collateral could not be encoded: {0}")]
    Json(#[from] serde_json::Error),
    /// The operating system gave no random seed.
    #[error("the operating system returned no random seed: {0}")]
    Random(getrandom::Error),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The saved state was not written by this crate.
    #[error("{} is not the state of a simulated attester: {reason}", path.display())]
    State {
        /// The path of the file.
        path: PathBuf,
        /// The fault in words.
        reason: String,
    },
    /// No guest gives such evidence through configfs-tsm.
    #[error("simulated configfs-tsm tree: wanted evidence of a guest, got {got}")]
    Tree {
        /// The kind of evidence.
        got: &'static str,
    },
    /// The simulated tree could not be mounted or taken away.
    #[error("cannot mount the simulated tree at {}: {source}", path.display())]
    Mount {
        /// The folder that the tree was to be mounted at.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

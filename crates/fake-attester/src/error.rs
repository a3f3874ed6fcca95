//! What can go wrong while simulating.

use std::{io, path::PathBuf};

/// Why no simulated attester could be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum FakeError {
    /// The certificates of this simulation live from 2018 to 2049, like Intel's root.
    #[error("issue time must be from {first} to {last} in unix seconds, got {got}")]
    IssuedAt {
        /// First allowed second.
        first: u64,
        /// Last allowed second.
        last: u64,
        /// The date that was asked for, in Unix seconds.
        got: u64,
    },
    /// The X.509 encoder refused.
    #[error("simulated certificate or CRL could not be encoded: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The DER encoder refused.
    #[error("simulated PCK extension could not be encoded: {0}")]
    Der(#[from] der::Error),
    /// The JSON encoder refused.
    #[error("simulated collateral could not be encoded: {0}")]
    Json(#[from] serde_json::Error),
    /// The operating system gave no random seed.
    #[error("no random seed from the operating system: {0}")]
    Random(getrandom::Error),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The saved state is not one of ours.
    #[error("{} is not the state of a simulated attester: {reason}", path.display())]
    State {
        /// Which file.
        path: PathBuf,
        /// What was wrong with it.
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
        /// Where.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

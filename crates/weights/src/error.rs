//! Errors of a measurement, and of the search for a model server.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why the files of a model could not be measured, or are no longer those that were measured.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file or folder could not be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path is no plain file and no folder.
    #[error("{}: wanted a plain file or a folder, got something else", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
    },
    /// The name of a file cannot be a line of the list that is hashed.
    #[error("{path:?}: wanted a name in UTF-8 without control characters and backslashes")]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// A folder has no files.
    #[error("{}: wanted a model's files, got none", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A folder has more files, or lies deeper, than is read.
    #[error("{}: wanted at most {limit} {of}, got more", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// The limit.
        limit: usize,
        /// What is limited.
        of: &'static str,
    },
    /// A file is not the one that was measured, or has changed since or meanwhile.
    #[error("{} has changed: {what}", path.display())]
    Changed {
        /// The file or folder.
        path: PathBuf,
        /// The property that changed.
        what: &'static str,
    },
}

/// Why no model server with the measured files was found at an address.
#[derive(Debug, thiserror::Error)]
pub enum ServerProcessError {
    /// `/proc` could not be read.
    #[error("the processes of this machine cannot be read: {reason}")]
    Proc {
        /// The error.
        reason: String,
    },
    /// Nothing listens at the address.
    #[error("nothing listens at {address} on this machine")]
    NotListening {
        /// The address.
        address: SocketAddr,
    },
    /// The program that listens belongs to somebody whose processes may not be read, or it is one
    /// that started this process, such as a service manager.
    #[error(
        "the process that listens at {address} cannot be seen: run the gateway as the same user or \
         as root, in the same PID namespace, and not as its child"
    )]
    NotVisible {
        /// The address.
        address: SocketAddr,
    },
    /// Programs that have nothing to do with each other listen at one address.
    #[error("several programs listen at {address}: processes {one} and {other}")]
    SeveralPrograms {
        /// The address.
        address: SocketAddr,
        /// A process.
        one: i32,
        /// A process that is not its parent or child.
        other: i32,
    },
    /// The program has none of the measured files open, and was not seen with one.
    #[error(
        "the model server (process {pid}) has none of the measured files open or mapped, and was not \
         seen with one; one that closes them once they are loaded has to start after the gateway"
    )]
    NotOpen {
        /// The process that listens.
        pid: i32,
    },
    /// The program has a file of weights open that was not measured.
    #[error(
        "the model server (process {pid}) has weights open that were not measured: {}",
        path.display()
    )]
    OtherWeights {
        /// The process that has it open.
        pid: i32,
        /// The file.
        path: PathBuf,
    },
}

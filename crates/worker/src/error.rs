//! The errors of starting and running a worker.

use std::{path::PathBuf, time::Duration};

use confide_engine::text::FolderError;

use crate::frame::FrameError;

/// Why there is no worker, or none any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The model's folder gives no text.
    #[error(transparent)]
    Text(#[from] FolderError),
    /// No such Python.
    #[error("cannot start {program}: {reason}")]
    Program {
        /// The program.
        program: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The process ended before it was ready.
    #[error("the worker did not start: {ending}")]
    Died {
        /// Its exit status, and what it said last.
        ending: String,
    },
    /// Something that took too long.
    #[error("worker: no {what} within {} s", .limit.as_secs_f32())]
    Late {
        /// What was waited for.
        what: &'static str,
        /// The longest wait for it.
        limit: Duration,
    },
    /// The private folder, the socket, or a thread.
    #[error("worker: {what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
    /// What the worker said is not its protocol.
    #[error("worker: {0}")]
    Frame(#[from] FrameError),
    /// What the worker said fits nothing that was asked.
    #[error("worker: {reason}")]
    Protocol {
        /// What is wrong.
        reason: String,
    },
    /// Another model than the one before the restart, or than the folder's tokenizer is for.
    #[error("worker: {what}: wanted {wanted}, got {got}")]
    Differs {
        /// What differs.
        what: &'static str,
        /// What it should be.
        wanted: String,
        /// What it is.
        got: String,
    },
    /// The engine is being dropped.
    #[error("worker: stopped")]
    Stopped,
}

impl WorkerError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| WorkerError::System { what, reason: error.to_string() }
    }
}

//! The errors of starting and running a worker.

use std::{path::PathBuf, time::Duration};

use confide_engine::text::FolderError;

use crate::frame::FrameError;

/// Why there is no worker, or no longer one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The model's folder cannot be used.
    #[error(transparent)]
    Text(#[from] FolderError),
    /// The program cannot be started.
    #[error("cannot start {program}: {reason}")]
    Program {
        /// Path of the program.
        program: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The process ended before it was ready.
    #[error("the worker did not start: {ending}")]
    Died {
        /// Its exit status, and its last line of standard error.
        ending: String,
    },
    /// A step took too long.
    #[error("worker: no {what} within {} s", .limit.as_secs_f32())]
    Late {
        /// What was waited for.
        what: &'static str,
        /// The longest wait for it.
        limit: Duration,
    },
    /// The private folder, the socket or a thread could not be made.
    #[error("worker: {what}: {reason}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The error of the operating system.
        reason: String,
    },
    /// The worker sent bytes that are not a frame of the protocol.
    #[error("worker: {0}")]
    Frame(#[from] FrameError),
    /// The worker sent a frame that was not expected, or closed the connection.
    #[error("worker: {reason}")]
    Protocol {
        /// What was wrong.
        reason: String,
    },
    /// The worker serves another model than before its restart, or than the folder's tokenizer is
    /// for.
    #[error("worker: {what}: wanted {wanted}, got {got}")]
    Differs {
        /// The property that differs.
        what: &'static str,
        /// Its expected value.
        wanted: String,
        /// The worker's value.
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

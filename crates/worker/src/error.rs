//! The errors of starting and running a worker.

use std::{path::PathBuf, time::Duration};

use confide_engine::text::FolderError;

use crate::frame::FrameError;

/// The reason why a worker did not start, or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The model's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The program cannot be started.
    #[error("cannot start {program}: {reason}")]
    Program {
        /// The path of the program.
        program: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The process ended before it was ready.
    #[error("the worker did not start: {ending}")]
    ProcessEnded {
        /// The process's exit status, and its last line of standard error.
        ending: String,
    },
    /// A step took too long.
    #[error("worker: no {what} within {} s", .limit.as_secs_f32())]
    TimedOut {
        /// The name of the expected event.
        what: &'static str,
        /// The longest wait.
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
    /// The worker sent an unexpected frame, or closed the connection.
    #[error("worker: {reason}")]
    Protocol {
        /// The violation of the protocol.
        reason: String,
    },
    /// The worker's model differs from the one before its restart, or from the requested one.
    #[error("worker: {what}: wanted {wanted}, got {got}")]
    Mismatch {
        /// The property that differs.
        what: &'static str,
        /// The expected value.
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

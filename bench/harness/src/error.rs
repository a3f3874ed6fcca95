//! What stops a whole run; what stops one block is recorded as a void instead.

use std::{io, path::PathBuf};

/// The reason why a record could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {error}", path = path.display())]
    Io {
        /// The action that failed: `read`, `write`, `create` or `remove`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Another run writes to the folder.
    #[error("{folder} is in use by another run", folder = folder.display())]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// Another run measures on this machine, and each would see the other.
    #[error("another run is measuring on this machine")]
    MachineInUse,
    /// The suite is not valid TOML or has an unknown key.
    #[error("suite {name} does not parse: {message}")]
    SuiteSyntax {
        /// The suite.
        name: String,
        /// The parser's message, with the line of the suite.
        message: String,
    },
    /// The suite refers to something that is not there or asks for the impossible.
    #[error("suite {name}, {place}: {message}")]
    SuiteMeaning {
        /// The suite.
        name: String,
        /// The table that is wrong.
        place: String,
        /// The mistake in that table.
        message: String,
    },
    /// No suite has this name.
    #[error("no suite is named {name}; known suites: {known}")]
    NoSuchSuite {
        /// The name.
        name: String,
        /// The names of the embedded suites.
        known: String,
    },
    /// A command of `[[prepare]]` failed.
    #[error("preparation {name} failed: {reason}")]
    Prepare {
        /// Its name in the suite.
        name: String,
        /// The reason for the failure, with the end of the log.
        reason: String,
    },
    /// A service did not get ready.
    #[error("service {name} did not become ready: {reason}")]
    Service {
        /// Its name in the suite.
        name: String,
        /// The event that came instead of the ready line.
        reason: String,
    },
    /// `{name.field}` in a command is not known.
    #[error("{place} refers to {{{key}}}, which is not defined there")]
    UnknownReference {
        /// The command.
        place: String,
        /// The reference.
        key: String,
    },
    /// A value was given for a variable that the suite does not have.
    #[error("the suite has no variable {name}")]
    UnknownVar {
        /// The name.
        name: String,
    },
    /// A program of a command was not found.
    #[error("{place} needs the program {program}, which was not found")]
    NoSuchProgram {
        /// The program.
        program: String,
        /// The command.
        place: String,
    },
    /// A record or sample file is not what this version writes.
    #[error("{path} is not a record of this version: {message}", path = path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The reason, usually the parser's message.
        message: String,
    },
    /// A record is not what the run wrote: a part differs from its chain of hashes, or a row from its samples.
    #[error("{path} was changed after the run: {part}", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The part that differs.
        part: String,
    },
    /// A run cannot be resumed, because it was started with other parameters.
    #[error("cannot resume this run: {what}: wanted {wanted}, got {got}")]
    Resume {
        /// The parameter that differs.
        what: &'static str,
        /// Its value in the interrupted run.
        wanted: String,
        /// Its value now.
        got: String,
    },
    /// The handler of SIGINT and SIGTERM could not be installed.
    #[error("cannot catch interrupts: {message}")]
    Interrupt {
        /// The error of the operating system.
        message: String,
    },
}

impl BenchError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { action, path, error }
    }
}

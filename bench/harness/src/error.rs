//! What stops a whole run; what stops one block is recorded as a void instead.

use std::{io, path::PathBuf};

/// Why no record could be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {error}", path = path.display())]
    Io {
        /// What was tried: `read`, `write`, `create`, `remove`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The suite is no valid TOML, or has an unknown key.
    #[error("suite {name} does not parse: {message}")]
    SuiteSyntax {
        /// The suite.
        name: String,
        /// What the parser said, with its line.
        message: String,
    },
    /// The suite refers to something that is not there or asks for the impossible.
    #[error("suite {name}, {place}: {message}")]
    SuiteMeaning {
        /// The suite.
        name: String,
        /// The table that is wrong.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// No suite of this name.
    #[error("no suite named {name}, known are {known}")]
    NoSuchSuite {
        /// The name.
        name: String,
        /// The embedded ones.
        known: String,
    },
    /// A command of `[[prepare]]` failed.
    #[error("preparation {name} failed: {reason}")]
    Prepare {
        /// Its name.
        name: String,
        /// How it ended.
        reason: String,
    },
    /// A service did not get ready.
    #[error("service {name} did not get ready: {reason}")]
    Service {
        /// Its name.
        name: String,
        /// What happened instead.
        reason: String,
    },
    /// `{name.field}` in a command is not known.
    #[error("{place} refers to {{{key}}}, which is not known there")]
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
    #[error("program {program} of {place} was not found")]
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
        /// What the parser said.
        message: String,
    },
    /// A run cannot go on: it is another one.
    #[error("cannot go on with this run: {what} was {wanted}, now it is {got}")]
    Resume {
        /// What differs.
        what: &'static str,
        /// Of the run that was interrupted.
        wanted: String,
        /// Of the one that was to go on.
        got: String,
    },
    /// Ctrl-C could not be caught.
    #[error("cannot catch interrupts: {message}")]
    Interrupt {
        /// What the system said.
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

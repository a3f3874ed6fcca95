//! The answer of a command, for people and for programs.

use std::process::ExitCode;

use serde_json::Value;

use crate::{error::CliError, process::print_text};

/// The same answer in both forms, with the exit status that belongs to it.
pub(crate) struct CommandReport {
    /// The lines for people, each with its end.
    pub(crate) text: String,
    /// The object for programs.
    pub(crate) json: Value,
    /// The exit status.
    pub(crate) status: u8,
}

impl CommandReport {
    /// An answer that ends the program with status 0.
    pub(crate) fn new(text: String, json: Value) -> Self {
        Self { text, json, status: 0 }
    }

    /// Prints the form that was asked for, and gives the exit status.
    pub(crate) fn print(self, as_json: bool) -> Result<ExitCode, CliError> {
        let text = if as_json { format!("{}\n", self.json) } else { self.text };
        print_text(&text).map(|()| self.status.into())
    }
}

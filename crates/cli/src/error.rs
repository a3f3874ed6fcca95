//! What the program says when it cannot do what was asked.

use std::{fmt::Display, process::ExitCode};

/// A failure with an optional hint; the hint is the program's, never the library's.
#[derive(Debug)]
pub(crate) struct CliError {
    message: String,
    hint: Option<String>,
    status: u8,
}

impl CliError {
    /// A failure that ends the program with status 2.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), hint: None, status: 2 }
    }

    /// The same failure, with what to try next.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The same failure, ending with another exit status.
    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// What went wrong, without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the failure on standard error and gives the exit status.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("confide: {}", self.message);
        if let Some(hint) = self.hint {
            eprintln!("hint: {hint}");
        }
        ExitCode::from(self.status)
    }
}

/// Reads a whole file, naming it when that fails and refusing more than `limit` bytes.
pub(crate) fn read_file(path: &std::path::Path, limit: u64) -> Result<Vec<u8>, CliError> {
    use std::io::Read;
    let shown = path.display();
    let file = std::fs::File::open(path)
        .map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(CliError::new(format!("{shown} is too long: wanted at most {limit} bytes")));
    }
    Ok(bytes)
}

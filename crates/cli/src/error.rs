//! What the program says when it cannot do what was asked.

use std::{fmt::Display, io::Write, process::ExitCode};

use serde_json::json;

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

    /// What to try next, where there is something.
    #[cfg(test)]
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints the failure on standard error, as JSON too where that was asked for, and gives the
    /// exit status.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("confide: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
        print_if_json_is_wanted("failed", &self.message, self.hint.as_deref());
        ExitCode::from(self.status)
    }
}

/// Prints what is wrong with the arguments, or the help that they ask for, and gives the exit status.
pub(crate) fn not_understood(error: &clap::Error) -> ExitCode {
    // Nobody to tell is no reason to end otherwise.
    let _ = error.print();
    if error.use_stderr() {
        let said = error.render().to_string();
        let said = said.strip_prefix("error: ").unwrap_or(&said);
        let detail = said.split("\n\n").next().unwrap_or_default();
        print_if_json_is_wanted("arguments", detail, None);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Who asked for JSON gets one object whatever happens, arguments that could not be read included.
fn print_if_json_is_wanted(reason: &str, detail: &str, hint: Option<&str>) {
    let mut given = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if given.any(|argument| argument == "--json") {
        let object = json!({
            "outcome": "error", "reason": reason, "detail": detail, "hint": hint,
        });
        let _ = writeln!(std::io::stdout(), "{object}");
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

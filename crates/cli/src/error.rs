//! Failures of the program, as they are reported on standard error and as JSON.

use std::{fmt::Display, io::Write, path::Path, process::ExitCode};

use serde_json::json;

use crate::printable::escape_terminal;

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
    pub(crate) fn with_hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The same failure, ending with another exit status.
    pub(crate) fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// The failure of a file, for `map_err`: its path, and what is wrong with it.
    pub(crate) fn in_file<E: Display>(path: &Path) -> impl Fn(E) -> Self + '_ {
        move |error| Self::new(format!("{}: {error}", path.display()))
    }

    /// The same failure, as one of a part of what was given.
    #[cfg(feature = "services")]
    pub(crate) fn in_part(self, part: &str) -> Self {
        Self { message: format!("{part}: {}", self.message), ..self }
    }

    /// The same failure, with a hint where there is one.
    pub(crate) fn with_optional_hint(self, hint: Option<&str>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// What went wrong, without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// The hint, where there is one.
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints the failure on standard error, with `--json` on standard output too, and gives the exit
    /// status.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("confide: {}", write_block(&self.message));
        if let Some(hint) = &self.hint {
            eprintln!("hint: {}", write_block(hint));
        }
        print_json_error_if_requested("failed", &self.message, self.hint.as_deref());
        ExitCode::from(self.status)
    }
}

/// Text for a terminal, whose further lines are set off: a server or a file that is quoted in it draws
/// no line of its own.
fn write_block(text: &str) -> String {
    escape_terminal(text.trim_end()).replace('\n', "\n    ")
}

/// Prints what is wrong with the arguments, or the help that they request, and gives the exit status.
pub(crate) fn report_argument_error(error: &clap::Error) -> ExitCode {
    // A closed standard error does not change the exit status.
    let _ = error.print();
    if error.use_stderr() {
        let message = error.render().to_string();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let detail = message.split("\n\n").next().unwrap_or_default();
        print_json_error_if_requested("arguments", detail, None);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// With `--json` there is one object whatever happens, even where the arguments could not be read.
fn print_json_error_if_requested(reason: &str, detail: &str, hint: Option<&str>) {
    let mut given = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if given.any(|argument| argument == "--json") {
        let object = json!({
            "outcome": "error", "reason": reason, "detail": detail, "hint": hint,
        });
        let _ = writeln!(std::io::stdout(), "{object}");
    }
}

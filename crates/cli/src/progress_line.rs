//! Progress on standard error: one line that is overwritten on a terminal, a line for each report elsewhere.

use std::io::{IsTerminal, Write};

/// The place on standard error if progress is reported.
pub(crate) struct ProgressLine {
    pub(crate) is_terminal: bool,
}

impl ProgressLine {
    /// The line of this process's standard error.
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    /// Shows a text. A closed standard error does not stop the work.
    pub(crate) fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        let _ =
            if self.is_terminal { write!(out, "\r\x1b[K{text}") } else { writeln!(out, "{text}") };
        let _ = out.flush();
    }

    /// Clears the line on a terminal.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

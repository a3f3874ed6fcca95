//! The line of progress on standard error.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

/// One line that changes at a terminal; without a terminal a line now and then, or none.
pub(super) struct ProgressBar {
    is_terminal: bool,
    every: Option<Duration>,
    last: Option<Instant>,
}

impl ProgressBar {
    /// A bar that changes every `terminal`, or writes a line every `plain` where there is no terminal.
    pub(super) fn new(terminal: Duration, plain: Option<Duration>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let every = if is_terminal { Some(terminal) } else { plain };
        Self { is_terminal, every, last: None }
    }

    /// Shows the line, where the interval since the last one has passed.
    pub(super) fn show(&mut self, line: impl FnOnce() -> String) {
        let is_due = |every| self.last.is_none_or(|last| last.elapsed() >= every);
        if !self.every.is_some_and(is_due) {
            return;
        }
        self.last = Some(Instant::now());
        let line = line();
        if self.is_terminal {
            eprint!("\r{line:<79}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Clears the line of a terminal.
    pub(super) fn clear(&self) {
        if self.is_terminal && self.last.is_some() {
            eprint!("\r{:<79}\r", "");
        }
    }
}

//! Progress on standard error.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use confide_bench::Progress;

/// A line without a terminal at most this often.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// One line that changes at a terminal, else a line now and then.
pub(super) struct Bar {
    terminal: bool,
    last: Option<Instant>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: None }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        let every = if self.terminal { Duration::from_millis(100) } else { PLAIN_EVERY };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        let line = progress.line(79);
        if self.terminal {
            eprint!("\r{line:<79}");
        } else {
            eprintln!("{line}");
        }
    }

    pub(super) fn end(&self) {
        if self.terminal && self.last.is_some() {
            eprint!("\r{:<79}\r", "");
        }
    }
}

//! How far a maker has come, on stderr, and the flag that stops it.

use std::{
    io::{IsTerminal, Write},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use confide_native::make::Progress;

use crate::{error::CliError, process};

/// One line on a terminal that is written over; a line every ten seconds elsewhere.
pub(crate) struct Meter {
    start: Instant,
    shown: Option<Instant>,
    stopped: Arc<AtomicBool>,
    terminal: bool,
}

impl Meter {
    /// Starts the clock, and watches for SIGINT and SIGTERM.
    pub(crate) fn start() -> Result<Self, CliError> {
        let terminal = std::io::stderr().is_terminal();
        Ok(Self { start: Instant::now(), shown: None, stopped: stop_flag()?, terminal })
    }

    /// Shows it, not too often; breaks once a signal asked to stop, so that the maker cleans up.
    pub(crate) fn show(&mut self, progress: Progress) -> ControlFlow<()> {
        let between = Duration::from_millis(if self.terminal { 100 } else { 10_000 });
        if self.shown.is_none_or(|shown| shown.elapsed() >= between) {
            self.shown = Some(Instant::now());
            self.write(progress);
        }
        match self.stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn write(&self, progress: Progress) {
        let (what, share) = match progress {
            Progress::Training { step, steps, loss } => {
                (format!("training: step {step} of {steps}, loss {loss:.2}"), (step, steps))
            }
            Progress::Writing { done, total } => {
                let (done, total) = ((done >> 20) as u32, (total >> 20).max(1) as u32);
                (format!("writing: {done} of {total} MiB"), (done, total))
            }
        };
        let share = f64::from(share.0) / f64::from(share.1.max(1));
        let left = self.start.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-6);
        let left = if share < 0.01 { String::new() } else { format!(", {left:.0} s left") };
        let mut out = std::io::stderr().lock();
        // Nobody to show it to is no reason to stop.
        let _ = match self.terminal {
            true => write!(out, "\r\x1b[K{what}{left}"),
            false => writeln!(out, "{what}{left}"),
        };
        let _ = out.flush();
    }
}

/// A flag that SIGINT and SIGTERM raise.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        runtime.block_on(async { process::asked_to_stop().await });
        raised.store(true, Ordering::Relaxed);
    });
    Ok(flag)
}

//! The progress of making a model or an adapter, and the flag that stops it.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use confide_native::make::MakeProgress;

use crate::{error::CliError, process::run_on_stop_signal, progress_line::ProgressLine};

/// Shows the progress ten times a second on a terminal, every ten seconds elsewhere.
pub(crate) struct ProgressMeter {
    start: Instant,
    last_shown: Option<Instant>,
    is_stopped: Arc<AtomicBool>,
    line: ProgressLine,
}

impl ProgressMeter {
    /// Starts the clock, and watches for SIGINT and SIGTERM.
    pub(crate) fn start() -> Result<Self, CliError> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        run_on_stop_signal(move || flag.store(true, Ordering::Relaxed))?;
        Ok(Self { start: Instant::now(), last_shown: None, is_stopped, line: ProgressLine::new() })
    }

    /// Shows the progress, if the last report is old enough; breaks after a signal, so that the maker cleans up.
    pub(crate) fn show(&mut self, progress: MakeProgress) -> ControlFlow<()> {
        let interval = Duration::from_millis(if self.line.is_terminal { 100 } else { 10_000 });
        if self.last_shown.is_none_or(|shown| shown.elapsed() >= interval) {
            self.last_shown = Some(Instant::now());
            self.write_line(progress);
        }
        if self.is_stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.line.clear();
    }

    fn write_line(&self, progress: MakeProgress) {
        let (work, share) = match progress {
            MakeProgress::Training { step, steps, loss } => {
                (format!("training: step {step} of {steps}, loss {loss:.2}"), (step, steps))
            }
            MakeProgress::Writing { done, total } => {
                let (done, total) = ((done >> 20) as u32, (total >> 20).max(1) as u32);
                (format!("writing: {done} of {total} MiB"), (done, total))
            }
        };
        let share = f64::from(share.0) / f64::from(share.1.max(1));
        let left = self.start.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-6);
        let left = if share < 0.01 { String::new() } else { format!(", {left:.0} s left") };
        self.line.write(&format!("{work}{left}"));
    }
}

//! Signals, processes and files of Unix. `os_windows.rs` has the same functions.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    path::Path,
    process::ExitStatus,
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tokio::{
    process::Child,
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

/// Whether a terminal shows the colours of the log.
pub(crate) const LOGS_IN_COLOUR: bool = true;

/// Status of a command that a signal ended, as shells count it: 128 and the signal's number.
const SIGNAL_STATUS: i32 = 128;

/// Raises the limit of open files: every connection is a descriptor, two with its upstream, and the
/// soft limit of many systems, 1,024, would be reached before `--connections`. Where that fails,
/// the old limit stays.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::debug!("the limit of open files stays at its soft value");
    }
}

/// Creates a new file that only its owner can access.
pub(crate) fn create_secret_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The signals that ask this process to stop, caught from the moment that this value is made.
pub(crate) struct StopSignals {
    term: SignalStream,
    int: SignalStream,
}

impl StopSignals {
    /// Catches SIGTERM and SIGINT. Must be called inside a runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        Ok(Self { term, int })
    }

    /// Resolves at the first of the signals.
    pub(crate) async fn recv(&mut self) {
        tokio::select! { _ = self.term.recv() => {}, _ = self.int.recv() => {} }
    }
}

/// Waits until a command has ended. A SIGTERM is passed on to it. A SIGINT is not: a terminal sends it to both, and
/// the command may mean to stay.
pub(crate) async fn wait_for_command(
    mut child: Child,
    mut signals: StopSignals,
) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = signals.term.recv() => terminate(&child),
            _ = signals.int.recv() => {}
        }
    }
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// The status of a command that has ended, as a shell counts it.
pub(crate) fn status_number(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| SIGNAL_STATUS + signal))
}

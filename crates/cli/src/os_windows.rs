//! Signals, processes and files of Windows: the functions of `os.rs`.

use std::{fs::File, io, path::Path, process::ExitStatus};

use tokio::{
    process::Child,
    signal::windows::{
        CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
    },
};

/// Older consoles show escape sequences as they are.
pub(crate) const LOGS_IN_COLOUR: bool = false;

/// Does nothing: sockets have no limit of their own.
pub(crate) fn raise_descriptor_limit() {}

/// Creates a new file, and warns that it has the access list of its folder: none of its own is written.
pub(crate) fn create_secret_file(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    tracing::warn!(
        folder = %path.parent().unwrap_or(path).display(),
        "on Windows a private file has the access list of its folder: anyone who may read files there can read it; \
         keep it in a folder of your own"
    );
    Ok(file)
}

/// The events of a console that ask this process to stop, caught from the moment that this value is made.
pub(crate) struct StopSignals {
    ctrl_c: CtrlC,
    ctrl_break: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl StopSignals {
    /// Catches Ctrl-C, Ctrl-Break, and the ends of the console and of the system, which leave five seconds. Must be
    /// called inside a runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        let (ctrl_c, ctrl_break) = (ctrl_c()?, ctrl_break()?);
        Ok(Self { ctrl_c, ctrl_break, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
    }

    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.ctrl_break.recv() => {}
            _ = self.close.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

/// Waits until a command has ended. Nothing is passed on to it: each event reaches all processes of the console.
pub(crate) async fn wait_for_command(
    mut child: Child,
    mut signals: StopSignals,
) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            () = signals.recv() => {}
        }
    }
}

pub(crate) fn status_number(status: ExitStatus) -> Option<i32> {
    status.code()
}

//! A stage's process ends with the process that started it, however that one ends.
//!
//! `PR_SET_PDEATHSIG` has to be set inside the child. Between `fork` and `exec` that takes unsafe
//! code, so the child first runs a program that knows [`exec_launched_program`], which sets it and becomes
//! `confide-prover`.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// First argument of a program that is to call [`exec_launched_program`].
pub const LAUNCH_WORD: &str = "launch-stage";

/// Exit status of a process that could not become the program.
pub const LAUNCH_FAILED: u8 = 127;

/// A program whose `main` calls [`exec_launched_program`] if its first argument is [`LAUNCH_WORD`].
#[derive(Clone, Debug)]
pub struct Launcher(PathBuf);

impl Launcher {
    /// Names the program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Makes a command that becomes `program`, under the name `shown`, and ends with this process.
    pub(crate) fn command(&self, program: &OsStr, shown: &OsStr) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(LAUNCH_WORD).arg(std::process::id().to_string()).arg(program).arg(shown);
        command
    }
}

/// Becomes the program that [`Launcher`] names; `arguments` are those after [`LAUNCH_WORD`].
///
/// # Errors
/// The system's message, or that the starting process is gone. It does not return where it
/// succeeds.
pub fn exec_launched_program(arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut arguments = arguments.into_iter();
    let (Some(parent), Some(program), Some(shown)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return io::Error::new(
            io::ErrorKind::InvalidInput,
            "wanted a process, a program and a name",
        );
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have ended before the signal was asked for: then nobody waits for this process.
    let started_by = getppid().map(Pid::as_raw_pid).map(|pid| pid.to_string());
    if started_by.as_deref().map(OsStr::new) != Some(&parent) {
        return io::Error::new(io::ErrorKind::NotFound, "the process that started this one ended");
    }
    Command::new(program).arg0(shown).args(arguments).exec()
}

//! `confide connect … -- COMMAND`: a command that finds the loopback address in its environment, and
//! ends the serving when it ends.

use std::{
    ffi::OsString,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

use crate::error::CliError;

/// The variable by which OpenAI's libraries find a server.
const BASE_URL: &str = "OPENAI_BASE_URL";
/// The variable without which they do not start.
pub(super) const API_KEY: &str = "OPENAI_API_KEY";
/// Its value where there is none: no gateway has issued it.
pub(super) const NO_API_KEY: &str = "none";
/// The variables that exempt hosts from proxies. A proxy would read the requests to the loopback address.
const EXEMPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Status of a command that a signal ended, as shells count it: 128 and the signal's number.
const SIGNAL_STATUS: i32 = 128;

/// A running command, and the signals that reach this process beside it.
pub(super) struct BesideCommand {
    child: Child,
    term: SignalStream,
    int: SignalStream,
}

impl BesideCommand {
    /// Starts the command, if one was given, with the variables that lead it to `address` and `more`
    /// variables.
    pub(super) fn start(
        command: &[OsString],
        address: SocketAddr,
        more: Vec<(&str, String)>,
    ) -> Result<Option<Self>, CliError> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(arguments).env(BASE_URL, format!("http://{address}/v1")).kill_on_drop(true);
        command.envs(more);
        let exempt = EXEMPTIONS.iter().find_map(|name| std::env::var(name).ok());
        let exempt = exempt.filter(|hosts| !hosts.trim().is_empty());
        let here = format!("{},127.0.0.1,localhost,::1", address.ip());
        let exempt = exempt.map_or_else(|| here.clone(), |hosts| format!("{hosts},{here}"));
        command.envs(EXEMPTIONS.map(|name| (name, &exempt)));
        if std::env::var_os(API_KEY).is_none() {
            command.env(API_KEY, NO_API_KEY);
        }
        // Before the command starts: one that ended this process in between would leave it alone.
        let term = signal(SignalKind::terminate()).map_err(CliError::new)?;
        let int = signal(SignalKind::interrupt()).map_err(CliError::new)?;
        let child = command.spawn().map_err(|error| {
            CliError::new(format!("{}: {error}", program.display()))
                .with_hint("what follows -- is the program that uses the address")
        })?;
        Ok(Some(Self { child, term, int }))
    }

    /// Waits until the command has ended. A SIGTERM is passed on to it. A SIGINT is not: a terminal
    /// sends it to both, and the command may mean to stay.
    pub(super) async fn wait(mut self) -> Result<ExitCode, CliError> {
        loop {
            tokio::select! {
                status = self.child.wait() => {
                    return status.map(exit_code).map_err(CliError::new);
                }
                _ = self.term.recv() => self.terminate(),
                _ = self.int.recv() => {}
            }
        }
    }

    fn terminate(&self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| SIGNAL_STATUS + signal);
    let code = status.code().or(signal).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

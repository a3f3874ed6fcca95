//! `confide connect … -- COMMAND`: a command that finds the loopback address in its environment, and
//! ends the serving when it ends.

use std::{ffi::OsString, net::SocketAddr, process::ExitCode};

use tokio::process::{Child, Command};

use crate::{
    error::CliError,
    os::{StopSignals, status_number, wait_for_command},
};

/// The variable by which OpenAI's libraries find a server.
const BASE_URL: &str = "OPENAI_BASE_URL";
/// The variable without which they do not start.
pub(super) const API_KEY: &str = "OPENAI_API_KEY";
/// Its value where there is none: no gateway has issued it.
pub(super) const NO_API_KEY: &str = "none";
/// The variables that exempt hosts from proxies. A proxy would read the requests to the loopback address.
const EXEMPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A running command, and the signals that reach this process beside it.
pub(super) struct BesideCommand {
    child: Child,
    signals: StopSignals,
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
        let signals = StopSignals::catch().map_err(CliError::new)?;
        let child = command.spawn().map_err(|error| {
            CliError::new(format!("{}: {error}", program.display()))
                .with_hint("what follows -- is the program that uses the address")
        })?;
        Ok(Some(Self { child, signals }))
    }

    /// Waits until the command has ended. What asks this process to stop is left to the command.
    pub(super) async fn wait(self) -> Result<ExitCode, CliError> {
        let status = wait_for_command(self.child, self.signals).await.map_err(CliError::new)?;
        let number = status_number(status).and_then(|number| u8::try_from(number).ok());
        Ok(number.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

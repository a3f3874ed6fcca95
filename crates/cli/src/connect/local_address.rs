//! The loopback address while it is served.

use std::{ffi::OsString, net::SocketAddr, process::ExitCode};

use confide_client::{AllowedOrigins, ClientLimits, RemoteEnd, VerificationSource};
use serde_json::Value;
use tokio::net::TcpListener;

use super::command::BesideCommand;
use crate::{error::CliError, process};

/// What was verified, in one line for people.
fn describe_verified(ready: &Value) -> String {
    let text = |name: &str| ready[name].as_str().unwrap_or_default();
    format!("confide: {} is verified; guarantee: {}", text("endpoint"), text("guarantee"))
}

/// The loopback address, open to local programs, or to one command.
pub(super) struct LocalAddress<'a> {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) origins: AllowedOrigins,
    pub(super) limits: ClientLimits,
    pub(super) verification: VerificationSource,
    pub(super) command: &'a [OsString],
}

impl LocalAddress<'_> {
    /// Prints the ready line, then serves until `stop` resolves or the command ends.
    pub(super) async fn serve(
        self,
        client: impl Into<RemoteEnd>,
        ready: Value,
        stop: impl Future<Output = ()>,
    ) -> Result<ExitCode, CliError> {
        let Self { listener, address, origins, limits, verification, command } = self;
        let command = BesideCommand::start(command, address)?;
        match &command {
            None => process::print_line(&ready),
            // Standard output is the command's.
            Some(_) => eprintln!("{}", describe_verified(&ready)),
        }
        let mut status = Ok(ExitCode::SUCCESS);
        let until = async {
            match command {
                None => stop.await,
                Some(command) => status = command.wait().await,
            }
        };
        let serving = confide_client::serve(listener, client, origins, limits, verification, until);
        let drained = serving.await;
        process::warn_of_cut_connections(drained);
        status
    }
}

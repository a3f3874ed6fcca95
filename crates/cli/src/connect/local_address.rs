//! The loopback address while it is served.

use std::{ffi::OsString, net::SocketAddr, process::ExitCode};

use confide_client::{AllowedOrigins, ClientLimits, RemoteEnd, VerificationSource};
use serde_json::Value;
use tokio::net::TcpListener;

use super::command::BesideCommand;
use crate::{error::CliError, process};

/// The far end, as it was verified.
pub(super) struct VerifiedEnd<'a> {
    pub(super) url: &'a str,
    pub(super) guarantee: &'a str,
    /// The ready line's further fields.
    pub(super) fields: Value,
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
    /// Prints the ready line, or one line for people where a command is started, then serves until `stop` resolves or the command ends.
    pub(super) async fn serve(
        self,
        client: impl Into<RemoteEnd>,
        verified: VerifiedEnd<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<ExitCode, CliError> {
        let Self { listener, address, origins, limits, verification, command } = self;
        let command = BesideCommand::start(command, address)?;
        let VerifiedEnd { url, guarantee, mut fields } = verified;
        match &command {
            None => {
                fields["base_url"] = format!("http://{address}/v1").into();
                process::print_ready(address, guarantee, fields);
            }
            // Standard output is the command's.
            Some(_) => eprintln!("confide: {url} is verified; guarantee: {guarantee}"),
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

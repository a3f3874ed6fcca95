//! The loopback address while it is served.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use confide_client::{AllowedOrigins, ClientLimits, ReplicaSet, VerificationSource};
use serde_json::Value;
use tokio::net::TcpListener;

use super::{
    agent::{Agent, ServerChoice},
    command::BesideCommand,
};
use crate::{error::CliError, new_file::NewFile, process};

/// The far end, as it was verified.
pub(super) struct VerifiedEnd<'a> {
    pub(super) url: &'a str,
    pub(super) guarantee: &'a str,
    /// The ready line's further fields.
    pub(super) fields: Value,
}

/// The agent that is to use the address.
#[derive(clap::Args)]
pub(super) struct AgentArgs {
    /// Print the configuration with which this coding agent uses the address, on standard error. With a
    /// COMMAND, set the variables that configure it instead (claude-code and opencode)
    #[arg(long = "for", value_name = "AGENT", value_enum, id = "agent")]
    agent: Option<Agent>,
    /// Write that configuration to this new file instead
    #[arg(long, value_name = "FILE", requires = "agent", conflicts_with = "command")]
    agent_file: Option<PathBuf>,
}

impl AgentArgs {
    /// Refuses what cannot work, before anything is sent.
    pub(super) fn check(&self, command: &[OsString]) -> Result<(), CliError> {
        let blind = self.agent.filter(|agent| !agent.reads_environment());
        match blind {
            Some(_) if !command.is_empty() => {
                Err(CliError::new("this agent reads no configuration from its environment")
                    .with_hint(
                        "run it in another terminal: without a COMMAND, --for prints what it needs",
                    ))
            }
            _ => Ok(()),
        }
    }
}

/// The loopback address, open to local programs, or to one command.
pub(super) struct LocalAddress<'a> {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) origins: AllowedOrigins,
    pub(super) limits: ClientLimits,
    pub(super) verification: VerificationSource,
    pub(super) command: &'a [OsString],
    pub(super) agent: &'a AgentArgs,
}

impl LocalAddress<'_> {
    /// Prints the ready line, or one line for people where a command is started, then serves until
    /// `stop` resolves or the command ends.
    pub(super) async fn serve(
        self,
        replicas: Arc<ReplicaSet>,
        verified: VerifiedEnd<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<ExitCode, CliError> {
        let Self { listener, address, origins, limits, verification, command, agent } = self;
        let file = agent.agent_file.as_deref().map(create_agent_file).transpose()?;
        let agent = match agent.agent {
            Some(agent) => Some((agent, ServerChoice::find(address, &replicas).await)),
            None => None,
        };
        let variables = agent.as_ref().map(|(agent, server)| agent.variables(server));
        let command = BesideCommand::start(command, address, variables.unwrap_or_default())?;
        let VerifiedEnd { url, guarantee, mut fields } = verified;
        match &command {
            None => {
                fields["base_url"] = format!("http://{address}/v1").into();
                if let Some((agent, server)) = agent {
                    offer_configuration(agent, &server, file)?;
                }
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
        let clock = process::unix_now;
        let serving =
            confide_client::serve(listener, replicas, origins, limits, verification, clock, until);
        let drained = serving.await;
        process::warn_of_cut_connections(drained);
        status
    }
}

fn create_agent_file(path: &Path) -> Result<NewFile, CliError> {
    NewFile::create_secret_once(path, "nothing was written")
}

/// Prints a configuration for people, or saves it.
fn offer_configuration(
    agent: Agent,
    server: &ServerChoice,
    file: Option<NewFile>,
) -> Result<(), CliError> {
    let text = agent.render(server);
    match file {
        Some(file) => file.save(text.as_bytes()),
        None => {
            eprintln!("{}\n\n{text}", agent.describe_place());
            Ok(())
        }
    }
}

//! `confide gateway`: attested TLS in front of model servers.

mod config_file;
mod key;
mod listeners;
mod shape;
mod telemetry;
mod terminate;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_gateway::ModelServer;

use self::{
    config_file::{ListenerKind, read_config_file},
    listeners::FlagListener,
    terminate::{TerminateArgs, TerminateConfig, parse_upstream},
};
use crate::{
    address::parse_listen_address, connections::ConnectionArgs, error::CliError, process,
    server_flags::print_configuration_digest, serving_threads::SERVING_THREADS,
};

/// The arguments that describe a single listener, and their groups: a file describes it otherwise.
const SINGLE_LISTENER: [&str; 31] = [
    "listen",
    "upstream",
    "upstream_ca",
    "upstream_http2",
    "weights",
    "cache_salt",
    "route",
    "dangerous_all_routes",
    "upstream_wait_s",
    "upstream_check_s",
    "binding",
    "simulate",
    "attester",
    "DeviceArgs",
    "gpu_index",
    "EndorsementSourceArgs",
    "collateral",
    "key_validity_s",
    "name",
    "certificate",
    "certificate_key",
    "certificate_out",
    "session_tickets",
    "receipts",
    "answer_shape",
    "encrypted_bodies",
    "threads",
    "client_policy",
    "access_log",
    "AuthorizationArgs",
    "ConnectionArgs",
];

/// The subcommands of `confide gateway`, which serves without one.
#[derive(clap::Subcommand)]
enum Command {
    /// Make API keys for clients.
    #[command(subcommand)]
    Key(key::Command),
    /// Print what an answer shape costs, in bytes and milliseconds.
    Shape(shape::Args),
}

/// The arguments of `confide gateway`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Serve the listeners of this TOML file, which can have many model servers, pass TLS through unread by
    /// its server name, or carry WebSocket tunnels. Excludes all other options but --print-config-digest
    #[arg(long, value_name = "FILE", conflicts_with_all = SINGLE_LISTENER)]
    config: Option<PathBuf>,
    /// Address for clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address, required_unless_present = "config")]
    listen: Option<SocketAddr>,
    /// The model server behind the gateway: http[s]://HOST[:PORT][/PATH], without /v1
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    upstream: Option<String>,
    /// Verify an https model server by the root certificates of this PEM file only, which SIGHUP reads
    /// again; by default, by those of the system
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Send requests to the model server over HTTP/2: with https it has to choose `h2`, with http it has to
    /// expect HTTP/2
    #[arg(long)]
    upstream_http2: bool,
    /// Measure this file or folder with the weights of the model server, which has to run on this machine
    /// and have them open. The evidence contains their digest, and a changed file closes every session
    #[arg(long, value_name = "PATH")]
    weights: Option<PathBuf>,
    /// Write a salt for the client's API key or address as `cache_salt` into requests, so that nobody learns from
    /// the model server's prefix cache what others have asked; the server has to understand the member. Prompts on
    /// paths where servers are not known to honour it are refused
    #[arg(long)]
    cache_salt: bool,
    #[command(flatten)]
    terminate: TerminateArgs,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// The number of threads that serve; by default one for each core that this process may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(SERVING_THREADS))]
    threads: Option<u16>,
    /// Print the digest of the effective configuration and exit; with --config one line for each listener that
    /// terminates TLS
    #[arg(long)]
    print_config_digest: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let Args {
        command,
        config,
        listen,
        upstream,
        upstream_ca,
        upstream_http2,
        weights,
        cache_salt,
        terminate,
        connections,
        threads,
        print_config_digest,
    } = args;
    match command {
        Some(Command::Key(command)) => return key::run(command),
        Some(Command::Shape(args)) => return shape::run(args),
        None => {}
    }
    if let Some(path) = &config {
        return match print_config_digest {
            true => process::block_on(print_digests(path))?,
            false => listeners::serve_file(path),
        };
    }
    let (Some(listen), Some(upstream)) = (listen, upstream) else {
        return Err(CliError::new("gateway: wanted --listen and --upstream, or --config"));
    };
    let upstream = parse_upstream(&upstream, upstream_http2)?;
    let server = ModelServer {
        roots_file: upstream_ca,
        weights_path: weights,
        cache_salt,
        ..ModelServer::new(upstream)
    };
    let terminate = TerminateConfig::with_servers(terminate, vec![server], Vec::new())?;
    if print_config_digest {
        let digest = process::block_on(terminate.fetch_digest())??;
        return print_configuration_digest(digest);
    }
    let connections = connections.limits()?;
    listeners::serve_terminating(FlagListener { listen, connections, threads, terminate })
}

/// Prints the digest of each listener of the file that terminates TLS.
async fn print_digests(path: &Path) -> Result<ExitCode, CliError> {
    for (number, config) in (1..).zip(read_config_file(path)?.listeners) {
        if let ListenerKind::Terminate(terminate) = config.kind {
            let digest = terminate.fetch_digest().await;
            let digest = digest.map_err(|error| error.in_part(&format!("listener {number}")))?;
            print_configuration_digest(digest)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        _args: Args,
    }

    #[test]
    fn a_file_excludes_every_other_flag_but_one() {
        let command = Line::command();
        let others = command.get_arguments().filter_map(|argument| {
            let long = argument.get_long()?;
            (!["config", "print-config-digest", "help"].contains(&long)).then_some(argument)
        });
        for argument in others {
            let flag = format!("--{}", argument.get_long().unwrap_or_default());
            let values =
                ["1", "3600", "key", "127.0.0.1:1", "device", "tsm", "127.0.0.1", "1024/50/64"];
            let lines = values.map(|value| vec!["gateway", "--config", "f", &flag, value]);
            let with_value = lines.iter().map(Line::try_parse_from);
            let mut outcomes =
                with_value.chain([Line::try_parse_from(["gateway", "--config", "f", &flag])]);
            let is_excluded = outcomes.any(|outcome| {
                outcome.is_err_and(|error| error.kind() == clap::error::ErrorKind::ArgumentConflict)
            });
            assert!(is_excluded, "{flag}");
        }
        assert!(
            Line::try_parse_from(["gateway", "--config", "f", "--print-config-digest"]).is_ok()
        );
    }
}

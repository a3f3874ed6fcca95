//! `confide tunnel`: carries TLS bytes over WebSockets and can read none of them.

use std::{net::SocketAddr, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use confide_channel::tunnel::{self, AllowList, TunnelDeadlines};
use confide_client::with_causes;
use confide_http::{Drained, Occupancy, PeerStream, TurnWatch, accept_until};
use serde_json::Map;

use crate::{address::listen_address, connections::ConnectionArgs, error::CliError, process};

/// A request and the dial of its target together get seconds; a tunnel in which nothing moves is
/// kept a little longer than a client keeps an unused connection.
const DEADLINES: TunnelDeadlines =
    TunnelDeadlines { open: Duration::from_secs(10), idle: Duration::from_secs(300) };
/// How long running tunnels may go on after the signal to stop. Shorter than a gateway gives its
/// answers: whether anything moves inside a tunnel cannot be seen.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);
/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where WebSocket clients connect; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: SocketAddr,
    /// A target that may be reached; may be given several times
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<String>,
    #[command(flatten)]
    connections: ConnectionArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let allow = AllowList::new(&args.allow).map_err(|error| {
        CliError::new(error).hint("give the attested server's address, as 127.0.0.1:8443")
    })?;
    process::run_to_end(serve(args, allow))?
}

async fn serve(args: Args, allow: AllowList) -> Result<ExitCode, CliError> {
    let stop = pin!(process::asked_to_stop());
    let admission = args.connections.admission()?;
    let (listener, address) = process::listen(args.listen).await?;
    let mut fields = Map::new();
    fields.insert("allow".into(), allow.targets().collect::<Vec<_>>().into());
    fields.insert("path".into(), tunnel::PATH.into());
    // It protects nothing itself, and what passes protects itself.
    process::print_ready(address, "none", fields);
    let allow = Arc::new(allow);
    let serve = move |stream, place, _| one(stream, place, allow.clone());
    let drained = accept_until(listener, admission, DRAIN_DEADLINE, stop, serve).await;
    if let Drained::Cut(tunnels) = drained {
        tracing::warn!(tunnels, "cut after the drain deadline");
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(stream: PeerStream, place: Occupancy, allow: Arc<AllowList>) {
    match tunnel::serve(TurnWatch::new(stream, place), &allow, DEADLINES).await {
        Ok(carried) => tracing::debug!(
            target = %carried.target,
            bytes_up = carried.bytes_up,
            bytes_down = carried.bytes_down,
            "tunnel ended"
        ),
        Err(error) => tracing::info!(error = %with_causes(&error), "tunnel refused or broken"),
    }
}

//! `confide tunnel`: carries TLS bytes over WebSockets and can read none of them.

use std::{
    net::SocketAddr,
    pin::{Pin, pin},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use confide_channel::tunnel::{self, AllowList, Deadlines};
use confide_client::with_causes;
use serde_json::Map;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{error::CliError, process};

/// Tunnels at once; further ones wait in the kernel's backlog.
const TUNNELS_MAX: usize = 1024;
/// A request and the dial of its target together get seconds; a tunnel in which nothing moves is
/// kept a little longer than a client keeps an unused connection.
const DEADLINES: Deadlines =
    Deadlines { open: Duration::from_secs(10), idle: Duration::from_secs(300) };
/// How long running tunnels may go on after the signal to stop. Shorter than a gateway gives its
/// answers: whether anything moves inside a tunnel cannot be seen.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where WebSocket clients connect; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// A target that may be reached; may be given several times
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let allow = AllowList::new(&args.allow).map_err(|error| {
        CliError::new(error).hint("give the attested server's address, as 127.0.0.1:8443")
    })?;
    process::run_to_end(serve(args, allow))?
}

async fn serve(args: Args, allow: AllowList) -> Result<ExitCode, CliError> {
    let mut stop = pin!(process::asked_to_stop());
    let (listener, address) = process::listen(args.listen).await?;
    let mut fields = Map::new();
    fields.insert("allow".into(), allow.targets().collect::<Vec<_>>().into());
    fields.insert("path".into(), tunnel::PATH.into());
    // It protects nothing itself, and what passes protects itself.
    process::print_ready(address, "none", fields);
    let mut tunnels = carry(listener, Arc::new(allow), stop.as_mut()).await;
    let finished = async { while tunnels.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_DEADLINE, finished).await.is_err() {
        tracing::warn!(tunnels = tunnels.len(), "cut after the drain deadline");
        tunnels.shutdown().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Accepts until asked to stop; gives back the tunnels that still run.
async fn carry(
    listener: TcpListener,
    allow: Arc<AllowList>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> JoinSet<()> {
    let slots = Arc::new(Semaphore::new(TUNNELS_MAX));
    let mut tunnels = JoinSet::new();
    loop {
        let next = async {
            let slot = slots.clone().acquire_owned().await.ok();
            (listener.accept().await, slot)
        };
        tokio::select! {
            // In this order, so that no stream of connections keeps the signal from being seen.
            biased;
            () = &mut stop => return tunnels,
            Some(_) = tunnels.join_next(), if !tunnels.is_empty() => {}
            (accepted, slot) = next => match accepted {
                Ok((stream, _)) => {
                    let allow = allow.clone();
                    tunnels.spawn(async move {
                        one(stream, &allow).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

async fn one(stream: TcpStream, allow: &AllowList) {
    // Handshake messages are small writes that the other end waits for.
    let _ = stream.set_nodelay(true);
    match tunnel::serve(stream, allow, DEADLINES).await {
        Ok(carried) => tracing::debug!(
            target = %carried.target,
            bytes_up = carried.bytes_up,
            bytes_down = carried.bytes_down,
            "tunnel ended"
        ),
        Err(error) => tracing::info!(error = %with_causes(&error), "tunnel refused or broken"),
    }
}

//! `confide tunnel`: carries TLS bytes over WebSockets and cannot read them.

use std::{future::Future, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use confide_channel::tunnel::{self, AllowList, AllowedOrigins, TunnelDeadlines};
use confide_client::error_chain;
use confide_http::{
    Admission, ConnectionPlace, DrainOutcome, HalfDuplexStream, Listener, PeerStream,
    accept_on_threads,
};
use serde_json::json;

use crate::{address::parse_listen_address, connections::ConnectionArgs, error::CliError, process};

/// A request and the dial of its target get seconds; an idle tunnel is kept a little longer than a
/// client keeps an unused connection.
const DEADLINES: TunnelDeadlines =
    TunnelDeadlines { open: Duration::from_secs(10), idle: Duration::from_secs(300) };
/// How long running tunnels may continue after the signal to stop. It is shorter than a gateway's:
/// whether an answer is in progress inside a tunnel cannot be seen.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// The arguments of `confide tunnel`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address for WebSocket clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    listen: SocketAddr,
    /// A target that clients may reach; may be given several times
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<String>,
    /// Let pages of this web origin open tunnels, as a browser sends it: https://chat.example; may be given
    /// several times. By default no web page may
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// The number of threads that serve; by default one for each core that this process may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=process::SERVING_THREADS_MAX as i64))]
    threads: Option<u16>,
    #[command(flatten)]
    connections: ConnectionArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let allow = AllowList::new(&args.allow).map_err(|error| {
        CliError::new(error).with_hint("give the attested server's address, such as 127.0.0.1:8443")
    })?;
    let origins = AllowedOrigins::new(&args.allow_origin)
        .map_err(|error| CliError::new(format!("--allow-origin: {error}")))?;
    process::block_on_this_thread(serve(args, allow, origins))?
}

async fn serve(
    args: Args,
    allow: AllowList,
    origins: AllowedOrigins,
) -> Result<ExitCode, CliError> {
    let stop = process::stop_signal();
    let admission = args.connections.admission()?;
    let threads = process::start_serving_threads(args.threads)?;
    let (listener, address) = process::listen_on_threads(&threads, args.listen).await?;
    let fields = json!({
        "allow": allow.targets().collect::<Vec<_>>(),
        "allow_origins": origins.iter().collect::<Vec<_>>(),
        "path": tunnel::PATH,
    });
    // The tunnel protects nothing itself: the bytes that pass are protected by TLS.
    process::print_ready(address, "none", fields);
    let drained = serve_tunnel_listener(listener, admission, allow, origins, stop).await;
    process::warn_of_cut_connections(drained);
    Ok(ExitCode::SUCCESS)
}

/// Serves tunnels to the targets of `allow`, for programs and for web pages of `origins`, until
/// `stop` resolves and the running ones have ended.
pub(crate) async fn serve_tunnel_listener(
    listener: Listener,
    admission: Admission,
    allow: AllowList,
    origins: AllowedOrigins,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let (allow, origins) = (Arc::new(allow), Arc::new(origins));
    let serve_one =
        move |stream, place, _| serve_tunnel(stream, place, allow.clone(), origins.clone());
    accept_on_threads(listener, admission, DRAIN_DEADLINE, stop, serve_one).await
}

async fn serve_tunnel(
    stream: PeerStream,
    place: ConnectionPlace,
    allow: Arc<AllowList>,
    origins: Arc<AllowedOrigins>,
) {
    let stream = HalfDuplexStream::new(stream, place);
    match tunnel::serve(stream, &allow, &origins, DEADLINES).await {
        Ok(carried) => tracing::debug!(
            target = %carried.target,
            bytes_up = carried.bytes_up,
            bytes_down = carried.bytes_down,
            "tunnel ended"
        ),
        Err(error) => tracing::info!(error = %error_chain(&error), "tunnel refused or broken"),
    }
}

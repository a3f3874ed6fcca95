//! `confide tunnel`: carries TLS bytes over WebSockets and cannot read them.

use std::{
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use confide_channel::tunnel::{self, AllowList, AllowedOrigins, TunnelDeadlines};
use confide_client::error_chain;
use confide_gateway::{PAGE_BYTES_MAX, PAGE_PATH, VisitorPage};
use confide_http::{
    Admission, ConnectionPlace, DrainOutcome, HalfDuplexStream, Listener, PeerStream,
    accept_on_threads,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    address::parse_listen_address,
    connections::ConnectionArgs,
    error::CliError,
    files::read_file,
    process,
    serving_threads::{SERVING_THREADS, listen_on_threads, start_serving_threads},
};

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
    /// Let pages that were opened from disk open tunnels. Any web page can then do so too: only for targets that
    /// everybody can reach anyway
    #[arg(long)]
    dangerous_allow_null_origin: bool,
    /// Serve this file, the released confide-page.html, to browsers, at /.well-known/confide/page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// The number of threads that serve; by default one for each core that this process may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(SERVING_THREADS))]
    threads: Option<u16>,
    #[command(flatten)]
    connections: ConnectionArgs,
}

/// What a tunnel's listener serves: targets, the pages that may reach them, and its own page if it has one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TunnelConfig {
    allow: AllowList,
    origins: AllowedOrigins,
    page: Option<VisitorPage>,
}

impl TunnelConfig {
    /// The configuration with these keys, each named as in a file of listeners.
    ///
    /// # Errors
    /// [`CliError`] that begins with the name of the key.
    pub(crate) fn new(
        allow: &[String],
        allow_origin: &[String],
        allows_null_origin: bool,
        page: Option<&Path>,
    ) -> Result<Self, CliError> {
        let allow = AllowList::new(allow).map_err(|error| {
            CliError::new(format!("allow: {error}"))
                .with_hint("give the attested server's address, such as 127.0.0.1:8443")
        })?;
        let origins = AllowedOrigins::new(allow_origin);
        let origins = origins.map_err(|error| CliError::new(format!("allow_origin: {error}")))?;
        let origins = if allows_null_origin { origins.with_null() } else { origins };
        let Some(file) = page else { return Ok(Self { allow, origins, page: None }) };
        if origins.iter().next().is_none() {
            let text = "page: wanted allow_origin too, got none: no page could open a tunnel";
            let hint =
                "name the origin at which visitors open the page, such as https://chat.example";
            return Err(CliError::new(text).with_hint(hint));
        }
        let name = |error| CliError::new(format!("page: {}: {error}", file.display()));
        let page = VisitorPage::new(read_file(file, PAGE_BYTES_MAX)?, allow.targets());
        Ok(Self { allow, origins, page: Some(page.map_err(name)?) })
    }

    /// The fields of the ready line.
    pub(crate) fn to_json(&self) -> Value {
        let page = self.page.as_ref();
        json!({
            "allow": self.allow.targets().collect::<Vec<_>>(),
            "allow_origins": self.origins.iter().collect::<Vec<_>>(),
            "page": page.map(|page| json!({ "path": PAGE_PATH, "sha256": page.digest() })),
        })
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let (null, page) = (args.dangerous_allow_null_origin, args.page.as_deref());
    let config = TunnelConfig::new(&args.allow, &args.allow_origin, null, page)?;
    process::block_on_this_thread(serve(args, config))?
}

async fn serve(args: Args, config: TunnelConfig) -> Result<ExitCode, CliError> {
    let stop = process::stop_signal();
    let admission = args.connections.admission()?;
    let threads = start_serving_threads(args.threads)?;
    let (listener, address) = listen_on_threads(&threads, args.listen).await?;
    let fields = process::merge_objects(config.to_json(), json!({ "path": tunnel::PATH }));
    // The tunnel protects nothing itself: the bytes that pass are protected by TLS.
    process::print_ready(address, "none", fields);
    let drained = serve_tunnel_listener(listener, admission, Arc::new(config), stop).await;
    process::warn_of_cut_connections(drained);
    Ok(ExitCode::SUCCESS)
}

/// Serves tunnels and the page of `config` until `stop` resolves and the running ones have ended.
pub(crate) async fn serve_tunnel_listener(
    listener: Listener,
    admission: Admission,
    config: Arc<TunnelConfig>,
    stop: impl Future<Output = ()>,
) -> DrainOutcome {
    let serve_one = move |stream, place, _| serve_connection(stream, place, config.clone());
    accept_on_threads(listener, admission, DRAIN_DEADLINE, stop, serve_one).await
}

async fn serve_connection(stream: PeerStream, place: ConnectionPlace, config: Arc<TunnelConfig>) {
    let stream = HalfDuplexStream::new(stream, place);
    let Some(page) = &config.page else { return serve_tunnel(stream, &config).await };
    match page.serve(stream, DEADLINES.open).await {
        Ok(Some(stream)) => serve_tunnel(stream, &config).await,
        Ok(None) => tracing::debug!("page served"),
        Err(error) => tracing::info!(error = %error_chain(&error), "page not served"),
    }
}

async fn serve_tunnel(stream: impl AsyncRead + AsyncWrite + Send + Unpin, config: &TunnelConfig) {
    match tunnel::serve(stream, &config.allow, &config.origins, DEADLINES).await {
        Ok(carried) => tracing::debug!(
            target = %carried.target,
            bytes_up = carried.bytes_up,
            bytes_down = carried.bytes_down,
            "tunnel ended"
        ),
        Err(error) => tracing::info!(error = %error_chain(&error), "tunnel refused or broken"),
    }
}

//! `confide gateway`: attested TLS in front of a model server.

mod config_file;
mod pass;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_client::error_chain;
use confide_evidence::Attest;
use confide_gateway::{
    AccessLog, AccessLogThread, Gateway, GatewayConfiguration, GatewayError, GatewayLimits,
    GatewayOptions, Route, Upstream,
};
use serde_json::{Value, json};

use crate::{
    address::parse_listen_address,
    binding::BindingName,
    error::CliError,
    files::write_file,
    process,
    server_flags::{AttestedServerArgs, print_configuration_digest},
};

/// The longest wait for an answer of the upstream, which is on the same machine or network.
const MODELS_DEADLINE: Duration = Duration::from_secs(3);
/// Default of `--upstream-wait-s`, in seconds. A gateway and its model server are often started by
/// one script; a small model loads within this time, so that their order does not matter.
const UPSTREAM_WAIT_S: u64 = 10;
/// Default of `--upstream-check-s`, in seconds: a model server that is replaced while nobody
/// connects is noticed within this time.
const UPSTREAM_CHECK_S: u64 = 10;
/// Pause between two tries: short compared with the loading of a model.
const UPSTREAM_RETRY: Duration = Duration::from_millis(200);

/// The arguments of `confide gateway`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Serve the listeners of this TOML file, which route TLS by server name and pass it through unread.
    /// Excludes all other options
    #[arg(long, value_name = "FILE", exclusive = true)]
    config: Option<PathBuf>,
    /// Address for clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address, required_unless_present = "config")]
    listen: Option<SocketAddr>,
    /// The model server behind the gateway: http://HOST[:PORT][/PATH], without /v1
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    upstream: Option<String>,
    /// Proxy this path too: PATH, or METHOD[,METHOD] PATH; a path alone allows GET, HEAD and POST.
    /// `*` stands for one segment, `**` at the end for the rest. May be given several times
    #[arg(long, value_name = "ROUTE", conflicts_with = "dangerous_all_routes")]
    route: Vec<String>,
    /// Proxy every path and method: clients reach metrics and administration of the model server,
    /// and can change what it serves
    #[arg(long)]
    dangerous_all_routes: bool,
    /// Seconds to wait for a model server that does not answer yet, before starting without its model in
    /// the configuration digest
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_WAIT_S,
          value_parser = clap::value_parser!(u64).range(..=3600))]
    upstream_wait_s: u64,
    /// Seconds between checks that the model server still serves the model in the configuration digest.
    /// Each new connection to it is checked as well
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_CHECK_S,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    upstream_check_s: u64,
    /// How evidence is bound to connections
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    binding: BindingName,
    #[command(flatten)]
    server: AttestedServerArgs,
    /// Write the certificate as PEM, for clients of `--binding none`
    #[arg(long, value_name = "FILE")]
    certificate_out: Option<PathBuf>,
    /// Write one line of JSON for each request: time, method, the fixed parts of its path, status. The line
    /// contains no query, field, body or identifier. `-` is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if let Some(path) = &args.config {
        return process::block_on(pass::serve_listeners(path))?;
    }
    let (Some(listen), Some(upstream)) = (args.listen, args.upstream.clone()) else {
        return Err(CliError::new("gateway: wanted --listen and --upstream, or --config"));
    };
    process::block_on(serve(args, listen, &upstream))?
}

async fn serve(args: Args, listen: SocketAddr, upstream: &str) -> Result<ExitCode, CliError> {
    let mut stop = pin!(process::stop_signal());
    let mut configuration = build_configuration(&args, upstream)?;
    if args.server.print_config_digest {
        configuration.model_manifest_sha256 = fetch_model_manifest(&args, &configuration).await;
        return print_configuration_digest(configuration.digest());
    }
    // Whatever can fail at once fails before the wait.
    let attester = open_attester(&args)?;
    let admission = args.server.connections.admission()?;
    let (listener, address) = process::listen(listen).await?;
    configuration.model_manifest_sha256 = tokio::select! {
        biased;
        () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
        manifest = fetch_model_manifest(&args, &configuration) => manifest,
    };
    let log = args.access_log.as_deref().map(open_access_log).transpose()?;
    let options = GatewayOptions {
        configuration,
        key_validity: args.server.evidence.key_validity(),
        limits: GatewayLimits {
            upstream_check: Duration::from_secs(args.upstream_check_s),
            ..GatewayLimits::default()
        },
        names: process::certificate_names(listen, &args.server.name),
    };
    let mut gateway = Gateway::new(options, attester, process::unix_now)
        .map_err(|error| CliError::new(error_chain(&error)))?
        .with_admission(admission);
    let mut log_end = None;
    if let Some((log, end)) = log {
        gateway = gateway.with_access_log(log);
        log_end = Some(end);
    }
    if let Some(path) = &args.certificate_out {
        write_file(path, gateway.certificate_pem())?;
    }
    let guarantee = if gateway.is_simulated() {
        "none (simulated)"
    } else {
        gateway.configuration().guarantee()
    };
    process::print_ready(address, guarantee, ready_line_fields(&gateway));
    process::warn_of_cut_connections(gateway.serve(listener, stop).await);
    if let Some(end) = log_end {
        end.finish();
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration by the arguments; the model is asked for later.
fn build_configuration(args: &Args, upstream: &str) -> Result<GatewayConfiguration, CliError> {
    let upstream = Upstream::parse(upstream).map_err(|error| {
        let hint = match &error {
            GatewayError::UpstreamApiPath { without, .. } => format!("give --upstream {without}"),
            GatewayError::UpstreamHttps { .. } => {
                "run the gateway on the model server's machine and give its http:// address on \
                 loopback; over https nothing attests who reads the prompts"
                    .into()
            }
            _ => "give the model server's address, such as http://127.0.0.1:8000".into(),
        };
        CliError::new(error).with_hint(hint)
    })?;
    let mut configuration =
        GatewayConfiguration::with_upstream(args.binding.into(), upstream.clone());
    if args.dangerous_all_routes {
        configuration.routes = vec![Route::dangerous_everything(&upstream)];
    }
    for text in &args.route {
        let route = Route::parse(text, &upstream).map_err(|error| {
            CliError::new(error)
                .with_hint("for instance --route /tokenize, or --route 'DELETE /v1/x/*'")
        })?;
        configuration.add_route(route);
    }
    Ok(configuration)
}

/// Asks the upstream which model it serves, again and again while it may still be starting.
async fn fetch_model_manifest(
    args: &Args,
    configuration: &GatewayConfiguration,
) -> Option<[u8; 32]> {
    let upstream = configuration.upstreams.first()?;
    let until = Instant::now() + Duration::from_secs(args.upstream_wait_s);
    let mut is_logged = false;
    loop {
        match confide_gateway::fetch_model_manifest(upstream, MODELS_DEADLINE).await {
            Ok(manifest) => return manifest,
            Err(error) if error.is_transient() && Instant::now() < until => {
                if !std::mem::replace(&mut is_logged, true) {
                    let wait_s = args.upstream_wait_s;
                    tracing::warn!(%error, wait_s, "the model server does not answer yet: waiting");
                }
                tokio::time::sleep(UPSTREAM_RETRY).await;
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the configuration digest does not cover the model, so it differs from the digest \
                     with the model: start the model server first"
                );
                return None;
            }
        }
    }
}

fn open_attester(args: &Args) -> Result<Option<Arc<dyn Attest>>, CliError> {
    let evidence = &args.server.evidence;
    if evidence.attester.gpu_index.is_some() && args.binding != BindingName::Session {
        let text = "evidence of a GPU is shown with session binding only";
        return Err(CliError::new(text).with_hint("add --binding session, or remove --gpu-index"));
    }
    if args.binding == BindingName::None {
        return Ok(None);
    }
    evidence.open_attester("this gateway", ", or give --binding none for ordinary TLS").map(Some)
}

/// Opens the access log for appending, so that the lines of an earlier gateway stay.
fn open_access_log(path: &Path) -> Result<(AccessLog, AccessLogThread), CliError> {
    if path == Path::new("-") {
        return Ok(AccessLog::start(std::io::stdout(), process::unix_now));
    }
    let file = std::fs::File::options().create(true).append(true).open(path).map_err(|error| {
        CliError::new(format!("cannot write the access log {}: {error}", path.display()))
            .with_hint("give a file in a folder that exists, or - for standard output")
    })?;
    Ok(AccessLog::start(file, process::unix_now))
}

fn ready_line_fields(gateway: &Gateway) -> Value {
    let configuration = gateway.configuration();
    json!({
        "binding": gateway.binding_name(),
        "config_digest": hex::encode(configuration.digest()),
        "dangerous_all_routes": configuration.allows_all_routes(),
        "model_manifest_sha256": configuration.model_manifest_sha256.map(hex::encode),
        "model_manifest_source": configuration.model_manifest_source(),
        "simulated": gateway.is_simulated(),
        "upstreams": configuration.upstreams.iter().map(Upstream::url).collect::<Vec<_>>(),
    })
}

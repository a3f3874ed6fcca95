//! `confide gateway`: attested TLS in front of a model server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use confide_channel::Binding;
use confide_client::with_causes;
use confide_evidence::Attest;
use confide_gateway::{
    AccessLog, AccessLogEnd, Configuration, Drained, Gateway, GatewayError, GatewayLimits,
    GatewayOptions, Route, Upstream,
};
use serde_json::{Map, Value, json};

use crate::{
    address::listen_address, attest::chosen::AttesterArgs, connections::ConnectionArgs,
    error::CliError, features::NO_ATTESTER_HINT, process,
};

/// The upstream is on the same machine or network: one that listens answers within this.
const MODELS_DEADLINE: Duration = Duration::from_secs(3);
/// A gateway and its model server are often started by one script: a small model is loaded within
/// this, and with it in the digest the order of the start does not matter.
const UPSTREAM_WAIT_S: u64 = 10;
/// A model server that was exchanged while nobody connected is noticed within this.
const UPSTREAM_CHECK_S: u64 = 10;
/// Between two tries: short beside what loading takes.
const UPSTREAM_RETRY: Duration = Duration::from_millis(200);

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where clients connect; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: SocketAddr,
    /// The model server behind it: http://HOST[:PORT][/PATH], without /v1
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Proxy this path too: PATH, or METHOD[,METHOD] PATH; a path alone allows GET, HEAD and POST.
    /// `*` is one segment, `**` at the end the rest. May be given several times
    #[arg(long, value_name = "ROUTE", conflicts_with = "dangerous_all_routes")]
    route: Vec<String>,
    /// Proxy every path and method: clients reach metrics and administration of the model server,
    /// and can change what it serves
    #[arg(long)]
    dangerous_all_routes: bool,
    /// Seconds to wait for a model server that is not there yet, before going on without its model
    /// in the configuration digest
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_WAIT_S,
          value_parser = clap::value_parser!(u64).range(..=3600))]
    upstream_wait_s: u64,
    /// Seconds between two questions for the model server's model, where it is in the configuration
    /// digest. Each new connection to it asks as well
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_CHECK_S,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    upstream_check_s: u64,
    /// How evidence is tied to connections
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    binding: BindingName,
    #[command(flatten)]
    attester: AttesterArgs,
    /// Staple this collateral instead of the attester's own
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// How long a key lives before a new one takes its place, in seconds
    #[arg(long, value_name = "N", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(60..=604_800))]
    key_validity_s: u64,
    /// A further name in the certificate; may be given several times
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Write the certificate as PEM, for clients of `--binding none`
    #[arg(long, value_name = "FILE")]
    certificate_out: Option<PathBuf>,
    /// Write one line of JSON for each request: time, method, the words of its path, status. No
    /// query, field, body or identifier is in it. `-` is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Print the digest of the effective configuration and end
    #[arg(long)]
    print_config_digest: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum BindingName {
    /// Ordinary TLS without evidence, to compare with
    None,
    /// Evidence in the certificate, over the TLS key
    Key,
    /// Evidence after the handshake, over this very session
    Session,
}

impl From<BindingName> for Binding {
    fn from(name: BindingName) -> Self {
        match name {
            BindingName::None => Binding::None,
            BindingName::Key => Binding::Key,
            BindingName::Session => Binding::Session,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    process::run_to_end(serve(args))?
}

async fn serve(args: Args) -> Result<ExitCode, CliError> {
    // One for the whole life: a signal that comes between two of them would be seen by neither.
    let mut stop = pin!(process::asked_to_stop());
    let mut configuration = configuration(&args)?;
    if args.print_config_digest {
        configuration.model_manifest_sha256 = model_manifest(&args, &configuration).await;
        println!("{}", hex::encode(configuration.digest()));
        return Ok(ExitCode::SUCCESS);
    }
    // What can fail at once fails before the wait.
    let attester = attester(&args)?;
    let admission = args.connections.admission()?;
    let (listener, address) = process::listen(args.listen).await?;
    configuration.model_manifest_sha256 = tokio::select! {
        biased;
        () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
        manifest = model_manifest(&args, &configuration) => manifest,
    };
    let log = args.access_log.as_deref().map(access_log).transpose()?;
    let options = GatewayOptions {
        configuration,
        key_validity: Duration::from_secs(args.key_validity_s),
        limits: GatewayLimits {
            upstream_check: Duration::from_secs(args.upstream_check_s),
            ..GatewayLimits::default()
        },
        names: process::names(args.listen, &args.name),
    };
    let mut gateway = Gateway::new(options, attester, process::unix_now)
        .map_err(|error| CliError::new(with_causes(&error)))?
        .with_admission(admission);
    let mut log_end = None;
    if let Some((log, end)) = log {
        gateway = gateway.with_access_log(log);
        log_end = Some(end);
    }
    if let Some(path) = &args.certificate_out {
        write_certificate(path, &gateway.certificate_pem())?;
    }
    let guarantee = match gateway.is_simulated() {
        true => "none (simulated)",
        false => gateway.configuration().guarantee(),
    };
    process::print_ready(address, guarantee, ready_fields(&gateway));
    if let Drained::Cut(connections) = gateway.serve(listener, stop).await {
        tracing::warn!(connections, "cut after the drain deadline");
    }
    if let Some(end) = log_end {
        end.finish();
    }
    Ok(ExitCode::SUCCESS)
}

/// What the arguments say of it; the model is asked for later.
fn configuration(args: &Args) -> Result<Configuration, CliError> {
    let upstream = Upstream::parse(&args.upstream).map_err(|error| {
        let hint = match &error {
            GatewayError::UpstreamApiPath { without, .. } => format!("give --upstream {without}"),
            GatewayError::UpstreamHttps { .. } => {
                "run the gateway on the model server's machine and give its http:// address on \
                 loopback; over https nothing would attest who reads the prompts there"
                    .into()
            }
            _ => "give the model server's address, as http://127.0.0.1:8000".into(),
        };
        CliError::new(error).hint(hint)
    })?;
    let mut configuration = Configuration::single(args.binding.into(), upstream.clone());
    if args.dangerous_all_routes {
        configuration.routes = vec![Route::dangerous_everything(&upstream)];
    }
    for text in &args.route {
        let route = Route::parse(text, &upstream).map_err(|error| {
            CliError::new(error).hint("for instance --route /tokenize, or --route 'DELETE /v1/x/*'")
        })?;
        configuration.add_route(route);
    }
    Ok(configuration)
}

/// Asks the upstream which model it serves, for as long as it may still be starting.
async fn model_manifest(args: &Args, configuration: &Configuration) -> Option<[u8; 32]> {
    let upstream = configuration.upstreams.first()?;
    let until = Instant::now() + Duration::from_secs(args.upstream_wait_s);
    let mut told = false;
    loop {
        match confide_gateway::ask_model_manifest(upstream, MODELS_DEADLINE).await {
            Ok(manifest) => return manifest,
            Err(error) if error.may_pass() && Instant::now() < until => {
                if !told {
                    told = true;
                    let wait_s = args.upstream_wait_s;
                    tracing::warn!(%error, wait_s, "the model server is not there yet: waiting");
                }
                tokio::time::sleep(UPSTREAM_RETRY).await;
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the model is not in the configuration digest, which differs from the digest \
                     of a gateway that could ask: start the model server first"
                );
                return None;
            }
        }
    }
}

fn attester(args: &Args) -> Result<Option<Arc<dyn Attest>>, CliError> {
    if args.attester.gpu_index.is_some() && args.binding != BindingName::Session {
        let text = "evidence of a GPU is shown with session binding only";
        return Err(CliError::new(text).hint("add --binding session, or leave --gpu-index out"));
    }
    if args.binding == BindingName::None {
        return Ok(None);
    }
    match args.attester.open(args.collateral.as_deref())? {
        Some(attester) => Ok(Some(attester)),
        None => Err(CliError::new("this gateway has no attester")
            .hint(format!("{NO_ATTESTER_HINT}, or give --binding none for ordinary TLS"))),
    }
}

/// Appends, so that what an earlier gateway wrote stays.
fn access_log(path: &Path) -> Result<(AccessLog, AccessLogEnd), CliError> {
    if path == Path::new("-") {
        return Ok(AccessLog::start(std::io::stdout(), process::unix_now));
    }
    let file = std::fs::File::options().create(true).append(true).open(path).map_err(|error| {
        CliError::new(format!("cannot write the access log {}: {error}", path.display()))
            .hint("give a file in a folder that exists, or - for standard output")
    })?;
    Ok(AccessLog::start(file, process::unix_now))
}

fn write_certificate(path: &Path, pem: &str) -> Result<(), CliError> {
    std::fs::write(path, pem)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
}

fn ready_fields(gateway: &Gateway) -> Map<String, Value> {
    let configuration = gateway.configuration();
    let fields = json!({
        "binding": gateway.binding_name(),
        "config_digest": hex::encode(configuration.digest()),
        "dangerous_all_routes": configuration.allows_all_routes(),
        "model_manifest_sha256": configuration.model_manifest_sha256.map(hex::encode),
        "model_manifest_source": configuration.model_manifest_source(),
        "simulated": gateway.is_simulated(),
        "upstreams": configuration.upstreams.iter().map(Upstream::url).collect::<Vec<_>>(),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

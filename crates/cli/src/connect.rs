//! `confide connect`: verifies a confidential server, then opens a loopback address.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use confide_channel::ChannelError;
use confide_client::{
    Binding, Blame, ClientError, ClientLimits, ConnectTimings, Connector, Drained, Endpoint,
    HttpClient, Origins, PeerAppraisal, PolicyAppraiser, with_causes,
};
use confide_evidence::{UnixSeconds, certificate::Certificate, collateral::COLLATERAL_LENGTH_MAX};
use confide_verifier::{BindingLevel, Policy, Roots, Scope};
use serde_json::{Map, Value, json};

use crate::{
    address::listen_address,
    collateral::service::ServiceArgs,
    error::{CliError, read_file},
    policy, process,
};

/// A root certificate is about 700 bytes.
const ROOT_BYTES_MAX: u64 = 16 * 1024;
/// The evidence was judged and refused.
pub(crate) const STATUS_REFUSED: u8 = 1;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The attested server: https://HOST[:PORT]
    #[arg(value_name = "URL")]
    url: String,
    /// What is demanded of it, as TOML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trust this root certificate (DER) beside the policy's
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Use this collateral instead of what the server staples
    #[arg(long, value_name = "FILE", conflicts_with = "collateral_service")]
    collateral: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
    /// Reach it through this tunnel: ws://HOST:PORT
    #[arg(long, value_name = "URL")]
    via: Option<String>,
    /// How the server ties evidence to connections; without it, as the policy demands, or key
    #[arg(long, value_enum)]
    binding: Option<BindingName>,
    /// The loopback address for OpenAI clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address,
          default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Milliseconds that TCP, and after it handshake and evidence, may take
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    deadline_ms: u64,
    /// Requests that run at once, each on an attested connection of its own
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    requests: u32,
    /// Requests that wait for one of those to end, 30 s at most; further ones get a 503
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(0..=65_536))]
    requests_waiting: u32,
    /// Connections of local programs held at once; idle ones give way to new ones
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Let pages of this web origin use the address; may be given several times. Without it no web
    /// page may
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Let other machines use the address: their bytes travel in the clear up to here
    #[arg(long)]
    dangerous_listen_beyond_loopback: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum BindingName {
    /// Evidence in the certificate, over the TLS key
    Key,
    /// Evidence after the handshake, over this very session
    Session,
}

impl BindingName {
    /// What the policy demands, and the key's where it demands nothing.
    fn of(policy: &Policy) -> Self {
        match policy.binding {
            Some(BindingLevel::Session) => Self::Session,
            Some(BindingLevel::Key) | None => Self::Key,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Session => "session",
        }
    }
}

impl From<BindingName> for Binding {
    fn from(name: BindingName) -> Self {
        match name {
            BindingName::Key => Self::Key,
            BindingName::Session => Self::Session,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if !args.listen.ip().is_loopback() && !args.dangerous_listen_beyond_loopback {
        return Err(CliError::new(format!(
            "--listen {} is not loopback: what is sent to it would travel in the clear",
            args.listen
        ))
        .hint("listen on 127.0.0.1, or add --dangerous-listen-beyond-loopback"));
    }
    let deadline = Duration::from_millis(args.deadline_ms);
    let limits = ClientLimits {
        dial: deadline,
        channel: deadline,
        connections: args.requests as usize,
        requests_waiting: args.requests_waiting as usize,
        local_connections: args.connections as usize,
        ..ClientLimits::default()
    };
    let origins = Origins::new(&args.allow_origin)
        .map_err(|error| CliError::new(error).hint("for instance https://chat.example"))?;
    let policy = policy::file::read(&args.policy)?;
    let binding = args.binding.unwrap_or_else(|| BindingName::of(&policy));
    let connector = connector(&args, policy, binding, limits)?;
    let client = HttpClient::new(connector, limits, process::unix_now);
    process::run_to_end(serve(&args, binding, client, origins, limits))?
}

async fn serve(
    args: &Args,
    binding: BindingName,
    client: HttpClient,
    origins: Origins,
    limits: ClientLimits,
) -> Result<ExitCode, CliError> {
    // One for the whole life: a signal that comes between two of them would be seen by neither.
    let mut stop = pin!(process::asked_to_stop());
    let (appraised, timings) = tokio::select! {
        biased;
        () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
        opened = client.open() => opened.map_err(|error| refusal(args, &error))?,
    };
    let Some(appraised) = appraised else {
        return Err(CliError::new("the connection came without an attestation result"));
    };
    if appraised.verdict().scope() == Scope::Platform {
        tracing::warn!(
            "the policy says dangerous_scope = \"platform\": which program answered, in which \
             configuration, is not known"
        );
    }
    let (listener, address) = process::listen(args.listen).await?;
    let fields = ready_fields(args, binding, address, &appraised, timings);
    process::print_ready(address, appraised.guarantee(), fields);
    let drained = confide_client::serve(listener, Arc::new(client), origins, limits, stop).await;
    if let Drained::Cut(connections) = drained {
        tracing::warn!(connections, "cut after the drain deadline");
    }
    Ok(ExitCode::SUCCESS)
}

fn connector(
    args: &Args,
    policy: Policy,
    binding: BindingName,
    limits: ClientLimits,
) -> Result<Connector, CliError> {
    let endpoint = Endpoint::parse(&args.url)
        .map_err(|error| CliError::new(error).hint("for instance https://127.0.0.1:8443"))?;
    let policy = with_root(policy, args.root.as_deref())?;
    let appraiser = match args.service.start(&policy.roots)? {
        Some(source) => PolicyAppraiser::with_source(policy, source, process::unix_now),
        None => stapled_or_own(args, policy)?,
    };
    Connector::with_appraiser(
        endpoint,
        args.via.clone(),
        binding.into(),
        Arc::new(appraiser),
        limits,
    )
    .map_err(|error| CliError::new(with_causes(&error)))
}

/// Endorsements from a file, or those that the server staples.
fn stapled_or_own(args: &Args, policy: Policy) -> Result<PolicyAppraiser, CliError> {
    let collateral = match &args.collateral {
        None => None,
        Some(path) => Some(read_file(path, COLLATERAL_LENGTH_MAX as u64)?),
    };
    PolicyAppraiser::new(policy, collateral.as_deref(), process::unix_now).map_err(|error| {
        match &args.collateral {
            Some(path) => CliError::new(format!("{}: {error}", path.display()))
                .hint("wanted collateral as JSON, such as the attester's collateral.json"),
            None => CliError::new(error),
        }
    })
}

/// A policy, and one root more where one is given.
pub(crate) fn with_root(mut policy: Policy, root: Option<&Path>) -> Result<Policy, CliError> {
    if let Some(path) = root {
        let der = read_file(path, ROOT_BYTES_MAX)?;
        Certificate::parse("root certificate", &der).map_err(|error| {
            CliError::new(format!("{}: {error}", path.display()))
                .hint("--root takes DER; `openssl x509 -outform der` makes it from PEM")
        })?;
        policy.roots = beside(&policy.roots, &der)?;
    }
    Ok(policy)
}

/// The policy's roots and one more.
fn beside(roots: &Roots, der: &[u8]) -> Result<Roots, CliError> {
    let (listed, added) = (roots.to_string(), Roots::from_der(der).to_string());
    let names: Vec<String> = listed.split(" or ").chain([added.as_str()]).map(Into::into).collect();
    Roots::from_names(&names).map_err(CliError::new)
}

fn refusal(args: &Args, error: &ClientError) -> CliError {
    let url = &args.url;
    let text = error.rejection().map_or_else(|| with_causes(error), ToString::to_string);
    match (error.blame(), error.failed_check()) {
        (Blame::Evidence, check) => {
            let check = check.unwrap_or("evidence");
            CliError::new(format!("{url} is not accepted: check `{check}` failed: {text}"))
                .hint(hint_for(check))
                .status(STATUS_REFUSED)
        }
        (Blame::Network, _) => CliError::new(format!("{url} could not be judged: {text}"))
            .hint(hint_for_network(args.via.as_deref(), error)),
        (Blame::Local, _) => match error {
            ClientError::Channel { source: ChannelError::NoAttester { .. }, .. } => CliError::new(
                format!("{url} demands evidence of this end, which has none"),
            )
            .hint("connect shows no evidence of its own: is that an adapter host, or a notary?"),
            _ => CliError::new(text),
        },
    }
}

fn hint_for_network(via: Option<&str>, error: &ClientError) -> String {
    match (via, error) {
        (_, ClientError::Channel { source: ChannelError::Tls(_), .. }) => {
            "is that a confide gateway, and with the same --binding (key or session)? its ready \
             line names it"
                .into()
        }
        (_, ClientError::Channel { source: ChannelError::Refused { .. }, .. }) => {
            "the server is there and gives no evidence now: its log says why".into()
        }
        (Some(via), _) => {
            format!("is a confide tunnel running at {via}, and does it --allow this server?")
        }
        (None, _) => "is the gateway running there? its ready line names the address; one whose \
                      model server was exchanged takes no connections, and its log says so"
            .into(),
    }
}

pub(crate) fn hint_for(check: &str) -> &'static str {
    match check {
        "root" => {
            "the evidence was not made under a root of the policy; simulated evidence never is \
             unless its own policy.toml or --root is given"
        }
        "config_digest" => {
            "the server is set up otherwise than the policy demands: it may send prompts elsewhere"
        }
        "scope" => {
            "pin what the server has to be: `confide policy pin FILE --digest HEX` with its \
             config_digest, and [workload] as `confide policy init` writes it; \
             dangerous_scope = \"platform\" in the policy accepts any program"
        }
        "binding" => {
            "the policy demands session binding: start the server with --binding session, and \
             leave --binding out here"
        }
        "debug" => "the host can read the memory of a TEE in debug mode",
        "collateral" => "give --collateral FILE, or let the gateway staple it",
        "evidence" => "the server shows no evidence that can be read: is it an attested one?",
        _ => "nothing was sent to it",
    }
}

fn ready_fields(
    args: &Args,
    binding: BindingName,
    address: SocketAddr,
    appraised: &PeerAppraisal,
    timings: ConnectTimings,
) -> Map<String, Value> {
    let mut verdict = appraised.verdict().to_json();
    let mut take = |name: &str| verdict[name].take();
    let claims = take("claims");
    let fields = json!({
        "base_url": format!("http://{address}/v1"),
        "endpoint": args.url,
        "via": args.via,
        "binding": binding.as_str(),
        "simulated": appraised.is_simulated(),
        "scope": take("scope"),
        "root": take("root"),
        "tcb_status": take("tcb_status"),
        "advisories": take("advisories"),
        "config_digest": claims["config_digest"],
        "claimed_guarantee": claims["guarantee"],
        "not_after": appraised.not_after(),
        "not_after_utc": UnixSeconds(appraised.not_after()).utc().to_string(),
        "checks": take("checks"),
        "connect_ms": timings.total().as_secs_f64() * 1000.0,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

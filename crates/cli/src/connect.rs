//! `confide connect`: verifies a confidential server, then opens a loopback address.

mod agent;
mod command;
mod encrypted;
mod environment;
mod local_address;
mod replicas;

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_appraiser::AppraisalError;
use confide_channel::{ChannelError, SessionVersion};
use confide_client::{
    AllowedOrigins, Binding, ClientError, ClientLimits, Connector, Endpoint, HttpClient,
    PeerAppraisal, PolicyAppraiser, RemoteEnd, ReplicaSet, ReplicaStatus, VerificationSource,
    error_chain,
};
use confide_evidence::Attest;
use confide_verification::{ConnectionFacts, describe_connection};
use confide_verifier::{BindingLevel, Policy, Scope};

use self::{
    encrypted::EncryptedConnection,
    environment::find_proxy,
    local_address::{AgentArgs, LocalAddress, VerifiedEnd},
    replicas::{describe_verification, explain_failures, find_described, join_urls, parse_urls},
};
use crate::{
    address::parse_listen_address,
    attest::arguments::{AttesterArgs, client_evidence},
    binding::EvidenceBinding,
    error::CliError,
    features::NO_ATTESTER_HINT,
    policy, process,
    refusal::{PeerHints, explain_client_error},
};

/// The claim of a client that attests.
const CLIENT_CLAIM: &str = "client of a gateway";

/// The arguments that say nothing to a connection which is not attested itself. They are listed one
/// by one, because a group names neither its nested arguments nor later ones.
const WITHOUT_EFFECT_ON_ENCRYPTED_BODIES: [&str; 12] = [
    "attester",
    "binding",
    "collateral_service",
    "collateral_store",
    "device",
    "device_deadline_s",
    "gpu_index",
    "privlevel",
    "session_version",
    "simulate",
    "tsm_root",
    "via",
];

/// The arguments of `confide connect`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The attested server: https://HOST[:PORT]. Several addresses are replicas of one service: each has to
    /// satisfy the policy by itself, and requests are spread over those that do. One that is refused or cannot
    /// be reached is left out until it is back
    #[arg(value_name = "URL", required = true, num_args = 1..)]
    urls: Vec<String>,
    /// The policy that the server must satisfy, TOML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trust this root certificate (DER) in addition to the policy's
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Use this collateral instead of the server's stapled collateral
    #[arg(long, value_name = "FILE", conflicts_with = "collateral_service")]
    collateral: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Evidence of this end, for a server that demands it")]
    attester: AttesterArgs,
    /// Connect through this tunnel: ws://HOST:PORT
    #[arg(long, value_name = "URL")]
    via: Option<String>,
    /// Connect through a proxy that terminates TLS, such as a CDN: verify the gateway behind it by its
    /// attestation report, encrypt every request whole to the key there, and refuse other answers. The proxy has to
    /// pass POST /.well-known/ohttp-gateway on
    #[arg(long, conflicts_with_all = WITHOUT_EFFECT_ON_ENCRYPTED_BODIES)]
    encrypted_bodies: bool,
    /// Send whole requests through this relay of OHTTP, which passes them on to the server's
    /// /.well-known/ohttp-gateway: https://HOST[:PORT][/PATH]. The relay sees sizes, times, your address and the
    /// identifier of the gateway's key. The server does not see your address, except where this program fetches
    /// its attestation report from URL. Only one URL may be given, and no further gateways are looked for there
    #[arg(long, value_name = "URL", requires = "encrypted_bodies")]
    relay: Option<String>,
    /// Encrypt bodies only (EHBP). The proxy then sees paths and header fields, and with an API key of yours it gets
    /// whatever the gateway gives you: receipts with digests of bodies, stored answers, files
    #[arg(long, requires = "encrypted_bodies", conflicts_with = "relay")]
    dangerous_visible_heads: bool,
    /// Verify the TLS of the proxy and of the relay by the root certificates of this PEM file only; by default, by
    /// those of the system
    #[arg(long, value_name = "FILE", requires = "encrypted_bodies")]
    tls_ca: Option<PathBuf>,
    /// How the server binds evidence to connections; by default `session` if the policy demands it or this
    /// end attests, else `key`
    #[arg(long, value_enum)]
    binding: Option<EvidenceBinding>,
    /// Offer only this version of session binding: 3 is that with exported authenticators (RFC 9261). By
    /// default all are offered, and the server chooses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    session_version: Option<u8>,
    /// Seconds after which the server has to show fresh evidence, before the next request: on the same
    /// connection with session binding, else on a new one. A WebSocket is closed instead
    #[arg(long, value_name = "N", default_value_t = 900,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    evidence_age_s: u64,
    /// The loopback address for OpenAI clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address,
          default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Milliseconds for the TCP connection, and as many again for handshake and evidence
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    deadline_ms: u64,
    /// Requests that run at once, open WebSockets among them, each on an attested connection of its own
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    requests: u32,
    /// Requests that may wait, for up to 30 s, until a running one ends; further ones get status
    /// 503
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(0..=65_536))]
    requests_waiting: u32,
    /// Largest number of connections of local programs; idle ones give way to new ones
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Let pages of this web origin use the address; may be given several times. By default no web page may
    /// use it
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Let other machines use the address: their requests reach it in the clear
    #[arg(long)]
    dangerous_listen_beyond_loopback: bool,
    /// Run this command with the address in OPENAI_BASE_URL, and end with it and its status. A line on
    /// standard error then takes the place of the ready line
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    if !args.listen.ip().is_loopback() && !args.dangerous_listen_beyond_loopback {
        return Err(CliError::new(format!(
            "--listen {} is not loopback: requests to it would travel in the clear",
            args.listen
        ))
        .with_hint("listen on 127.0.0.1, or add --dangerous-listen-beyond-loopback"));
    }
    args.agent.check(&args.command)?;
    let deadline = Duration::from_millis(args.deadline_ms);
    let limits = ClientLimits {
        dial: deadline,
        channel: deadline,
        connections: args.requests as usize,
        requests_waiting: args.requests_waiting as usize,
        local_connections: args.connections as usize,
        age_max: Duration::from_secs(args.evidence_age_s),
        ..ClientLimits::default()
    };
    let origins = AllowedOrigins::new(&args.allow_origin)
        .map_err(|error| CliError::new(format!("--allow-origin: {error}")))?;
    let policy = policy::file::read_policy(&args.policy)?;
    if args.encrypted_bodies {
        let connection = EncryptedConnection {
            urls: &args.urls,
            policy: policy::file::add_root(policy, args.root.as_deref())?,
            collateral: args.collateral.as_deref(),
            tls_ca: args.tls_ca.as_deref(),
            relay: args.relay.as_deref(),
            has_visible_heads: args.dangerous_visible_heads,
            listen: args.listen,
            command: &args.command,
            agent: &args.agent,
        };
        return encrypted::run(&connection, origins, limits);
    }
    let own = args.attester.open_attester(None)?;
    let demands_session = policy.binding == Some(BindingLevel::Session)
        || own.is_some()
        || args.session_version.is_some();
    let binding: Binding = match (args.binding, demands_session) {
        (Some(name), _) => name.into(),
        (None, true) => Binding::Session,
        (None, false) => Binding::Key,
    };
    let replicas = Arc::new(build_replicas(&args, policy, binding, own, limits)?);
    process::block_on_this_thread(serve(&args, binding, replicas, origins, limits))?
}

async fn serve(
    args: &Args,
    binding: Binding,
    replicas: Arc<ReplicaSet>,
    origins: AllowedOrigins,
    limits: ClientLimits,
) -> Result<ExitCode, CliError> {
    let mut stop = pin!(process::stop_signal());
    let began = Instant::now();
    tokio::select! {
        biased;
        () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
        opened = replicas.open() => opened.map_err(|failures| {
            explain_failures(failures, |url, error| explain_error(args, url, error))
        })?,
    };
    let connect_ms = began.elapsed().as_secs_f64() * 1000.0;
    let states = replicas.describe();
    let Some((described, appraised)) = find_described(&states, |replica| replica.appraisal.clone())
    else {
        return Err(CliError::new("the connection has no attestation result"));
    };
    if appraised.verdict().scope() == Scope::Platform {
        tracing::warn!(
            "the policy says dangerous_scope = \"platform\": the server's program and its \
             configuration are not known"
        );
    }
    let (listener, address) = process::listen(args.listen).await?;
    let describe = {
        let via = args.via.clone();
        move |replica: &ReplicaStatus, appraised: &PeerAppraisal| {
            let facts =
                ConnectionFacts { url: &replica.url, via: via.as_deref(), binding: binding.name() };
            let mut verified =
                describe_connection(&facts, appraised.verdict(), appraised.is_simulated());
            verified["guarantee"] = appraised.guarantee().into();
            verified
        }
    };
    let mut fields = describe(described, &appraised);
    fields["connect_ms"] = connect_ms.into();
    let url = join_urls(&args.urls);
    let verified = VerifiedEnd { url: &url, guarantee: appraised.guarantee(), fields };
    let verification: VerificationSource = {
        let replicas = replicas.clone();
        Arc::new(move || {
            describe_verification(&replicas.describe(), |replica| {
                replica.appraisal.as_ref().map(|appraised| describe(replica, appraised))
            })
        })
    };
    let command = &*args.command;
    let agent = &args.agent;
    let local = LocalAddress { listener, address, origins, limits, verification, command, agent };
    let maintained = replicas.clone();
    tokio::select! {
        status = local.serve(replicas, verified, stop) => status,
        never = maintained.maintain() => match never {},
    }
}

/// The replicas of all addresses, which share one policy and what was learnt about revocations.
fn build_replicas(
    args: &Args,
    policy: Policy,
    binding: Binding,
    own: Option<Arc<dyn Attest>>,
    limits: ClientLimits,
) -> Result<ReplicaSet, CliError> {
    let endpoints = parse_urls(&args.urls, "https://127.0.0.1:8443")?;
    let policy = policy::file::add_root(policy, args.root.as_deref())?;
    let service = &args.attester.service;
    let appraiser = Arc::new(service.build_appraiser(policy, args.collateral.as_deref())?);
    let mut clients: Vec<HttpClient> = Vec::new();
    for endpoint in endpoints {
        let connector = build_connector(args, endpoint, binding, &appraiser, own.clone(), limits)?;
        clients.push(match clients.first() {
            Some(first) => first.for_replica(connector),
            None => HttpClient::new(connector, limits, process::unix_now),
        });
    }
    let ends = clients.into_iter().map(|client| RemoteEnd::from(Arc::new(client)));
    Ok(ReplicaSet::new(args.urls.iter().cloned().zip(ends)))
}

fn build_connector(
    args: &Args,
    endpoint: Endpoint,
    binding: Binding,
    appraiser: &Arc<PolicyAppraiser>,
    own: Option<Arc<dyn Attest>>,
    limits: ClientLimits,
) -> Result<Connector, CliError> {
    let proxy = find_proxy(&endpoint)?;
    Connector::with_appraiser(endpoint, args.via.clone(), binding, appraiser.clone(), limits)
        .map(|connector| connector.with_proxy(proxy))
        .and_then(|connector| match own {
            None => Ok(connector),
            Some(own) => connector.with_evidence(client_evidence(own, CLIENT_CLAIM)),
        })
        .and_then(|connector| match args.session_version.and_then(SessionVersion::from_number) {
            None => Ok(connector),
            Some(version) => connector.with_session_version(version),
        })
        .map_err(|error| CliError::new(error_chain(&error)))
}

fn explain_error(args: &Args, url: &str, error: &ClientError) -> CliError {
    let hints = PeerHints {
        attester: NO_ATTESTER_HINT,
        network: &|error| hint_for_network(args.via.as_deref(), error),
    };
    explain_client_error(url, error, &hints)
}

fn hint_for_network(via: Option<&str>, error: &ClientError) -> String {
    match (via, error) {
        (_, ClientError::Channel { source: ChannelError::Tls(_), .. }) => {
            "check that a confide gateway runs there and give its --binding (key or session), \
             which its ready line names"
                .into()
        }
        _ if matches!(error.rejection(), Some(AppraisalError::Fetch(_))) => {
            "this end's own source of endorsements gave none: check --collateral-service, or give \
             --collateral FILE"
                .into()
        }
        (_, ClientError::Channel { source: ChannelError::Refused { .. }, .. }) => {
            "the server answers but cannot give evidence now: see its log".into()
        }
        (_, ClientError::Proxy { .. }) => {
            "the proxy is that of HTTPS_PROXY or ALL_PROXY; NO_PROXY=HOST exempts a host from it"
                .into()
        }
        (Some(via), _) => {
            format!("check that a confide tunnel runs at {via} with --allow for this server")
        }
        (None, _) => "check that the gateway runs there: its ready line names the address. If its \
                      model server was replaced, it accepts no connections, and its log says so"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgMatches, Args as _, Command, error::ErrorKind};

    use super::*;

    /// The arguments that mean something with `--encrypted-bodies`.
    const EFFECTIVE: [&str; 19] = [
        "agent",
        "agent_file",
        "allow_origin",
        "collateral",
        "command",
        "connections",
        "dangerous_listen_beyond_loopback",
        "dangerous_visible_heads",
        "deadline_ms",
        "encrypted_bodies",
        "evidence_age_s",
        "listen",
        "policy",
        "relay",
        "requests",
        "requests_waiting",
        "root",
        "tls_ca",
        "urls",
    ];

    fn parse_with_encrypted_bodies(more: &[&str]) -> Result<ArgMatches, clap::Error> {
        let given = ["connect", "https://h", "--policy", "p", "--encrypted-bodies"];
        let command = Args::augment_args(Command::new("connect"));
        command.try_get_matches_from([&given[..], more].concat())
    }

    #[test]
    fn arguments_without_effect_on_encrypted_bodies_are_refused() {
        let given: [(&str, &[&str]); 12] = [
            ("attester", &["--attester", "device"]),
            ("binding", &["--binding", "key"]),
            ("collateral_service", &["--collateral-service", "vendors"]),
            ("collateral_store", &["--collateral-store", "d"]),
            ("device", &["--device", "tsm"]),
            ("device_deadline_s", &["--device-deadline-s", "5"]),
            ("gpu_index", &["--gpu-index", "0"]),
            ("privlevel", &["--privlevel", "0"]),
            ("session_version", &["--session-version", "3"]),
            ("simulate", &["--simulate", "d"]),
            ("tsm_root", &["--tsm-root", "d"]),
            ("via", &["--via", "ws://h:1"]),
        ];
        for (name, more) in given {
            let refused = parse_with_encrypted_bodies(more).expect_err(name);
            assert_eq!(refused.kind(), ErrorKind::ArgumentConflict, "{name}: {refused}");
        }
        parse_with_encrypted_bodies(&["--tls-ca", "f", "--collateral", "f"]).unwrap();
        // A new argument belongs into one of the two lists.
        for argument in Args::augment_args(Command::new("connect")).get_arguments() {
            let id = argument.get_id().as_str();
            let is_refused = given.iter().any(|(name, _)| *name == id);
            assert_ne!(EFFECTIVE.contains(&id), is_refused, "{id}");
        }
    }
}
